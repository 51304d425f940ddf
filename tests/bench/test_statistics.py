"""Intervals against scipy, slow resampling and simulation; verdicts by their definition."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gemfi import metrics
from gemfi.errors import InputError
from gemfi.metrics import Floats
from gemfi_bench import statistics
from gemfi_bench.resampling import Draw, over_samples
from gemfi_bench.statistics import (
    Detection,
    Difference,
    Interval,
    alike,
    bootstrap_ood,
    mean_interval,
    paired_difference,
    resampler,
    spearman,
    verdict,
)

DETECTIONS: tuple[Detection, ...] = get_args(Detection)
SCORES = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=12)  # with many ties


def scores(seed: int, n: int = 40, shift: float = 0.0, decimals: int = 1) -> Floats:
    return np.round(np.random.default_rng(seed).normal(shift, 1.0, n), decimals)


# --- over seeds ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 11, 30, 31, 200, 2001])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99, 0.9999])
def test_the_interval_of_a_mean_is_students(n: int, level: float) -> None:
    values = np.random.default_rng(n).normal(90.0, 2.0, n)
    found = mean_interval(values.tolist(), level)
    low, high = stats.t.interval(level, n - 1, values.mean(), stats.sem(values))
    assert found.estimate == pytest.approx(values.mean(), abs=1e-12)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-10)


def test_equal_values_have_an_interval_without_width() -> None:
    assert mean_interval([2.0, 2.0, 2.0]) == Interval(2.0, 2.0, 2.0)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_interval_of_a_mean_covers_it_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(n)
    found = [mean_interval(rng.normal(1.0, 3.0, n).tolist()) for _ in range(2000)]
    covered = np.mean([one.low <= 1.0 <= one.high for one in found])
    assert 0.935 < covered < 0.965


def test_a_difference_is_paired_over_seeds() -> None:
    seeds = np.array([0.0, 10.0, 20.0, 30.0])  # runs of a seed share what the seed gives
    gain = np.array([1.0, 1.2, 0.9, 1.1])
    found = paired_difference((seeds + gain).tolist(), seeds.tolist())
    test = stats.ttest_rel(seeds + gain, seeds).confidence_interval(0.95)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((test.low, test.high))
    assert found.estimate == found.interval.estimate == pytest.approx(1.05)
    assert (found.n, found.few_seeds) == (4, False)
    assert found.interval.low > 0.8  # unpaired it would be some 20 wide


def test_two_seeds_are_few() -> None:
    assert not paired_difference([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]).few_seeds
    two = paired_difference([1.0, 2.0], [0.0, 0.0])
    assert two.few_seeds
    assert two.interval is not None


def test_one_seed_has_the_bootstraps_interval_or_none() -> None:
    assert paired_difference([3.0], [1.0]) == Difference(2.0, None, 1)
    bootstrap = Interval(1.5, 2.5, 2.0)
    one = paired_difference([3.0], [1.0], bootstrap=bootstrap)
    assert one == Difference(2.0, bootstrap, 1)
    more = paired_difference([3.0, 4.0], [1.0, 1.0], bootstrap=bootstrap)
    assert more.interval == mean_interval([2.0, 3.0])


def test_seeds_that_do_not_differ_are_no_interval() -> None:
    assert alike([97.0 - 95.0, 97.1 - 95.1])  # which are not the same float
    assert not alike([2.0, 2.0, 2.000001])
    found = paired_difference([3.0, 4.0, 5.0], [1.0, 2.0, 3.0])
    assert found == Difference(2.0, None, 3)
    bootstrap = Interval(1.5, 2.5, 2.0)
    again = paired_difference([3.0, 4.0, 5.0], [1.0, 2.0, 3.0], bootstrap=bootstrap)
    assert again.interval == bootstrap


def test_what_intervals_over_seeds_refuse() -> None:
    with pytest.raises(InputError, match="needs at least 2 values, got 1"):
        mean_interval([1.0])
    with pytest.raises(InputError, match="values must hold one number a seed"):
        mean_interval([])
    with pytest.raises(InputError, match=r"values must be finite, got \[1.0, nan\]"):
        mean_interval([1.0, math.nan])
    with pytest.raises(InputError, match="a has 2 values but b has 1; give those of the same"):
        paired_difference([1.0, 2.0], [1.0])


# --- verdicts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "margin", "outcome"),
    [
        (0.1, 0.5, 0.0, "supported"),
        (0.0, 0.5, 0.0, "undecided"),
        (-0.1, 0.5, 0.0, "undecided"),
        (-0.5, -0.1, 0.0, "refuted"),
        (-0.5, 0.0, 0.0, "undecided"),
        (0.0, 0.0, 0.0, "undecided"),  # as where both methods are perfect
        (0.1, 0.5, 0.2, "undecided"),
        (0.1, 0.5, 1.0, "refuted"),
        (math.nan, math.nan, 0.0, "undecided"),
    ],
)
def test_a_verdict_needs_the_whole_interval(
    low: float, high: float, margin: float, outcome: str
) -> None:
    middle = (low + high) / 2
    found = verdict(Difference(middle, Interval(low, high, middle), 5), margin)
    assert found == outcome
    mirrored = Difference(-middle, Interval(-high, -low, -middle), 5)
    assert verdict(mirrored, margin, better="low") == found


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("interval", [None, Interval(1, 2, 1.5), Interval(-2, -1, -1.5)])
def test_below_three_seeds_the_verdict_is_undecided(seeds: int, interval: Interval | None) -> None:
    assert verdict(Difference(0.0, interval, seeds)) == "undecided"
    assert (verdict(Difference(0.0, interval, 3)) == "undecided") == (interval is None)


# --- over samples ----------------------------------------------------------------------------


def draws(resamples: int, *sizes: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """The samples that each resample takes, from each set in turn."""
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(0, n, n) for n in sizes) for _ in range(resamples)]


def percentiles(values: list[float], level: float) -> tuple[float, float]:
    low, high = np.percentile(values, [50 - 50 * level, 50 + 50 * level])
    return float(low), float(high)


@pytest.mark.parametrize("metric", DETECTIONS)
@settings(max_examples=40)
@given(inside=SCORES, outside=SCORES)
def test_on_the_samples_themselves_the_counts_give_the_metric(
    metric: Detection, inside: list[float], outside: list[float]
) -> None:
    resampled = resampler(np.array(inside), np.array(outside), metric)
    draw = np.arange(len(inside)), np.arange(len(outside))
    expected = getattr(metrics, metric)(inside, outside)
    assert resampled(*draw) == pytest.approx(expected, rel=1e-13)  # sums in another order


@pytest.mark.parametrize("metric", DETECTIONS)
def test_a_bootstrap_is_the_metric_of_repeated_samples(metric: Detection) -> None:
    inside, outside = scores(1, 30), scores(2, 20, 0.7)
    inside[:2], outside[:2] = -np.inf, np.inf
    found = bootstrap_ood([(inside, outside)], metric, resamples=50, seed=4, level=0.9)
    slow = []
    for ids, oods in draws(50, 30, 20, seed=4):
        repeated = np.repeat(inside, np.bincount(ids, minlength=30))
        others = np.repeat(outside, np.bincount(oods, minlength=20))
        slow.append(getattr(metrics, metric)(repeated, others))
    assert (found.low, found.high) == pytest.approx(percentiles(slow, 0.9), abs=1e-9)
    assert found.estimate == getattr(metrics, metric)(inside, outside)


def test_a_bootstrap_repeats_with_its_seed() -> None:
    given_scores = scores(1), scores(2, shift=0.5)
    first = bootstrap_ood([given_scores], "aupr_id", seed=3)
    assert first == bootstrap_ood([given_scores], "aupr_id", seed=3)
    assert first != bootstrap_ood([given_scores], "aupr_id", seed=4)
    tensors = [torch.from_numpy(values).bfloat16() for values in given_scores]
    doubles = [tensor.double().numpy() for tensor in tensors]
    assert bootstrap_ood([tensors], "auroc") == bootstrap_ood([doubles], "auroc")


def test_a_wider_level_and_more_samples_do_what_they_should() -> None:
    def width(n: int, level: float) -> float:
        found = bootstrap_ood([(scores(1, n), scores(2, n, 1.0))], "auroc", level=level)
        assert found.low < found.estimate < found.high
        return found.high - found.low

    assert width(100, 0.99) > width(100, 0.9)
    assert width(1600, 0.95) == pytest.approx(width(100, 0.95) / 4, rel=0.5)


def test_sets_that_do_not_overlap_have_an_interval_without_width() -> None:
    for metric in DETECTIONS:
        assert bootstrap_ood([([0.0, 1.0], [2.0, 3.0])], metric) == Interval(100, 100, 100)


def test_what_a_bootstrap_refuses() -> None:
    with pytest.raises(InputError, match=r"ood_scores\[1\] is NaN"):
        bootstrap_ood([([0.0], [1.0, math.nan])], "auroc")
    with pytest.raises(InputError, match=r"the same samples, got \[\(1, 1\), \(1, 2\)\] of them"):
        bootstrap_ood([([0.0], [1.0]), ([0.0], [1.0, 2.0])], "auroc")


# --- ranks -----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=15))
def test_spearman_agrees_with_scipy(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.array(values, float) for values in zip(*pairs, strict=True))
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(spearman(x, y))
    else:
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_what_ranks_refuse() -> None:
    with pytest.raises(InputError, match="two tensors of the same length"):
        spearman([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="some are NaN"):
        spearman([1.0, math.nan], [1.0, 2.0])


# --- coverage --------------------------------------------------------------------------------

SHIFT = 1.0


def auroc_interval(rng: np.random.Generator) -> tuple[Interval, float]:
    """The AUROC of two normal distributions is Φ(shift / √2)."""
    found = bootstrap_ood([(rng.normal(size=50), rng.normal(SHIFT, 1.0, 50))], "auroc", 80)
    return found, 100 * float(stats.norm.cdf(SHIFT / math.sqrt(2)))


def difference_interval(rng: np.random.Generator) -> tuple[Interval, float]:
    """Two methods that see the same samples with noise of their own, one of them better."""
    common = rng.normal(size=50), rng.normal(size=50)
    noise = rng.normal(size=(4, 50))
    a = common[0] + noise[0], common[1] + noise[1] + 2 * SHIFT
    b = common[0] + noise[2], common[1] + noise[3] + SHIFT

    def statistic(draw: Draw) -> float:
        drawn = [draw({"in": {"s": inside}, "out": {"s": outside}}) for inside, outside in (a, b)]
        one, other = (metrics.auroc(each["in"]["s"], each["out"]["s"]) for each in drawn)
        return one - other

    found = over_samples(statistic, 80)
    assert found is not None
    first, second = (float(stats.norm.cdf(shift / 2)) for shift in (2 * SHIFT, SHIFT))
    return found, 100 * (first - second)


@pytest.mark.parametrize("simulate", [auroc_interval, difference_interval])
def test_a_bootstrap_covers_the_truth_about_as_often_as_it_says(
    simulate: Callable[[np.random.Generator], tuple[Interval, float]],
) -> None:
    rng = np.random.default_rng(11)
    found = [simulate(rng) for _ in range(150)]
    covered = np.mean([one.low <= truth <= one.high for one, truth in found])
    assert 0.89 <= covered <= 0.985


def test_the_examples_in_the_docstrings_are_true() -> None:
    outcome = doctest.testmod(statistics)
    assert outcome.attempted > 0
    assert outcome.failed == 0
