"""Resamples: the same inputs for every run, images together with what was made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gemfi import metrics
from gemfi.metrics import Floats, Ints
from gemfi_bench.record_file import View
from gemfi_bench.resampling import CLEAN, Draw, over_samples
from gemfi_bench.statistics import Interval


def run(inside: Floats, outside: Floats) -> View:
    return {"test": {"score": inside}, "noise": {"score": outside}}


def gap(one: View, other: View, draw: Draw) -> float:
    a, b = (
        metrics.auroc(each["test"]["score"], each["noise"]["score"])
        for each in (draw(one), draw(other))
    )
    return a - b


def scores(seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=200), rng.normal(1.0, 1.0, 200)


def test_an_interval_holds_the_quantiles_of_the_resamples() -> None:
    values = np.random.default_rng(0).normal(size=50)
    rows: list[Ints] = []

    def statistic(draw: Draw) -> float:
        drawn = draw({"test": {"value": values, "row": np.arange(50)}})["test"]
        rows.append(drawn["row"])
        assert (drawn["value"] == values[drawn["row"]]).all()
        return float(drawn["value"].mean())

    found = over_samples(statistic, 40, level=0.8)
    assert found is not None
    assert (rows[0] == np.arange(50)).all()  # the estimate is of the inputs as they are
    slow = np.quantile([values[each].mean() for each in rows[1:]], [0.1, 0.9])
    assert (found.low, found.high) == pytest.approx(tuple(slow))
    assert found.estimate == pytest.approx(values.mean())
    assert len({tuple(each) for each in rows}) == 41
    assert all(each.min() >= 0 and each.max() < 50 for each in rows)


def test_every_run_is_resampled_alike_and_in_any_order() -> None:
    seen: list[tuple[Ints, ...]] = []

    def statistic(draw: Draw) -> float:
        rows = {"row": np.arange(30)}
        one, other = draw({"test": rows, "noise": rows}), draw({"noise": rows, "test": rows})
        there = other["noise"]["row"], other["test"]["row"]
        here = one["test"]["row"], one["noise"]["row"]
        seen.append((*here, *reversed(there)))
        return 0.0

    over_samples(statistic, 5)
    for test, noise, other_test, other_noise in seen[1:]:
        assert (test == other_test).all()
        assert (noise == other_noise).all()
        assert (test != noise).any()  # sets are drawn apart


def test_corrupted_images_are_drawn_with_the_clean_ones_they_were_made_from() -> None:
    sets = {
        "test": {"row": np.arange(100)},
        "shift/fog-1": {"row": np.arange(40)},
        "shift/fog-5": {"row": np.arange(40)},
    }

    def statistic(draw: Draw) -> float:
        drawn = draw(sets)
        clean = drawn[CLEAN]["row"]
        assert len(clean) == 40
        assert clean.max() < 40
        assert (clean == drawn["shift/fog-1"]["row"]).all()
        assert (clean == drawn["shift/fog-5"]["row"]).all()
        assert len(drawn["test"]["row"]) == 100
        assert list(drawn) == [*sets, CLEAN]
        return 0.0

    assert over_samples(statistic, 5) == Interval(0, 0, 0)


def test_arrays_of_the_first_inputs_alone_are_not_there() -> None:
    sets = {"test": {"row": np.arange(9), "features": np.zeros((3, 2))}}

    def statistic(draw: Draw) -> float:
        assert list(draw(sets)["test"]) == ["row"]
        return 0.0

    over_samples(statistic, 2)


def test_a_method_does_not_differ_from_itself() -> None:
    same = run(*scores(1))
    assert over_samples(lambda draw: gap(same, same, draw), 50) == Interval(0, 0, 0)


def test_what_both_methods_share_cancels() -> None:
    rng = np.random.default_rng(0)
    inside, outside = scores(0)
    one = run(inside, outside)
    nearly = run(inside + rng.normal(0, 0.05, 200), outside + rng.normal(0, 0.05, 200))
    paired = over_samples(lambda draw: gap(one, nearly, draw), 200)
    alone = over_samples(
        lambda draw: metrics.auroc(draw(one)["test"]["score"], draw(one)["noise"]["score"]), 200
    )
    assert paired is not None
    assert alone is not None
    assert paired.high - paired.low < 0.3 * (alone.high - alone.low)


@pytest.mark.parametrize("nothing", [None, math.nan])
def test_a_number_that_is_not_defined_has_no_interval(nothing: float | None) -> None:
    assert over_samples(lambda _draw: nothing, 3) is None
    values = iter([1.0, 2.0, nothing])
    assert over_samples(lambda _draw: next(values), 3) is None
