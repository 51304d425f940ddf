"""Thresholds of doubt."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gemfi.decisions.selection import (
    samples_for_risk,
    threshold_for_coverage,
    threshold_for_risk,
)
from gemfi.errors import InputError


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
