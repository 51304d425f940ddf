"""Does a graph say what the model says? All are compared before the first file is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.nn import functional

from gemfi import metrics
from gemfi.belief import Belief
from gemfi.bundle import Bundle
from gemfi.data import TASKS, Role, Split, Task, require_role, require_use
from gemfi.decisions import Policy, Verdict, threshold_of
from gemfi.errors import CheckFailedError, InputError
from gemfi.export import graphs
from gemfi.export.deployed import Deployed, metadata
from gemfi.runs.spec import find_task
from gemfi.scores import score_of
from gemfi.scoring import find_inputs, stream_inputs

Arrays = Mapping[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Runner = Callable[[Tensor], Arrays]
"""Inputs (N, ...) to the outputs of a graph by name."""

TOLERANCE: Final = 1e-4
"""Of log-probabilities; and how near a decision may be to a boundary to fall on either side."""

_SEEN: Final = 1e-30  # smaller probabilities count as nothing, and their logarithms may differ
# Scores that are logarithms: near 0 their differences count as they are, not in proportion.
_LOGARITHMIC: Final = (
    *("evidence", "bare_evidence", "max_alpha", "energy", "logit_energy", "density"),
    *("unfamiliarity", "differential_entropy", "differential_entropy_upper"),
)

_BATCH: Final = 256


@dataclass(frozen=True)
class Parity:
    """How a graph differs from `policy(model.predict(x))`.

    A decision is the verdict, where there is a policy, and the label. It is within the margin where
    a change of its score, its doubt or its log-probabilities by 1e-4 could turn it: in proportion,
    or as it is for scores that are logarithms.
    """

    count: int  # inputs
    log_prob: float  # the largest difference of log-probabilities, of those above 1e-30
    near: int  # inputs within the margin
    differ_near: int  # decisions that differ, within the margin
    differ_far: int  # decisions that differ beyond it
    p_value: float | None = None  # the largest difference; None without a policy
    lost: tuple[str, ...] = ()  # outputs that are NaN where the model's are not
    verdicts: Mapping[str, int] | None = None  # how many inputs have each, by the model

    @property
    def is_kept(self) -> bool:
        """Whether log-probabilities are within 1e-4, and decisions equal beyond the margin."""
        return self.log_prob <= TOLERANCE and not self.differ_far and not self.lost

    def require(self, what: str) -> None:
        """Refuse a graph that says something else than its model."""
        if self.is_kept:
            return
        reasons = []
        if not self.log_prob <= TOLERANCE:
            reasons.append(f"log-probabilities differ by up to {self.log_prob:.1e}")
        if self.differ_far:
            reasons.append(
                f"{self.differ_far:,} of {self.count - self.near:,} decisions outside the margin"
            )
        if self.lost:
            reasons.append(f"NaN in {', '.join(self.lost)}")
        raise CheckFailedError(
            f"{what} does not say what the model says on {self.count:,} inputs (allowed: "
            f"{TOLERANCE:g}): {'; '.join(reasons)}. Nothing was written"
        )

    def __str__(self) -> str:
        return (
            f"log p within {self.log_prob:.1e}; decisions that differ: {self.differ_far:,} of "
            f"{self.count - self.near:,}, within the margin {self.differ_near:,} of {self.near:,}"
        )


def check_parity(deployed: Deployed, run: Runner, x: Tensor) -> Parity:
    """Compare the graph that `run` runs with its model on raw inputs (N, ...), N ≥ 1."""
    belief = deployed.model.predict(x)
    truth = {name: tensor.numpy() for name, tensor in deployed.expected(belief).items()}
    outputs, policy = run(x), deployed.policy
    differ = outputs["label"] != truth["label"]
    p_value = verdicts = None
    if policy is not None:
        differ |= outputs["decision"] != truth["decision"]
        p_value = float(np.abs(truth["p_value"] - outputs["p_value"]).max())
        verdicts = {str(verdict): int((truth["decision"] == verdict).sum()) for verdict in Verdict}
    pair = truth["probs"], outputs["probs"]
    seen = (pair[0] > _SEEN) | (pair[1] > _SEEN)
    log_p, log_q = (np.log(np.where(seen, np.maximum(p, 1e-300), 1.0)) for p in pair)
    near = within_margin(belief, policy)
    lost = (name for name in truth if (np.isnan(outputs[name]) & ~np.isnan(truth[name])).any())
    return Parity(
        count=len(x),
        log_prob=float(np.abs(log_p - log_q).max()),
        near=int(near.sum()),
        differ_near=int((differ & near).sum()),
        differ_far=int((differ & ~near).sum()),
        p_value=p_value,
        lost=tuple(lost),
        verdicts=verdicts,
    )


def within_margin(belief: Belief, policy: Policy | None) -> Bools:
    """(N,) whether a change by 1e-4 could turn the decision on an input."""
    top = belief.log_probs().topk(2, dim=1)
    near: Bools = (top.values[:, 0] - top.values[:, 1]).numpy() <= 2 * TOLERANCE
    if policy is None:
        return near
    edges = np.array([threshold_of(group, policy.level).value for group in policy.reference.groups])
    edge = edges[top.indices[:, 0].numpy()] if len(edges) > 1 else edges
    near |= _is_near(belief, policy.score, edge)
    near |= _is_near(belief, policy.doubt, np.array([policy.threshold]))
    return near


def _is_near(belief: Belief, score: str, edge: Floats) -> Bools:
    finite = np.isfinite(edge)
    edge = np.where(finite, edge, 0.0)
    size = np.maximum(np.abs(edge), 1.0 if score in _LOGARITHMIC else 0.0)
    near: Bools = finite & (np.abs(score_of(belief, score).numpy() - edge) <= TOLERANCE * size)
    return near


def onnx_runner(data: bytes, batch: int = _BATCH) -> Runner:
    """An ONNX model in onnxruntime, on the CPU, `batch` inputs at a time."""
    runtime: Any = graphs.require("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    (given,) = (value.name for value in session.get_inputs())

    def run(x: Tensor) -> Arrays:
        parts = [session.run(names, {given: part.numpy()}) for part in torch.split(x, batch)]
        columns = zip(*parts, strict=True)
        return {name: np.concatenate(column) for name, column in zip(names, columns, strict=True)}

    return run


def program_runner(program: ExportedProgram, batch: int = _BATCH) -> Runner:
    """A program as `to_program` or `torch.export.load` gives it."""
    module = program.module()

    def run(x: Tensor) -> Arrays:
        with torch.no_grad():
            parts = [module(part) for part in torch.split(x, batch)]
        return {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}

    return run


# -- inputs to compare on -----------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """Inputs, and where they come from."""

    x: Tensor  # (N, ...) as the graph takes them
    words: str  # where they come from
    task: Task | None = None  # that they are of


def gather(bundle: Bundle, deployed: Deployed, data: Sequence[str], most: int) -> Given:
    """Inputs for a graph: of a task, of files and folders, or, where `data` is empty, random ones.

    There are at most `most` of them; of a task, of each of its sets.
    """
    if not data:
        return Given(random_inputs(deployed, most), "random inputs")
    if len(data) == 1 and data[0] in TASKS and not Path(data[0]).exists():
        return _of_task(bundle, find_task(data[0]), most)
    pieces: list[Tensor] = []
    for piece, x in stream_inputs(find_inputs(data), bundle):
        good = x[[row for row in range(len(x)) if row not in piece.errors]]
        if deployed.input_dtype == torch.uint8 and good.dtype != torch.uint8:
            good = (255 * good).round()  # numbers from 0 to 1
        pieces.append(good.to(deployed.input_dtype))
        if sum(map(len, pieces)) >= most:
            break
    inputs = torch.cat(pieces)[:most] if pieces else torch.empty(0)
    if not len(inputs):
        raise InputError(f"none of the inputs in {', '.join(data)} could be read")
    return Given(inputs, ", ".join(data))


def _of_task(bundle: Bundle, task: Task, most: int) -> Given:
    """Validation and OOD-validation data, never test data."""
    classes, shape = task.class_names, tuple(task.validation.x.shape[1:])
    if (classes, shape) != (bundle.info.class_names, bundle.sample_shape):
        raise InputError(
            f"--data {task.name}: its inputs {shape} of {len(classes)} classes are not those "
            f"of {bundle.name}: {bundle.sample_shape} of {bundle.info.num_classes} classes"
        )
    splits = [task.validation, *task.ood_validation.values()]
    x = [require_use(split, "tuning").x[:most] for split in splits]
    known = ", ".join(["validation", *task.ood_validation])
    return Given(torch.cat(x), f"inputs of {task.name} ({known})", task)


def random_inputs(deployed: Deployed, count: int, seed: int = 0) -> Tensor:
    """Inputs in the range of the data, from faint to strong, and images from coarse to fine."""
    generator = torch.Generator().manual_seed(seed)
    shape = deployed.sample_shape
    strength = torch.rand(count, *[1] * len(shape), generator=generator)
    if deployed.input_dtype != torch.uint8:
        x = 3 * strength * torch.randn(count, *shape, generator=generator)
        mean, std = deployed.model.input_mean, deployed.model.input_std
        if mean is not None and std is not None:  # standardised, so back to the raw scale
            ones = (-1, *[1] * (len(shape) - 1))
            x = x * std.reshape(ones) + mean.reshape(ones)
        return x.to(deployed.input_dtype)
    if len(shape) != 3:
        x = torch.rand(count, *shape, generator=generator)
        return (255 * strength * x).to(torch.uint8)
    parts = []
    for index, part in enumerate(strength.chunk(4)):
        size = max(1, min(shape[1:]) >> (4 - index))  # of the squares that are drawn
        coarse = torch.rand(len(part), shape[0], size, size, generator=generator)
        image = functional.interpolate(coarse, shape[1:], mode="bilinear", align_corners=False)
        parts.append(255 * part * (2 * image - 0.5).clamp(0, 1))
    return torch.cat(parts).to(torch.uint8)


# -- the files ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Graph:
    """What is to be written."""

    path: Path
    data: bytes
    lines: tuple[str, ...]  # how it compares with the model, in words
    parity: Parity | None = None  # and in numbers; None for int8, which is not meant to be equal


def make_graphs(
    bundle: Bundle, deployed: Deployed, given: Given, files: Mapping[str, Path], most: int
) -> list[Graph]:
    """The graphs that were asked for, each as the model says on the inputs; otherwise an error.

    `files` holds paths for `program`, `onnx` and `int8`, those that are wanted; `most` inputs of
    each set of a task judge int8.
    """
    program, done = graphs.to_program(deployed), []

    def compared(run: Runner, name: str) -> Parity:
        parity = check_parity(deployed, run, given.x)
        parity.require(name)
        return parity

    if (path := files.get("program")) is not None:
        parity = compared(program_runner(program), path.name)
        done.append(Graph(path, graphs.program_bytes(program), (str(parity),), parity))
    if not files.keys() & {"onnx", "int8"}:
        return done
    proto: Any = graphs.to_onnx(deployed, program)
    notes = metadata(deployed, bundle.info.class_names, bundle.name, bundle.info.columns)
    exact = graphs.with_metadata(proto, notes).SerializeToString()
    path = files.get("onnx")
    parity = compared(onnx_runner(exact), path.name if path else "the ONNX graph before int8")
    if path is not None:
        done.append(Graph(path, exact, (str(parity),), parity))
    if "int8" in files:
        notes["quantised"] = "int8, dynamic"
        small = graphs.quantised(graphs.with_metadata(proto, notes))
        lines = _change(deployed, given, onnx_runner(exact), onnx_runner(small.data), most)
        done.append(Graph(files["int8"], small.data, (str(small), *lines)))
    return done


def _change(
    deployed: Deployed, given: Given, before: Runner, after: Runner, most: int
) -> list[str]:
    """What eight bits change: by labels, where there are some, and input by input."""
    lines = []
    if given.task is not None:
        score = deployed.model.head.named_scores["epistemic"]
        sets = given.task.validation, given.task.ood_validation
        one, other = (figures(run, score, *sets, most) for run in (before, after))
        lines.append(", ".join(f"{name} {one[name]:.2f} → {other[name]:.2f}" for name in one))
    equal = agreement(before(given.x), after(given.x))
    same = ", ".join(f"{name}s {100 * equal[name]:.2f}%" for name in equal if name != "probs")
    return [*lines, f"same {same}; probabilities within {equal['probs']:.2g}"]


def figures(
    run: Runner, score: str, validation: Split, ood: Mapping[str, Split], most: int
) -> dict[str, float]:
    """Accuracy and ECE on validation data, and the AUROC of a score against each OOD set, in %.

    `most` inputs are taken of each; a high score is more OOD.
    """
    require_role(validation, (Role.VALIDATION,), "judging a quantised graph")
    for split in ood.values():
        require_role(split, (Role.OOD_VALIDATION,), "judging a quantised graph")
    inside, labels = run(validation.x[:most]), validation.labels[:most]
    aurocs = {
        f"AUROC {name}": metrics.auroc(inside[score], run(split.x[:most])[score])
        for name, split in ood.items()
    }
    return {
        "accuracy": metrics.accuracy(inside["probs"], labels),
        "ECE": metrics.ece(inside["probs"], labels),
        **aurocs,
    }


def agreement(one: Arrays, other: Arrays) -> dict[str, float]:
    """Shares of equal labels and decisions, and the largest difference of a probability."""
    names = [name for name in ("label", "decision") if name in one]
    equal = {name: float((one[name] == other[name]).mean()) for name in names}
    return equal | {"probs": float(np.abs(one["probs"] - other["probs"]).max())}
