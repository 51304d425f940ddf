"""Thresholds of doubt."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gemfi import InputError
from gemfi.decisions.selection import (
    Threshold,
    risk_bound,
    samples_for_risk,
    threshold_for_coverage,
    threshold_for_risk,
)


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    for errors, accepted in ((0, 50), (3, 200), (49, 50)):
        found = risk_bound(Threshold(0.5, accepted, accepted, errors), 0.1)
        expected = stats.binomtest(errors, accepted).proportion_ci(0.8, "exact").high
        assert found == pytest.approx(expected)
    assert risk_bound(Threshold(0.5, 7, 7, 7), 0.1) == 1.0


def test_as_many_samples_as_the_power_says() -> None:
    needed = samples_for_risk(0.02, 0.1)
    assert 0.98**needed <= 0.1 < 0.98 ** (needed - 1)


def test_without_errors_everything_is_accepted() -> None:
    doubt = np.linspace(0, 1, 300)
    found = threshold_for_risk(*[(doubt, np.zeros(300, bool))] * 2, 0.02, 0.1)
    assert found == Threshold(np.inf, 300, 300, 0)


def test_the_walk_ends_before_the_errors_are_too_many() -> None:
    doubt = np.linspace(0, 1, 1000)
    wrong = doubt > 0.7
    found = threshold_for_risk((doubt, wrong), (doubt, wrong), 0.05, 0.1)
    assert 0.7 < found.value < 0.75
    assert stats.binom.cdf(found.errors, found.accepted, 0.05) <= 0.1
    later = int((doubt <= found.value + 0.01).sum())
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
        found = threshold_for_coverage(doubt, np.zeros(29, bool), 0.9)
        assert found.value == np.sort(doubt)[26]
        shares.append(found.value)  # of uniform doubts, the share that is accepted
    assert np.mean(shares) == pytest.approx(0.9, abs=0.004)


def test_a_coverage_says_how_many_samples_it_needs() -> None:
    doubt = np.linspace(0, 1, 18)
    with pytest.raises(InputError, match=r"coverage of 0.95 needs at least 19 .* there are 18"):
        threshold_for_coverage(doubt, np.zeros(18, bool), 0.95)
    assert threshold_for_coverage(np.linspace(0, 1, 19), np.zeros(19, bool), 0.95).value == 1.0
