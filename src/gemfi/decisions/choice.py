"""Levels that are chosen with OOD-validation data: by Youden's J, or by expected cost."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gemfi.decisions.goal import Costs

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LEVELS, _DOUBTS = 400, 400  # that are tried, at most


def youden_level(known: Floats, unfamiliar: Floats) -> float:
    """The level α that maximises P(p ≤ α | unfamiliar) − P(p ≤ α | known); the least of several.

    Args:
        known: p-values of calibration data.
        unfamiliar: p-values of OOD-validation data.
    """
    levels = np.unique(np.concatenate([known, unfamiliar]))
    found = _share(unfamiliar, levels) - _share(known, levels)
    return float(levels[int(found.argmax())])


def cheapest(
    costs: Costs,
    known: tuple[Floats, Floats, Bools],
    unfamiliar: tuple[Floats, Floats],
) -> tuple[float, float]:
    """The level and the threshold of doubt of the least expected cost.

    Args:
        costs: of the mistakes.
        known: p-values, doubts, and whether the label is wrong, of calibration data.
        unfamiliar: p-values and doubts of OOD-validation data.
    """
    levels = _thinned(np.append(known[0], unfamiliar[0]), _LEVELS)
    doubts = np.append(_thinned(np.append(known[1], unfamiliar[1]), _DOUBTS), [-math.inf, math.inf])
    best, chosen = math.inf, (0.0, math.inf)
    for level in np.append(0.0, levels):
        expected = _costs(costs, known, unfamiliar, float(level), doubts)
        least = int(expected.argmin())
        if expected[least] < best - 1e-12:
            best, chosen = float(expected[least]), (float(level), float(doubts[least]))
    return chosen


def expected_cost(
    costs: Costs,
    known: tuple[Floats, Floats, Bools],
    unfamiliar: tuple[Floats, Floats],
    level: float,
    doubt: float,
) -> float:
    """The mean cost of an input under a level and a threshold of doubt."""
    return float(_costs(costs, known, unfamiliar, level, np.array([doubt]))[0])


def _costs(
    costs: Costs,
    known: tuple[Floats, Floats, Bools],
    unfamiliar: tuple[Floats, Floats],
    level: float,
    doubts: Floats,
) -> Floats:
    """Expected costs (T,) of thresholds of doubt (T,) at one level."""
    p, doubt, wrong = known
    familiar = p > level
    accepted = _share(doubt[familiar], doubts) * familiar.mean() if familiar.any() else 0.0
    failed = _share(doubt[familiar & wrong], doubts) * (familiar & wrong).mean()
    inside = costs.error * failed + costs.abstain * (1 - accepted)
    missed = unfamiliar[0] > level
    taken = _share(unfamiliar[1][missed], doubts) * missed.mean()
    outside = costs.unfamiliar * taken + costs.abstain * (missed.mean() - taken)
    result: Floats = (1 - costs.prevalence) * inside + costs.prevalence * outside
    return result


def _share(values: Floats, limits: Floats) -> Floats:
    """For each limit the share of the values that do not exceed it; 0 of none."""
    if len(values) == 0:
        return np.zeros(len(limits))
    return np.searchsorted(np.sort(values), limits, side="right") / len(values)


def _thinned(values: Floats, most: int) -> Floats:
    distinct = np.unique(values)
    if len(distinct) <= most:
        return distinct
    return np.unique(np.quantile(distinct, np.linspace(0, 1, most), method="nearest"))
