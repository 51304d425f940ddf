"""P-values and levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gemfi.decisions.conformal import Reference, Threshold, least_samples
from gemfi.errors import InputError


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
