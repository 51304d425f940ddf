"""Graphs of a deployed model: a program of torch.export, ONNX, and ONNX with a network in int8."""

from __future__ import annotations

import io
import logging
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.export import Dim, ExportedProgram

from gemfi._files import require_module
from gemfi.errors import InputError
from gemfi.export.deployed import Deployed
from gemfi.export.special import REWRITTEN

PACKAGES: Final = ("onnx", "onnxscript", "onnxruntime")
_INPUT: Final = "input"
_OPSET: Final = 20
_BACKBONE: Final = "gemfi.backbone"  # marks a node of the backbone, which alone is quantised
# Operators whose weights can be eight bits, and what they are.
_LAYERS: Final = {"Conv": "convolution", "Gemm": "matrix product", "MatMul": "matrix product"}


def require(name: str) -> Any:
    """Import a package of the extra `onnx`, or say how to install it."""
    return require_module(name, "ONNX")


def to_program(deployed: Deployed) -> ExportedProgram:
    """The module as a graph of torch's operators, for any size of a batch."""
    batch = {_INPUT: {0: Dim("batch", min=1)}}
    try:
        with _quiet():
            return torch.export.export(
                deployed, (deployed.example(),), dynamic_shapes=batch, strict=False
            )
    except (RuntimeError, ValueError) as error:
        raise _not_exportable(deployed, error) from error


def program_bytes(program: ExportedProgram) -> bytes:
    """The contents of a .pt2 file, which `torch.export.load` reads without gemfi."""
    buffer = io.BytesIO()
    with _quiet():
        torch.export.save(program, buffer)
    return buffer.getvalue()


def to_onnx(deployed: Deployed, program: ExportedProgram | None = None) -> Any:
    """The module as an `onnx.ModelProto`; `program` is that of `to_program`, if it exists."""
    for name in PACKAGES[:2]:
        require(name)
    program = to_program(deployed) if program is None else program
    try:
        return _tidied(convert(program, deployed.output_names))
    except (RuntimeError, ValueError) as error:
        raise _not_exportable(deployed, error) from error


def convert(program: ExportedProgram, outputs: Sequence[str]) -> Any:
    """A program of one input as an `onnx.ModelProto`, with the functions of `special.py`."""
    with _quiet():
        made = torch.onnx.export(
            program.run_decompositions(dict(REWRITTEN)),
            (),
            dynamo=True,
            verbose=False,
            external_data=False,
            opset_version=_OPSET,
            input_names=[_INPUT],
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
    operators: Any = getattr(script, f"opset{_OPSET}")

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
    graph = proto.graph
    for node in graph.node:
        scopes = {entry.key: entry.value for entry in node.metadata_props}
        del node.metadata_props[:]
        node.doc_string = ""
        if "'model.backbone'" in scopes.get("pkg.torch.onnx.name_scopes", ""):
            node.metadata_props.add(key=_BACKBONE, value="1")
    for value in (*graph.input, *graph.output, *graph.initializer):
        del value.metadata_props[:]
        value.doc_string = ""
    del graph.value_info[:]  # runtimes infer it, and quantisation transposes some weights
    del graph.metadata_props[:]
    graph.name, graph.doc_string = "gemfi", ""
    symbol = graph.input[0].type.tensor_type.shape.dim[0].dim_param  # that the exporter chose
    for value in (*graph.input, *graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == symbol:
                size.dim_param = "batch"
    return proto


def with_metadata(proto: Any, entries: Mapping[str, str]) -> Any:
    """The model with these texts in its `metadata_props`."""
    del proto.metadata_props[:]
    for key, value in entries.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


@dataclass(frozen=True)
class Quantised:
    """A graph with a quantised network."""

    data: bytes  # of the file
    layers: Mapping[str, int]  # kind -> how many layers of the network have weights of eight bits

    def __str__(self) -> str:
        parts = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in self.layers.items()]
        return f"{' and '.join(parts)} of the network in int8; head, density and p-values in float"


def quantised(proto: Any) -> Quantised:
    """The graph of `to_onnx` with the weights of its backbone as eight-bit integers.

    Activations are quantised as they come, by their range in the batch at hand, so that no data are
    needed. Head, energy, gate, density, scores and p-values stay as they are: what they compare is
    fine, and they cost little.
    """
    tools: Any = require("onnxruntime.quantization")
    weights = {tensor.name for tensor in proto.graph.initializer}
    layers = [
        node
        for node in proto.graph.node
        if node.op_type in _LAYERS
        and any(entry.key == _BACKBONE for entry in node.metadata_props)
        and not weights.isdisjoint(node.input[1:2])
    ]
    if not layers:
        raise InputError(
            "the network of this model has no convolution and no matrix product to quantise"
        )
    # a Gemm becomes a MatMul of another name before it is quantised
    names = [node.name for node in layers]
    names += [f"{node.name}_MatMul" for node in layers if node.op_type == "Gemm"]
    with tempfile.TemporaryDirectory() as folder, _quiet():
        out = Path(folder) / "int8.onnx"
        tools.quantize_dynamic(
            proto,
            out,
            op_types_to_quantize=sorted(_LAYERS),
            nodes_to_quantize=names,
            weight_type=tools.QuantType.QUInt8,  # the only kind that ConvInteger takes everywhere
            extra_options={"DefaultTensorType": 1},  # FLOAT, where it cannot infer one
        )
        return Quantised(out.read_bytes(), dict(Counter(_LAYERS[node.op_type] for node in layers)))


def _not_exportable(deployed: Deployed, error: Exception) -> InputError:
    network = type(deployed.model.backbone).__name__
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")
    return InputError(
        f"{deployed.model.head.info.name} on {network} cannot become a graph: {reason}"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without messages and advice; what matters is raised, and the result is checked."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
