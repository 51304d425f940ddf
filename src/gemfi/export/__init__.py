"""Export: a model, its density, temperature, gate and policy as one graph.

    deployed = Deployed(model, policy)
    proto = to_onnx(deployed)
    check_parity(deployed, onnx_runner(proto.SerializeToString()), images).require("model.onnx")

`deployed.py` is the module from raw inputs to decisions; `graphs.py` makes a program of
torch.export or ONNX of it, with the special functions of `special.py`; `parity.py` compares either
with `policy(model.predict(x))`. onnx, onnxscript and onnxruntime are optional, and imported when
they are needed: pip install '.[onnx]' in the clone.
"""

from gemfi.export.deployed import Deployed, metadata, snippet
from gemfi.export.graphs import (
    PACKAGES,
    Quantised,
    program_bytes,
    quantised,
    require,
    to_onnx,
    to_program,
    with_metadata,
)
from gemfi.export.parity import (
    Given,
    Graph,
    Parity,
    check_parity,
    gather,
    make_graphs,
    onnx_runner,
    program_runner,
    random_inputs,
)

__all__ = [
    "PACKAGES",
    "Deployed",
    "Given",
    "Graph",
    "Parity",
    "Quantised",
    "check_parity",
    "gather",
    "make_graphs",
    "metadata",
    "onnx_runner",
    "program_bytes",
    "program_runner",
    "quantised",
    "random_inputs",
    "require",
    "snippet",
    "to_onnx",
    "to_program",
    "with_metadata",
]
