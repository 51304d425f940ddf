"""Export: a model, its density, temperature, gate and policy as one graph.

    deployed = Deployed(model, policy)
    proto = to_onnx(deployed)
    check_parity(deployed, onnx_runner(proto.SerializeToString()), images).require("model.onnx")

`deployed.py` is the module from raw inputs to decisions; `graphs.py` makes a program of
torch.export or ONNX of it, with the special functions of `special.py`; `parity.py` compares either
with `policy(model.predict(x))`. onnx, onnxscript and onnxruntime are optional, and imported when
they are needed: pip install '.[onnx]' in the clone.
"""

from gemfi.export.deployed import Deployed
from gemfi.export.graphs import to_onnx, to_program
from gemfi.export.parity import Parity, check_parity, onnx_runner, program_runner

__all__ = [
    "Deployed",
    "Parity",
    "check_parity",
    "onnx_runner",
    "program_runner",
    "to_onnx",
    "to_program",
]
