"""Levels that OOD-validation data choose."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gemfi.decisions.choice import cheapest, expected_cost, youden_level
from gemfi.decisions.goal import Costs


def slow_cost(
    costs: Costs, known: tuple, unfamiliar: tuple, level: float, threshold: float
) -> float:
    """The table of costs, an input at a time."""
    inside, outside = [], []
    for p, doubt, wrong in zip(*known, strict=True):
        accepted = p > level and doubt <= threshold
        inside.append((costs.error if wrong else 0) if accepted else costs.abstain)
    for p, doubt in zip(*unfamiliar, strict=True):
        if p <= level:
            outside.append(0.0)
        else:
            outside.append(costs.unfamiliar if doubt <= threshold else costs.abstain)
    return (1 - costs.prevalence) * np.mean(inside) + costs.prevalence * np.mean(outside)


@pytest.fixture
def data() -> tuple[tuple, tuple]:
    rng = np.random.default_rng(3)
    known = rng.uniform(size=30), rng.uniform(size=30), rng.uniform(size=30) < 0.3
    return known, (rng.uniform(size=20) ** 3, rng.uniform(size=20))


COSTS = [
    Costs(1, 5, 0.1, 0.2),
    Costs(1, 1, 0.02, 0.5),
    Costs(1, 1, 2, 0.1),
    Costs(0, 3, 0.5, 0.3),
]


@pytest.mark.parametrize("costs", COSTS)
def test_the_cheapest_is_the_least_of_all(costs: Costs, data: tuple) -> None:
    known, unfamiliar = data
    level, threshold = cheapest(costs, known, unfamiliar)
    found = expected_cost(costs, known, unfamiliar, level, threshold)
    assert found == pytest.approx(slow_cost(costs, known, unfamiliar, level, threshold))
    levels = [0.0, *known[0], *unfamiliar[0]]
    thresholds = [-np.inf, np.inf, *known[1], *unfamiliar[1]]
    least = min(
        slow_cost(costs, known, unfamiliar, *each) for each in itertools.product(levels, thresholds)
    )
    assert found == pytest.approx(least)


def test_abstaining_for_nothing_accepts_nothing_doubtful(data: tuple) -> None:
    level, threshold = cheapest(Costs(1, 1, 0.0, 0.1), *data)
    known, unfamiliar = data
    assert expected_cost(Costs(1, 1, 0.0, 0.1), known, unfamiliar, level, threshold) == 0.0


def test_youden_is_the_largest_gap() -> None:
    rng = np.random.default_rng(0)
    known, unfamiliar = rng.uniform(size=200), rng.uniform(size=150) ** 4
    level = youden_level(known, unfamiliar)

    def gap(at: float) -> float:
        return float((unfamiliar <= at).mean() - (known <= at).mean())

    assert gap(level) == max(gap(each) for each in [*known, *unfamiliar])
