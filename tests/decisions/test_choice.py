"""Levels that OOD-validation data choose."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gemfi.decisions.choice import Trial
from gemfi.decisions.goal import Costs


def slow_cost(costs: Costs, trial: Trial, level: float, threshold: float) -> float:
    """The table of costs, an input at a time."""
    inside, outside = [], []
    for p, doubt, wrong in zip(trial.p, trial.doubt, trial.wrong, strict=True):
        accepted = p > level and doubt <= threshold
        inside.append((costs.error if wrong else 0) if accepted else costs.abstain)
    for p, doubt in zip(trial.ood_p, trial.ood_doubt, strict=True):
        if p <= level:
            outside.append(0.0)
        else:
            outside.append(costs.unfamiliar if doubt <= threshold else costs.abstain)
    return (1 - costs.prevalence) * np.mean(inside) + costs.prevalence * np.mean(outside)


def cost(costs: Costs, trial: Trial, level: float, threshold: float) -> float:
    return float(trial.expected_costs(costs, level, np.array([threshold]))[0])


@pytest.fixture
def trial() -> Trial:
    rng = np.random.default_rng(3)
    known = rng.uniform(size=30), rng.uniform(size=30), rng.uniform(size=30) < 0.3
    return Trial(*known, rng.uniform(size=20) ** 3, rng.uniform(size=20))


COSTS = [
    Costs(1, 5, 0.1, 0.2),
    Costs(1, 1, 0.02, 0.5),
    Costs(1, 1, 2, 0.1),
    Costs(0, 3, 0.5, 0.3),
]


@pytest.mark.parametrize("costs", COSTS)
def test_the_cheapest_is_the_least_of_all(costs: Costs, trial: Trial) -> None:
    level, threshold = trial.cheapest(costs)
    found = cost(costs, trial, level, threshold)
    assert found == pytest.approx(slow_cost(costs, trial, level, threshold))
    levels = [0.0, *trial.p, *trial.ood_p]
    thresholds = [-np.inf, np.inf, *trial.doubt, *trial.ood_doubt]
    least = min(slow_cost(costs, trial, *each) for each in itertools.product(levels, thresholds))
    assert found == pytest.approx(least)


def test_the_costs_of_a_level_at_which_nothing_is_familiar(trial: Trial) -> None:
    for level, threshold in ((1.0, np.inf), (0.0, -np.inf), (0.5, 0.5)):
        found = cost(COSTS[0], trial, level, threshold)
        assert found == pytest.approx(slow_cost(COSTS[0], trial, level, threshold))


def test_abstaining_for_nothing_accepts_nothing_doubtful(trial: Trial) -> None:
    free = Costs(1, 1, 0.0, 0.1)
    assert cost(free, trial, *trial.cheapest(free)) == 0.0


def test_many_inputs_are_thinned_and_cost_little_more() -> None:
    rng = np.random.default_rng(1)
    known = rng.uniform(size=3000), rng.uniform(size=3000), rng.uniform(size=3000) < 0.3
    many = Trial(*known, rng.uniform(size=900) ** 3, rng.uniform(size=900))
    found = cost(COSTS[0], many, *many.cheapest(COSTS[0]))
    doubts = np.append(np.unique(many.doubt), [-np.inf, np.inf])
    least = min(many.expected_costs(COSTS[0], level, doubts).min() for level in many.p[:300])
    assert found <= least + 1e-3


def test_youden_is_the_largest_gap_and_the_least_level_of_it() -> None:
    rng = np.random.default_rng(0)
    known, unfamiliar = rng.uniform(size=200).round(2), rng.uniform(size=150).round(2) ** 4
    nothing = np.empty(0)
    level = Trial(known, nothing, nothing.astype(bool), unfamiliar, nothing).youden_level()

    def gap(at: float) -> float:
        return float((unfamiliar <= at).mean() - (known <= at).mean())

    largest = max(gap(each) for each in [*known, *unfamiliar])
    assert gap(level) == largest
    assert level == min(each for each in [*known, *unfamiliar] if gap(each) == largest)
