"""What a model answers about inputs: one form for files, the server and the estimator.

`Answers` are columns, for tables. `Answers.records` are the same as one record an input, for JSON;
the server's OpenAPI document is generated from these records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gemfi import dirichlet, scores
from gemfi.belief import Belief
from gemfi.decisions import Decisions, Policy, read_belief

Floats = npt.NDArray[np.float64]
Table = dict[str, Sequence[str] | Floats]

_PARTS = ("total", "aleatoric", "within", "between")


def uncertainty_columns(belief: Belief) -> dict[str, Floats]:
    """The parts of the entropy, and every score that a belief allows, by name."""
    split = scores.uncertainty(belief)
    parts = {name: _array(getattr(split, name)) for name in (*_PARTS, "epistemic")}
    return parts | _score_columns(belief, scores.available(belief))


def _score_columns(belief: Belief, names: Iterable[str]) -> dict[str, Floats]:
    return {name: _array(scores.score_of(belief, name)) for name in names}


@dataclass(frozen=True, eq=False)
class Answers:
    """What is answered about N inputs; verdicts and doubt are None without a policy."""

    belief: Belief
    class_names: Sequence[str]
    probs: Floats  # (N, C)
    index: npt.NDArray[np.int64]  # (N,) the most probable classes
    scores: dict[str, Floats]  # name -> (N,), higher is more uncertain
    decisions: Decisions | None = None
    doubt: Floats | None = None  # (N,) the score by which the policy abstains

    @classmethod
    def of(
        cls,
        belief: Belief,
        class_names: Sequence[str],
        score_names: Iterable[str],
        policy: Policy | None = None,
        levels: Floats | None = None,
    ) -> Answers:
        """The answers that a belief gives; it must have the scores.

        `levels` (N,) are false-alarm rates in place of the policy's own, which NaN keeps.
        """
        log_probs = belief.log_probs()
        index = log_probs.argmax(dim=1).numpy(force=True)
        columns = _score_columns(belief, score_names)
        answers = cls(belief, class_names, _array(log_probs.exp()), index, columns)
        if policy is None:
            return answers
        readings = read_belief(belief, policy.score, policy.doubt)
        decisions = policy.decide(readings)
        for level in () if levels is None else np.unique(levels[~np.isnan(levels)]):
            verdict = replace(policy, level=float(level)).decide(readings).verdict
            decisions.verdict[levels == level] = verdict[levels == level]
        return replace(answers, decisions=decisions, doubt=readings.doubt)

    def columns(self, *, probs: bool = False) -> Table:
        """Columns of a table by name; `probs` adds one for each class."""
        labels = [self.class_names[index] for index in self.index]
        confidence = np.take_along_axis(self.probs, self.index[:, None], axis=1)[:, 0]
        columns: Table = {"label": labels, "confidence": confidence}
        if self.decisions is not None:
            columns |= {"verdict": self.decisions.names(), "p_value": self.decisions.p_value}
        columns |= self.scores
        if probs:
            names = [f"prob_{name}" for name in self.class_names]
            columns |= dict(zip(names, self.probs.T, strict=True))
        return columns

    def records(self) -> list[Prediction]:
        """One record an input, without detail."""
        count, columns = len(self.index), self.columns()
        split = scores.uncertainty(self.belief)
        parts = np.stack([_array(getattr(split, name)) for name in _PARTS], axis=1)
        values = np.reshape([*self.scores.values()], (len(self.scores), count)).T
        rows = zip(
            columns["label"],
            self.index.tolist(),
            _list(columns["confidence"], count),
            columns.get("verdict", [None] * count),
            _list(columns.get("p_value"), count),
            _list(self.doubt, count),
            self.probs.tolist(),
            (Uncertainty(*row) for row in parts.tolist()),
            (dict(zip(self.scores, row, strict=True)) for row in values.tolist()),
            [None] * count,
            strict=True,
        )
        return [Prediction(*row) for row in rows]


# -- records of one input --------------------------------------------------------------------------
# Numbers that are not finite become null in JSON, hence `float | None`.


class _Record:
    """A record that pydantic describes by its docstrings, and that refuses unknown fields."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "use_attribute_docstrings": True}


@dataclass
class Uncertainty(_Record):
    """The entropy of the answer, split into parts that sum to it (nats)."""

    total: float | None
    aleatoric: float | None
    """What more data would not remove."""
    within: float | None
    """The doubt of each head about itself."""
    between: float | None
    """Disagreement of the heads."""


@dataclass
class Component(_Record):
    """One component of the mixture, before the gate."""

    weight: float | None
    evidence: float | None
    """Total concentration; null where there is none."""
    probs: list[float | None]


@dataclass
class Detail(_Record):
    """What is behind a prediction; null for what the method does not have."""

    heads: list[Component]
    gate: list[float | None] | None
    """One a class, or one for all."""
    energy: float | None
    rho: float | None
    log_density: float | None
    alpha: list[float | None] | None
    """Concentration of each class, with rho."""
    input: list[list[list[int]]] | None
    """Of images: the bytes (C, H, W) that the model saw."""


@dataclass
class Prediction(_Record):
    """What the model thinks of one input."""

    label: str
    index: int
    confidence: float
    decision: Literal["accept", "abstain", "unfamiliar"] | None
    """null without a policy."""
    p_value: float | None
    """Conformal p-value of 'this input is like the calibration data'."""
    doubt: float | None
    probs: list[float]
    uncertainty: Uncertainty
    scores: dict[str, float | None]
    """Higher is more uncertain."""
    detail: Detail | None


def details(belief: Belief, images: npt.NDArray[np.uint8] | None) -> list[Detail]:
    """What is behind each prediction; `images` (N, C, H, W) are the bytes that the model saw."""
    count = len(belief)
    columns = (belief.energy, _exp(belief.log_rho), belief.log_density, _alpha(belief), images)
    energy, rho, log_density, alpha, inputs = (_list(values, count) for values in columns)
    rows = zip(
        _components(belief), _gate(belief), energy, rho, log_density, alpha, inputs, strict=True
    )
    return [Detail(*row) for row in rows]


def _components(belief: Belief) -> list[list[Component]]:
    weights, probs = belief.log_weight.exp(), belief.log_p.exp()
    evidence = _exp(belief.log_evidence)
    rows = zip(
        weights.tolist(),
        [[None] * weights.shape[1]] * len(weights) if evidence is None else evidence.tolist(),
        probs.tolist(),
        strict=True,
    )
    return [[Component(*cells) for cells in zip(*row, strict=True)] for row in rows]


def _gate(belief: Belief) -> list[Any]:
    """The gate of each class, or one number where all classes share it."""
    gate = _exp(belief.log_gate)
    if gate is not None and bool((gate == gate[:, :1]).all()):
        gate = gate[:, :1]
    return _list(gate, len(belief))


def _alpha(belief: Belief) -> Tensor | None:
    """ρ·Σ_k π_k α_k of each class."""
    if belief.log_evidence is None:
        return None
    log_alpha = dirichlet.log_concentration(belief.log_p, belief.log_evidence)
    total = dirichlet.log_mixture(log_alpha, belief.log_weight)
    return (total if belief.log_rho is None else total + belief.log_rho.unsqueeze(-1)).exp()


def _exp(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.exp()


def _array(values: Tensor) -> Floats:
    return values.numpy(force=True).astype(np.float64, copy=False)


def _list(values: Any, count: int) -> list[Any]:
    """The rows of a tensor or an array; `count` times None for None."""
    rows: list[Any] = [None] * count if values is None else values.tolist()
    return rows
