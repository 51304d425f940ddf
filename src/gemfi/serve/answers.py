"""What a model thinks of inputs as plain values for JSON: nothing in them is NaN or infinite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gemfi import dirichlet
from gemfi.belief import Belief
from gemfi.decisions import Decisions
from gemfi.scores import score_of, uncertainty

Plain = dict[str, Any]
_PARTS = ("total", "aleatoric", "within", "between")


def predictions(
    belief: Belief,
    class_names: Sequence[str],
    scores: Sequence[str],
    decisions: Decisions | None = None,
    doubt: npt.NDArray[np.float64] | None = None,
) -> list[Plain]:
    """What is told of each input of a belief.

    Args:
        belief: as `model.predict` returns it.
        class_names: of the classes.
        scores: names of the scores to tell, which the belief has.
        decisions: on the same inputs; None without a policy.
        doubt: (N,) that they were made by.
    """
    log_probs = belief.log_probs()
    split = uncertainty(belief)
    parts = np.stack([_array(getattr(split, name)) for name in _PARTS], axis=1)
    values = np.stack([_array(score_of(belief, name)) for name in scores], axis=1)
    nothing = [None] * len(belief)
    rows = zip(
        log_probs.argmax(dim=1).tolist(),
        finite(_array(log_probs.exp())),
        nothing if decisions is None else decisions.names(),
        nothing if decisions is None else finite(decisions.p_value),
        nothing if doubt is None else finite(doubt),
        finite(parts),
        finite(values),
        strict=True,
    )
    return [
        {
            "label": class_names[label],
            "index": label,
            "confidence": row[label],
            "decision": decision,
            "p_value": p_value,
            "doubt": doubtful,
            "probs": row,
            "uncertainty": dict(zip(_PARTS, split_row, strict=True)),
            "scores": dict(zip(scores, score_row, strict=True)),
            "detail": None,
        }
        for label, row, decision, p_value, doubtful, split_row, score_row in rows
    ]


def details(belief: Belief, seen: npt.NDArray[Any] | None) -> list[Plain]:
    """The heads, the gate, the evidence and the input behind each prediction.

    Args:
        belief: as `model.predict` returns it.
        seen: (N, C, H, W) bytes of the images that the model saw; None if they are none.
    """
    count = len(belief)
    columns = {
        "heads": _heads(belief),
        "gate": _gate(belief),
        "energy": _column(belief.energy, count),
        "rho": _column(None if belief.log_rho is None else belief.log_rho.exp(), count),
        "log_density": _column(belief.log_density, count),
        "alpha": _alpha(belief),
        "input": [None] * count if seen is None else seen.tolist(),
    }
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def finite(values: npt.NDArray[np.float64]) -> list[Any]:
    """An array as nested lists, with None for what is not finite."""
    listed: list[Any]
    if np.isfinite(values).all():
        listed = values.tolist()
        return listed
    holes = values.astype(object)
    holes[~np.isfinite(values)] = None
    listed = holes.tolist()
    return listed


def _array(values: Tensor) -> npt.NDArray[np.float64]:
    return values.numpy(force=True).astype(np.float64, copy=False)


def _column(values: Tensor | None, count: int) -> list[Any]:
    return [None] * count if values is None else finite(_array(values))


def _heads(belief: Belief) -> list[list[Plain]]:
    """Weight, evidence and opinion of each component, before the gate."""
    weights = finite(_array(belief.log_weight.exp()))
    opinions = finite(_array(belief.log_p.exp()))
    if belief.log_evidence is None:
        amounts: list[Any] = [[None] * len(row) for row in weights]
    else:
        amounts = finite(_array(belief.log_evidence.exp()))
    return [
        [
            {"weight": weight, "evidence": amount, "probs": opinion}
            for weight, amount, opinion in zip(*row, strict=True)
        ]
        for row in zip(weights, amounts, opinions, strict=True)
    ]


def _gate(belief: Belief) -> list[Any]:
    """The gate of each class, or one number where all classes share it.

    One that acts on the evidence is part of it already, and kept beside to be looked at.
    """
    log_gate = belief.extra.get("log_gate") if belief.log_gate is None else belief.log_gate
    if log_gate is None:
        return [None] * len(belief)
    gate = _array(log_gate.exp())
    return finite(gate[:, :1] if (gate == gate[:, :1]).all() else gate)


def _alpha(belief: Belief) -> list[Any]:
    """ρ·Σ_k π_k α_k of each class."""
    if belief.log_evidence is None:
        return [None] * len(belief)
    log_alpha = dirichlet.log_concentration(belief.log_p, belief.log_evidence)
    total = dirichlet.log_mixture(log_alpha, belief.log_weight)
    if belief.log_rho is not None:
        total = total + belief.log_rho.unsqueeze(-1)
    return finite(_array(total.exp()))
