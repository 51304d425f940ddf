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
    return parts | score_columns(belief, scores.available(belief))


def score_columns(belief: Belief, names: Iterable[str]) -> dict[str, Floats]:
    """Scores by name, those of detectors included."""
    return {name: _array(scores.score_of(belief, name)) for name in names}


@dataclass(frozen=True, eq=False)
class Answers:
    """What is answered about N inputs.

    Attributes:
        belief: the model's, as `model.predict` returns it.
        class_names: names of its C classes.
        probs: (N, C) class probabilities.
        index: (N,) the most probable classes.
        scores: name -> (N,) values; higher is more uncertain.
        decisions: verdicts and p-values; None without a policy.
        doubt: (N,) the score by which the policy abstains; None without a policy.
    """

    belief: Belief
    class_names: Sequence[str]
    probs: Floats
    index: npt.NDArray[np.int64]
    scores: dict[str, Floats]
    decisions: Decisions | None = None
    doubt: Floats | None = None

    @classmethod
    def of(
        cls,
        belief: Belief,
        class_names: Sequence[str],
        score_names: Iterable[str],
        policy: Policy | None = None,
        levels: Floats | None = None,
    ) -> Answers:
        """The answers that a belief gives.

        Args:
            belief: as `model.predict` returns it.
            class_names: names of its classes.
            score_names: scores to tell, which the belief has.
            policy: makes the decisions; None for none.
            levels: (N,) false-alarm rates in place of the policy's own, which NaN keeps.
        """
        log_probs = belief.log_probs()
        index = log_probs.argmax(dim=1).numpy(force=True)
        columns = score_columns(belief, score_names)
        answers = cls(belief, class_names, _array(log_probs.exp()), index, columns)
        if policy is None:
            return answers
        readings = read_belief(belief, policy.score, policy.doubt)
        decisions = policy.decide(readings)
        for level in () if levels is None else np.unique(levels[~np.isnan(levels)]):
            verdict = replace(policy, level=float(level)).decide(readings).verdict
            decisions.verdict[levels == level] = verdict[levels == level]
        return replace(answers, decisions=decisions, doubt=readings.doubt)

    @property
    def labels(self) -> list[str]:
        """Name of the most probable class of each input."""
        return [self.class_names[index] for index in self.index]

    @property
    def confidence(self) -> Floats:
        """(N,) probabilities of the most probable classes."""
        top: Floats = np.take_along_axis(self.probs, self.index[:, None], axis=1)[:, 0]
        return top

    def columns(self, *, probs: bool = False) -> Table:
        """Columns of a table by name; `probs` adds one for each class."""
        columns: Table = {"label": self.labels, "confidence": self.confidence}
        if self.decisions is not None:
            columns |= {"verdict": self.decisions.names(), "p_value": self.decisions.p_value}
        columns |= self.scores
        if probs:
            names = [f"prob_{name}" for name in self.class_names]
            columns |= dict(zip(names, self.probs.T, strict=True))
        return columns

    def records(self) -> list[Prediction]:
        """One record an input, without detail."""
        split = scores.uncertainty(self.belief)
        parts = np.stack([_array(getattr(split, name)) for name in _PARTS], axis=1).tolist()
        nothing: list[Any] = [None] * len(self.index)
        rows = zip(
            self.labels,
            self.index.tolist(),
            self.confidence.tolist(),
            nothing if self.decisions is None else self.decisions.names(),
            nothing if self.decisions is None else self.decisions.p_value.tolist(),
            nothing if self.doubt is None else self.doubt.tolist(),
            self.probs.tolist(),
            (Uncertainty(*row) for row in parts),
            _records_of_columns(self.scores, len(self.index)),
            nothing,
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
    """The heads, the gate, the evidence and the input behind each prediction.

    Args:
        belief: as `model.predict` returns it.
        images: (N, C, H, W) bytes that the model saw; None if inputs are not images.
    """
    nothing: list[Any] = [None] * len(belief)
    rho = None if belief.log_rho is None else belief.log_rho.exp()
    energy, rho_column, log_density = (
        nothing if column is None else _array(column).tolist()
        for column in (belief.energy, rho, belief.log_density)
    )
    rows = zip(
        _components(belief),
        _gate(belief),
        energy,
        rho_column,
        log_density,
        _alpha(belief),
        nothing if images is None else images.tolist(),
        strict=True,
    )
    return [Detail(*row) for row in rows]


def _components(belief: Belief) -> list[list[Component]]:
    weights, probs = _array(belief.log_weight.exp()), _array(belief.log_p.exp())
    if belief.log_evidence is None:
        evidence: list[Any] = [[None] * weights.shape[1]] * len(weights)
    else:
        evidence = _array(belief.log_evidence.exp()).tolist()
    return [
        [Component(*component) for component in zip(*row, strict=True)]
        for row in zip(weights.tolist(), evidence, probs.tolist(), strict=True)
    ]


def _gate(belief: Belief) -> list[Any]:
    """The gate of each class, or one number where all classes share it."""
    if belief.log_gate is None:
        return [None] * len(belief)
    gate = _array(belief.log_gate.exp())
    rows: list[Any] = (gate[:, :1] if (gate == gate[:, :1]).all() else gate).tolist()
    return rows


def _alpha(belief: Belief) -> list[Any]:
    """ρ·Σ_k π_k α_k of each class."""
    if belief.log_evidence is None:
        return [None] * len(belief)
    log_alpha = dirichlet.log_concentration(belief.log_p, belief.log_evidence)
    total = dirichlet.log_mixture(log_alpha, belief.log_weight)
    if belief.log_rho is not None:
        total = total + belief.log_rho.unsqueeze(-1)
    rows: list[Any] = _array(total.exp()).tolist()
    return rows


def _records_of_columns(columns: dict[str, Floats], count: int) -> list[dict[str, Any]]:
    if not columns:
        return [{} for _ in range(count)]
    rows = np.stack(list(columns.values()), axis=1).tolist()
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _array(values: Tensor) -> Floats:
    return values.numpy(force=True).astype(np.float64, copy=False)
