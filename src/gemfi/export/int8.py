"""Dynamic quantisation: the network in eight bits, and what that changes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from gemfi import metrics
from gemfi.data import Role, Split, require_role
from gemfi.errors import InputError
from gemfi.export.graphs import BACKBONE
from gemfi.export.packages import quiet, require
from gemfi.export.parity import Arrays, Runner

KINDS: Final[Mapping[str, str]] = {"Conv": "convolution", "Gemm": "matrix product"} | {
    "MatMul": "matrix product"
}
"""Operator -> what it is; these have weights that can be eight bits."""


@dataclass(frozen=True)
class Quantised:
    """A graph with a quantised network.

    Attributes:
        data: of the file.
        layers: kind -> how many layers of the network have weights of eight bits.
    """

    data: bytes
    layers: Mapping[str, int]

    def __str__(self) -> str:
        parts = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in self.layers.items()]
        return f"{' and '.join(parts)} of the network in int8; head, density and p-values in float"


def quantised(proto: Any) -> Quantised:
    """The graph with the weights of its backbone as eight-bit integers.

    Activations are quantised as they come, by their range in the batch at hand, so that no data are
    needed. Head, energy, gate, density, scores and p-values stay as they are: what they compare is
    fine, and they cost little.

    Args:
        proto: of `to_onnx`.
    """
    tools: Any = require("onnxruntime.quantization")
    weights = {each.name for each in proto.graph.initializer}
    layers = [node for node in proto.graph.node if _is_layer(node, weights)]
    if not layers:
        raise InputError(
            "the network of this model has no convolution and no matrix product to quantise"
        )
    with tempfile.TemporaryDirectory() as folder, quiet():
        out = Path(folder) / "int8.onnx"
        tools.quantize_dynamic(
            proto,
            out,
            op_types_to_quantize=sorted(KINDS),
            nodes_to_quantize=[name for node in layers for name in _names(node)],
            weight_type=tools.QuantType.QUInt8,  # the only kind that ConvInteger takes everywhere
            extra_options={"DefaultTensorType": 1},  # FLOAT, where it cannot infer one
        )
        return Quantised(out.read_bytes(), dict(Counter(KINDS[node.op_type] for node in layers)))


def figures(
    run: Runner, score: str, validation: Split, ood: Mapping[str, Split], most: int
) -> dict[str, float]:
    """Accuracy and ECE on validation data, and the AUROC of a score against each OOD set, in %.

    Args:
        run: a graph.
        score: an output, higher is more OOD.
        validation: of role validation.
        ood: sets of role ood-validation.
        most: inputs that are taken of each.
    """
    require_role(validation, (Role.VALIDATION,), "judging a quantised graph")
    for each in ood.values():
        require_role(each, (Role.OOD_VALIDATION,), "judging a quantised graph")
    inside, labels = run(validation.x[:most]), validation.labels[:most]
    found = {
        "accuracy": metrics.accuracy(inside["probs"], labels),
        "ECE": metrics.ece(inside["probs"], labels),
    }
    for name, split in ood.items():
        outside = run(split.x[:most])
        found[f"AUROC {name}"] = metrics.auroc(inside[score], outside[score])
    return found


def agreement(one: Arrays, other: Arrays) -> dict[str, float]:
    """Shares of equal labels and decisions, and the largest difference of a probability."""
    names = [name for name in ("label", "decision") if name in one]
    equal = {name: float((one[name] == other[name]).mean()) for name in names}
    return equal | {"probs": float(np.abs(one["probs"] - other["probs"]).max())}


def _is_layer(node: Any, weights: set[str]) -> bool:
    inside = any(each.key == BACKBONE for each in node.metadata_props)
    return inside and node.op_type in KINDS and len(node.input) > 1 and node.input[1] in weights


def _names(node: Any) -> list[str]:
    """A Gemm becomes a MatMul of another name before it is quantised."""
    return [node.name, f"{node.name}_MatMul"] if node.op_type == "Gemm" else [node.name]
