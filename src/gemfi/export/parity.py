"""Does a graph say what the model says? Log-probabilities and decisions, input by input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.export import ExportedProgram

from gemfi.belief import Belief
from gemfi.decisions import Policy, Verdict, threshold_of
from gemfi.errors import CheckFailedError, InputError
from gemfi.export.deployed import Deployed
from gemfi.export.packages import require
from gemfi.scores import score_of

Arrays = Mapping[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Runner = Callable[[Tensor], Arrays]
"""Inputs (N, ...) to the outputs of a graph by name."""

TOLERANCE: Final = 1e-4
"""Of log-probabilities; and how near a decision may be to a boundary to fall on either side."""

SEEN: Final = 1e-30
"""Smaller probabilities are nothing to anyone, and their logarithms may differ by more."""

LOGARITHMIC: Final = frozenset(
    {
        "evidence",
        "bare_evidence",
        "max_alpha",
        "energy",
        "logit_energy",
        "density",
        "unfamiliarity",
        "differential_entropy",
        "differential_entropy_upper",
    }
)
"""Scores that are logarithms: near 0 their differences count as they are, not in proportion."""

_BATCH: Final = 256


@dataclass(frozen=True)
class Parity:
    """How a graph differs from `policy(model.predict(x))`.

    A decision is the verdict, where there is a policy, and the label. It is within the margin where
    a change of its score, its doubt or its log-probabilities by 1e-4 could turn it: in proportion,
    or as it is for scores that are logarithms.

    Attributes:
        count: inputs.
        log_prob: the largest difference of log-probabilities, of those above 1e-30.
        near: inputs within the margin.
        differ_near: decisions that differ, within the margin.
        differ_far: decisions that differ beyond it.
        p_value: the largest difference of p-values; None without a policy.
        lost: outputs that are NaN where the model's are not.
        verdicts: how many inputs have each, by the model.
    """

    count: int
    log_prob: float
    near: int
    differ_near: int
    differ_far: int
    p_value: float | None = None
    lost: tuple[str, ...] = ()
    verdicts: Mapping[str, int] | None = None

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
        far, near = self.count - self.near, self.near
        return (
            f"log p within {self.log_prob:.1e}; decisions that differ: {self.differ_far:,} of "
            f"{far:,}, within the margin {self.differ_near:,} of {near:,}"
        )

    @property
    def words(self) -> str:
        """How many inputs have each verdict."""
        return ", ".join(f"{name} {count:,}" for name, count in (self.verdicts or {}).items())


def check_parity(deployed: Deployed, run: Runner, x: Tensor) -> Parity:
    """Compare a graph with the model on inputs.

    Args:
        deployed: what the graph was made of.
        run: the graph.
        x: (N, ...) raw inputs, N ≥ 1.
    """
    belief = deployed.model.predict(x)
    truth = {name: each.numpy() for name, each in deployed.expected(belief).items()}
    found = run(x)
    policy = deployed.policy
    differ = found["label"] != truth["label"]
    if policy is not None:
        differ |= found["decision"] != truth["decision"]
    near = within_margin(belief, policy)
    return Parity(
        count=len(x),
        log_prob=_log_difference(truth["probs"], found["probs"]),
        near=int(near.sum()),
        differ_near=int((differ & near).sum()),
        differ_far=int((differ & ~near).sum()),
        p_value=None if policy is None else _largest(truth["p_value"], found["p_value"]),
        lost=tuple(name for name in truth if _is_lost(truth[name], found[name])),
        verdicts=None if policy is None else _verdicts(truth["decision"]),
    )


def within_margin(belief: Belief, policy: Policy | None) -> Bools:
    """(N,) whether a change by 1e-4 could turn the decision on an input."""
    top = belief.log_probs().topk(2, dim=1)
    near: Bools = (top.values[:, 0] - top.values[:, 1]).numpy() <= 2 * TOLERANCE
    if policy is None:
        return near
    labels = top.indices[:, 0].numpy()
    edges = np.array([threshold_of(group, policy.level).value for group in policy.reference.groups])
    edge = edges[labels] if len(edges) > 1 else np.full(len(labels), edges[0])
    score = score_of(belief, policy.score).numpy()
    doubt = score_of(belief, policy.doubt).numpy()
    near |= _is_near(score, edge, policy.score)
    near |= _is_near(doubt, np.full(len(doubt), policy.threshold), policy.doubt)
    return near


def onnx_runner(data: bytes, batch: int = _BATCH) -> Runner:
    """A graph in onnxruntime, on the CPU.

    Args:
        data: an ONNX model.
        batch: inputs of a run.
    """
    runtime: Any = require("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    (given,) = (each.name for each in session.get_inputs())

    def run(x: Tensor) -> Arrays:
        parts = [session.run(names, {given: each.numpy()}) for each in torch.split(x, batch)]
        return {name: np.concatenate(each) for name, *each in zip(names, *parts, strict=True)}

    return run


def program_runner(program: ExportedProgram, batch: int = _BATCH) -> Runner:
    """A program of torch.export.

    Args:
        program: as `to_program` or `torch.export.load` gives it.
        batch: inputs of a run.
    """
    module = program.module()

    def run(x: Tensor) -> Arrays:
        with torch.no_grad():
            parts = [module(each) for each in torch.split(x, batch)]
        return {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}

    return run


def _is_near(values: Floats, edge: Floats, score: str) -> Bools:
    size = np.abs(edge)
    if score in LOGARITHMIC:
        size = np.maximum(size, 1.0)
    finite = np.isfinite(edge)
    apart = np.abs(values - np.where(finite, edge, 0.0))
    near: Bools = finite & (apart <= TOLERANCE * np.where(finite, size, 0.0))
    return near


def _log_difference(truth: Floats, found: Floats) -> float:
    if found.shape != truth.shape:
        raise InputError(f"expected probabilities of shape {truth.shape}, got {found.shape}")
    counts = (truth > SEEN) | (found > SEEN)
    logs = [np.log(np.where(counts, np.maximum(each, 1e-300), 1.0)) for each in (truth, found)]
    return _largest(*logs)


def _largest(one: Floats, other: Floats) -> float:
    return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max())


def _is_lost(truth: npt.NDArray[Any], found: npt.NDArray[Any]) -> bool:
    return bool((np.isnan(found) & ~np.isnan(truth)).any())


def _verdicts(values: npt.NDArray[Any]) -> dict[str, int]:
    return {str(each): int((values == each).sum()) for each in Verdict}
