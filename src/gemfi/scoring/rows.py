"""What is written of each input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gemfi.belief import Belief
from gemfi.decisions import Decisions, Policy
from gemfi.scores import MAIN, SCORES, available

Column = tuple[str, type]

WRITTEN: Final = tuple(name for name in MAIN if name != "max_prob")  # the confidence tells it
"""Scores that have a column, where the method has them; higher is more uncertain."""


def columns_of(
    belief: Belief, class_names: Sequence[str], *, policy: Policy | None, probs: bool
) -> list[Column]:
    """Names and types of the columns.

    Args:
        belief: of the model on any input.
        class_names: of the classes.
        policy: adds verdict and p-value.
        probs: add the probability of each class.
    """
    found: list[Column] = [("input", str), ("label", str), ("confidence", float)]
    if policy is not None:
        found += [("verdict", str), ("p_value", float)]
    found += [(name, float) for name in WRITTEN if name in available(belief)]
    if probs:
        found += [(f"prob_{name}", float) for name in class_names]
    return [*found, ("error", str)]


def rows_of(
    names: Sequence[str],
    errors: dict[int, str],
    belief: Belief,
    class_names: Sequence[str],
    *,
    decisions: Decisions | None,
    probs: bool,
) -> list[list[Any]]:
    """A row for each input in the order of `columns_of`, None for what an error left unknown.

    Args:
        names: of the inputs.
        errors: position -> why the input could not be read.
        belief: on the inputs.
        class_names: of the classes.
        decisions: on the inputs, with a policy.
        probs: whether the probability of each class is told.
    """
    probabilities = belief.probs()
    confidence, labels = probabilities.max(dim=1)
    table: list[Sequence[Any]] = [[class_names[label] for label in labels.tolist()]]
    table.append(_rounded(confidence.numpy(force=True)))
    if decisions is not None:
        table += [decisions.names(), _rounded(decisions.p_value)]
    for name in WRITTEN:
        if name in available(belief):
            table.append(_rounded(SCORES[name](belief).numpy(force=True)))
    if probs:
        table += [_rounded(each) for each in probabilities.numpy(force=True).T]
    rows = [[name, *values, ""] for name, *values in zip(names, *table, strict=True)]
    for row, error in errors.items():
        rows[row] = [names[row], *[None] * (len(rows[row]) - 2), error]
    return rows


def _rounded(values: Any) -> list[float]:
    """Seven digits: what float32 holds, and files half the size."""
    return [float(f"{value:.7g}") for value in np.asarray(values, np.float64).tolist()]
