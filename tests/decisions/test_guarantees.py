"""P-values and levels, thresholds of doubt, and levels that OOD-validation data choose."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gemfi.decisions import Costs
from gemfi.decisions.guarantees import (
    Reference,
    Threshold,
    Trial,
    least_samples,
    samples_for_risk,
    threshold_for_coverage,
    threshold_for_risk,
)
from gemfi.errors import InputError

# ---------------------------------------------------------------- p-values


def slow_p_value(reference: np.ndarray, score: float) -> float:
    """Rank by counting, the input itself included."""
    everyone = [*reference, score]
    return sum(each >= score for each in everyone) / len(everyone)


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=12),
    st.lists(st.integers(-4, 4), min_size=1, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_p_values_are_ranks_with_ties(reference: list[int], scores: list[int]) -> None:
    values = np.array(reference, dtype=float)
    found = Reference.of(values).p_values(np.array(scores, dtype=float), np.zeros(len(scores), int))
    assert found.tolist() == pytest.approx([slow_p_value(values, each) for each in scores])


def test_infinite_scores_have_the_extreme_ranks() -> None:
    found = Reference.of(np.array([0.0, 1.0, np.inf])).p_values(
        np.array([-np.inf, np.inf]), np.zeros(2, int)
    )
    assert found.tolist() == [1.0, 0.5]


def test_p_values_of_exchangeable_inputs_are_uniform() -> None:
    rng = np.random.default_rng(0)
    found = [
        Reference.of(rng.normal(size=19)).p_values(rng.normal(size=1), np.zeros(1, int))[0]
        for _ in range(4000)
    ]
    counts = np.bincount(np.round(np.array(found) * 20).astype(int), minlength=21)[1:]
    assert stats.chisquare(counts).pvalue > 0.01


def test_groups_have_references_of_their_own() -> None:
    scores, labels = np.array([1.0, 2.0, 30.0, 40.0]), np.array([0, 0, 1, 1])
    reference = Reference.of(scores, labels, 3)
    assert reference.is_conditional
    found = reference.p_values(np.array([3.0, 3.0, 3.0]), np.array([0, 1, 2]))
    assert found.tolist() == [1 / 3, 1.0, 1.0]  # no sample of class 2: nothing speaks against it


def test_a_level_says_how_many_samples_it_needs() -> None:
    assert least_samples(0.05) == 19
    assert least_samples(0.001) == 999
    reference = Reference.of(np.arange(19.0))
    reference.require_level(0.05)
    with pytest.raises(InputError, match=r"0.04 needs 24 or more .* there are 19.* 0.05 or more"):
        reference.require_level(0.04)
    with pytest.raises(
        InputError, match=r"needs 47 or more .*, 24 of them in the first of 2 stage"
    ):
        reference.require_level(0.04, stages=2)


def test_classes_with_too_few_samples_are_named() -> None:
    labels = np.repeat([0, 1, 2], [30, 5, 0])
    reference = Reference.of(np.arange(35.0), labels, 3)
    with pytest.raises(InputError, match=r"at least 19 calibration .*: horse, ship\. Give more"):
        reference.require_level(0.05, ("cat", "horse", "ship"))


@pytest.mark.parametrize("level", [0, 1, -0.1, float("nan")])
def test_levels_are_between_zero_and_one(level: float) -> None:
    with pytest.raises(InputError, match="false_alarm must be"):
        least_samples(level)


def test_nan_has_no_rank() -> None:
    with pytest.raises(InputError, match="number 1 is NaN"):
        Reference.of(np.array([0.0, np.nan]))
    with pytest.raises(InputError, match=r"shape \(N,\)"):
        Reference.of(np.zeros((2, 2)))


def test_the_interval_of_the_rate_is_where_rates_lie() -> None:
    rng = np.random.default_rng(1)
    low, high = Reference.of(np.arange(99.0)).rate_interval(0.05)
    rates = []
    for _ in range(3000):
        ordered = np.sort(rng.uniform(size=99))  # scores with a known distribution function
        rates.append(1 - ordered[-5])  # p <= 0.05: at least the fifth largest of 99
    inside = np.mean([(low <= rate <= high) for rate in rates])
    assert inside == pytest.approx(0.9, abs=0.02)
    assert np.mean(rates) == pytest.approx(0.05, abs=0.002)


def test_the_interval_of_groups_is_that_of_all_of_them() -> None:
    small, large = Reference.of(np.arange(19.0)), Reference.of(np.arange(499.0))
    both = Reference((*small.groups, *large.groups))
    ends = [each.rate_interval(0.1) for each in (small, large)]
    assert both.rate_interval(0.1) == (ends[0][0], ends[0][1])
    assert ends[0][0] < ends[1][0] < ends[1][1] < ends[0][1]


def test_the_interval_of_a_level_that_flags_everything_or_nothing() -> None:
    reference = Reference.of(np.arange(9.0))
    assert reference.rate_interval(1.0) == (1.0, 1.0)
    assert reference.rate_interval(0.05) == (0.0, 0.0)


@pytest.mark.parametrize("label", [-1, 2, 7])
def test_a_class_without_a_group_has_no_p_value(label: int) -> None:
    scores, labels = np.arange(4.0), np.array([0, 1, 0, 1])
    reference = Reference.of(scores, labels, 2)
    bad = np.array([1, label])
    with pytest.raises(InputError, match=f"class {label} of input 1 is not one of the 2 classes"):
        reference.p_values(scores[:2], bad)
    with pytest.raises(InputError, match=f"class {label} of input 1 is not one of the 2 classes"):
        Reference.of(scores[:2], bad, 2)


class TestThreshold:
    """What a score must exceed, and what ties take away from the level."""

    def test_without_ties_nothing_is_lost(self) -> None:
        reference = Reference.of(np.arange(99.0))
        found = reference.threshold(0.05)
        assert found == Threshold(94.0, 1 / 99, 4 / 99, 0.0)
        p = reference.p_values(np.array([94.0, 94.5]), np.zeros(2, int))
        assert (p <= 0.05).tolist() == [False, True]

    def test_ties_at_the_threshold_take_power(self) -> None:
        scores = np.append(np.zeros(60), np.ones(39))
        found = Reference.of(scores).threshold(0.05)
        assert found == Threshold(1.0, 39 / 99, 0.0, 4 / 5)
        few = Reference.of(np.append(np.zeros(96), [1.0, 2.0, 3.0])).threshold(0.05)
        assert (few.value, few.above, few.lost) == (0.0, 3 / 99, 1 / 5)

    def test_nothing_exceeds_infinity(self) -> None:
        scores = np.append(np.arange(90.0), np.full(9, np.inf))
        found = Reference.of(scores).threshold(0.05)
        assert (found.value, found.tied, found.lost) == (np.inf, 9 / 99, 1.0)
        assert Reference.of(scores).threshold(0.5).lost == 0.0

    def test_of_groups_the_worst_counts(self) -> None:
        scores = np.append(np.arange(99.0), np.ones(99))
        found = Reference.of(scores, np.repeat([0, 1], 99), 2).threshold(0.05)
        assert (found.value, found.tied) == (1.0, 1.0)


# ---------------------------------------------------------------- thresholds of doubt


def test_as_many_samples_as_the_power_says() -> None:
    needed = samples_for_risk(0.02, 0.1)
    assert 0.98**needed <= 0.1 < 0.98 ** (needed - 1)


def test_without_errors_everything_is_accepted() -> None:
    doubt = np.linspace(0, 1, 300)
    found = threshold_for_risk(*[(doubt, np.zeros(300, bool))] * 2, 0.02, 0.1)
    assert found == np.inf


def test_the_walk_ends_before_the_errors_are_too_many() -> None:
    doubt = np.linspace(0, 1, 1000)
    wrong = doubt > 0.7
    found = threshold_for_risk((doubt, wrong), (doubt, wrong), 0.05, 0.1)
    assert 0.7 < found < 0.75
    accepted = int((doubt <= found).sum())
    assert stats.binom.cdf(int(wrong[:accepted].sum()), accepted, 0.05) <= 0.1
    later = int((doubt <= found + 0.01).sum())
    assert stats.binom.cdf(int((doubt[:later] > 0.7).sum()), later, 0.05) > 0.1


def test_too_few_samples_are_an_error_with_their_number() -> None:
    doubt = np.linspace(0, 1, 100)
    with pytest.raises(InputError, match=r"at least 114 familiar calibration samples .* are 100"):
        threshold_for_risk(*[(doubt, np.zeros(100, bool))] * 2, 0.02, 0.1)


def test_a_risk_that_no_threshold_keeps_is_an_error() -> None:
    doubt = np.linspace(0, 1, 400)
    wrong = np.arange(400) % 5 == 0
    with pytest.raises(InputError, match=r"no threshold keeps the error rate at 0.05.*are wrong"):
        threshold_for_risk((doubt, wrong), (doubt, wrong), 0.05, 0.1)


def test_coverage_is_a_conformal_quantile() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(3000):
        doubt = rng.uniform(size=29)
        found = threshold_for_coverage(doubt, 0.9)
        assert found == np.sort(doubt)[26]
        shares.append(found)  # of uniform doubts, the share that is accepted
    assert np.mean(shares) == pytest.approx(0.9, abs=0.004)


def test_a_coverage_says_how_many_samples_it_needs() -> None:
    doubt = np.linspace(0, 1, 18)
    with pytest.raises(InputError, match=r"coverage of 0.95 needs at least 19 .* there are 18"):
        threshold_for_coverage(doubt, 0.95)
    assert threshold_for_coverage(np.linspace(0, 1, 19), 0.95) == 1.0


def test_the_walk_stops_at_the_first_threshold_that_fails() -> None:
    """The errors come in a lump, after which their share is small again: it is not crossed."""
    doubt = np.linspace(0, 1, 2000)
    right, lump = np.zeros(2000, bool), (doubt > 0.3) & (doubt < 0.34)
    assert threshold_for_risk((doubt, right), (doubt, right), 0.05, 0.1) == np.inf
    assert stats.binom.cdf(lump.sum(), 2000, 0.05) < 0.1  # all of them together would pass
    start = (doubt, doubt > 0.25)  # what proposes would begin before the lump
    assert threshold_for_risk(start, (doubt, lump), 0.05, 0.1) < 0.34


def test_ties_of_doubt_are_accepted_together() -> None:
    doubt = np.repeat([0.0, 1.0], 200)
    wrong = np.repeat([False, True], 200)
    assert threshold_for_risk((doubt, wrong), (doubt, wrong), 0.05, 0.1) == 0.0
    assert threshold_for_coverage(doubt, 0.4) == 0.0


def test_infinite_doubts_come_last() -> None:
    doubt = np.append(np.linspace(0, 1, 300), np.full(100, np.inf))
    wrong = np.isinf(doubt)
    assert 0.98 < threshold_for_risk((doubt, wrong), (doubt, wrong), 0.05, 0.1) <= 1.0


# ---------------------------------------------------------------- levels chosen on OOD data


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
