"""Graphs of a deployed model: a program of torch.export, and ONNX."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.export import Dim, ExportedProgram

from gemfi.errors import InputError
from gemfi.export.deployed import Deployed
from gemfi.export.packages import quiet, require
from gemfi.export.special import REWRITTEN

INPUT: Final = "input"
OPSET: Final = 20
BACKBONE: Final = "gemfi.backbone"
"""Metadata of a node that is part of the backbone, which alone is quantised."""


def to_program(deployed: Deployed) -> ExportedProgram:
    """The module as a graph of torch's operators, for any size of a batch."""
    batch = {INPUT: {0: Dim("batch", min=1)}}
    try:
        with quiet():
            return torch.export.export(
                deployed, (deployed.example(),), dynamic_shapes=batch, strict=False
            )
    except (RuntimeError, ValueError) as error:
        raise _not_exportable(deployed, error) from error


def program_bytes(program: ExportedProgram) -> bytes:
    """The contents of a .pt2 file, which `torch.export.load` reads without gemfi."""
    buffer = io.BytesIO()
    with quiet():
        torch.export.save(program, buffer)
    return buffer.getvalue()


def to_onnx(deployed: Deployed, program: ExportedProgram | None = None) -> Any:
    """The module as an `onnx.ModelProto`.

    Args:
        deployed: the module.
        program: of `to_program`, where there is one already.
    """
    for name in ("onnx", "onnxscript"):
        require(name)
    program = to_program(deployed) if program is None else program
    try:
        return _tidied(convert(program, deployed.output_names))
    except (RuntimeError, ValueError) as error:
        raise _not_exportable(deployed, error) from error


def convert(program: ExportedProgram, outputs: Sequence[str]) -> Any:
    """A program of one input as an `onnx.ModelProto`, with the functions of `special.py`.

    Args:
        program: of torch.export.
        outputs: their names, in order.
    """
    with quiet():
        made = torch.onnx.export(
            program.run_decompositions(dict(REWRITTEN)),
            (),
            dynamo=True,
            verbose=False,
            external_data=False,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=outputs,
            custom_translation_table={torch.ops.aten.scalar_tensor.default: _constant()},
        )
    if made is None:
        raise InputError("torch.onnx.export gave no graph")
    return made.model_proto


def _constant() -> Callable[..., Any]:
    """How a number of a formula gets into ONNX: in the type of its tensor, with all its digits.

    The converter's own way is by float32, in which 0.7 is less than 0.7 and 1/12 has eight digits.
    """
    onnx, script = require("onnx"), require("onnxscript")
    operators: Any = getattr(script, f"opset{OPSET}")

    def scalar_tensor(
        s: Any, dtype: int = 1, layout: str = "", device: str = "", pin_memory: bool = False
    ) -> Any:
        del layout, device, pin_memory
        if not isinstance(s, bool | int | float):
            return operators.Cast(s, to=dtype)
        kind = onnx.helper.tensor_dtype_to_np_dtype(dtype)
        return operators.Constant(value=onnx.numpy_helper.from_array(np.asarray(s, kind)))

    return scalar_tensor


def _tidied(proto: Any) -> Any:
    """Without the stack traces, which name files of this machine; nodes of the backbone marked."""
    for node in proto.graph.node:
        scopes = {each.key: each.value for each in node.metadata_props}
        inside = "'model.backbone'" in scopes.get("pkg.torch.onnx.name_scopes", "")
        del node.metadata_props[:]
        node.doc_string = ""
        if inside:
            node.metadata_props.add(key=BACKBONE, value="1")
    for each in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        del each.metadata_props[:]
        each.doc_string = ""
    del proto.graph.value_info[:]  # runtimes infer it, and quantisation transposes some weights
    del proto.graph.metadata_props[:]
    proto.graph.name, proto.graph.doc_string = "gemfi", ""
    _name_batch(proto)
    return proto


def _name_batch(proto: Any) -> None:
    """`batch` in the place of the symbol that the exporter chose."""
    symbol = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for each in (*proto.graph.input, *proto.graph.output):
        for size in each.type.tensor_type.shape.dim:
            if size.dim_param == symbol:
                size.dim_param = "batch"


def _not_exportable(deployed: Deployed, error: Exception) -> InputError:
    network = type(deployed.model.backbone).__name__
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")
    return InputError(
        f"{deployed.model.head.info.name} on {network} cannot become a graph: {reason}"
    )


def with_metadata(proto: Any, entries: Mapping[str, str]) -> Any:
    """The model with these texts in its `metadata_props`."""
    del proto.metadata_props[:]
    for key, value in entries.items():
        proto.metadata_props.add(key=key, value=value)
    return proto
