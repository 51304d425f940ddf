"""Files of a model: every graph is made and compared before the first is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from gemfi.bundle import Bundle
from gemfi.export.about import metadata
from gemfi.export.deployed import Deployed
from gemfi.export.graphs import program_bytes, to_onnx, to_program, with_metadata
from gemfi.export.inputs import Given
from gemfi.export.int8 import agreement, figures, quantised
from gemfi.export.parity import Parity, check_parity, onnx_runner, program_runner


@dataclass(frozen=True)
class Graph:
    """What is to be written.

    Attributes:
        path: where to.
        data: of the file.
        lines: how it compares with the model, in words.
        parity: the same in numbers; None for int8, which is not meant to be equal.
    """

    path: Path
    data: bytes
    lines: tuple[str, ...]
    parity: Parity | None = None


def make_graphs(
    bundle: Bundle, deployed: Deployed, given: Given, files: Mapping[str, Path], most: int
) -> list[Graph]:
    """The graphs that were asked for, each as the model says; otherwise an error.

    Args:
        bundle: of the model.
        deployed: the model and a policy.
        given: inputs to compare on.
        files: `program`, `onnx` and `int8`, as many of them as are wanted, with their paths.
        most: inputs of each set of a task that judge int8.
    """
    program, done = to_program(deployed), []
    if "program" in files:
        parity = check_parity(deployed, program_runner(program), given.x)
        parity.require(files["program"].name)
        done.append(Graph(files["program"], program_bytes(program), (str(parity),), parity))
    if files.keys() & {"onnx", "int8"}:
        done += _onnx(bundle, deployed, given, files, most, program)
    return done


def _onnx(
    bundle: Bundle,
    deployed: Deployed,
    given: Given,
    files: Mapping[str, Path],
    most: int,
    program: ExportedProgram,
) -> list[Graph]:
    proto: Any = to_onnx(deployed, program)
    notes = metadata(deployed, bundle.info.class_names, bundle.name, bundle.info.columns)
    whole = with_metadata(proto, notes).SerializeToString()
    parity = check_parity(deployed, onnx_runner(whole), given.x)
    parity.require(files["onnx"].name if "onnx" in files else "the ONNX graph before int8")
    done = []
    if "onnx" in files:
        done.append(Graph(files["onnx"], whole, (str(parity),), parity))
    if "int8" in files:
        small = quantised(with_metadata(proto, notes | {"quantised": "int8, dynamic"}))
        lines = (str(small), *_change(deployed, given, whole, small.data, most))
        done.append(Graph(files["int8"], small.data, lines))
    return done


def _change(deployed: Deployed, given: Given, whole: bytes, small: bytes, most: int) -> list[str]:
    """What eight bits change: by labels, where there are some, and input by input."""
    before, after = onnx_runner(whole), onnx_runner(small)
    lines = []
    if given.task is not None:
        score = deployed.model.head.named_scores["epistemic"]
        sets = given.task.validation, given.task.ood_validation
        one, other = (figures(each, score, *sets, most) for each in (before, after))
        lines.append(", ".join(f"{name} {one[name]:.2f} → {other[name]:.2f}" for name in one))
    equal = agreement(before(given.x), after(given.x))
    same = ", ".join(f"{name}s {100 * equal[name]:.2f}%" for name in equal if name != "probs")
    return [*lines, f"same {same}; probabilities within {equal['probs']:.2g}"]
