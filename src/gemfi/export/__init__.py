"""Export: a model, its density, temperature, gate and policy as one graph.

    deployed = Deployed(model, policy)
    proto = to_onnx(deployed)
    check_parity(deployed, onnx_runner(proto.SerializeToString()), images).require("model.onnx")

`deployed.py` is the module from raw inputs to decisions; `graphs.py` makes a program of
torch.export or ONNX of it, with the special functions of `special.py`; `parity.py` compares either
with `policy(model.predict(x))`; `int8.py` quantises. onnx, onnxscript and onnxruntime are optional
and imported when they are needed: pip install '.[onnx]' in the clone.
"""

from gemfi.export.about import metadata, snippet
from gemfi.export.deployed import Deployed
from gemfi.export.graphs import program_bytes, to_onnx, to_program, with_metadata
from gemfi.export.int8 import Quantised, quantised
from gemfi.export.parity import Parity, check_parity, onnx_runner, program_runner

__all__ = [
    "Deployed",
    "Parity",
    "Quantised",
    "check_parity",
    "metadata",
    "onnx_runner",
    "program_bytes",
    "program_runner",
    "quantised",
    "snippet",
    "to_onnx",
    "to_program",
    "with_metadata",
]
