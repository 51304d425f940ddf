"""Numbers that claims speak of: from the record of a run, or from its arrays.

The record holds what is reported; resampled arrays give the interval over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemfi import metrics
from gemfi.metrics import Floats
from gemfi_bench.numbers import classification
from gemfi_bench.record_file import RunRecord, View
from gemfi_bench.resampling import CLEAN, Draw, over_samples
from gemfi_bench.results import (
    Pick,
    Results,
    array_name,
    mean_of,
    of_detector,
    of_set,
    of_shift,
    of_test,
)
from gemfi_bench.statistics import Difference, alike, paired_difference, spearman
from gemfi_bench.tables.classification import scaled
from gemfi_bench.tables.diagnostics import conditions

_TEST = ("test",)


@dataclass(frozen=True)
class Number:
    """A number of a run.

    Attributes:
        measure: it from the arrays.
        pick: the same from the record; None for what the record does not hold.
    """

    measure: Callable[[RunRecord, View], float | None]
    pick: Pick | None = None


# -- from the record ------------------------------------------------------------------------------


def on_test(metric: str) -> Number:
    """A number of the classifier on test data, `accuracy`, `brier` and so on."""

    def measure(_run: RunRecord, sets: View) -> float | None:
        arrays = sets.get("test", {})
        return classification(arrays)[metric] if "log_probs" in arrays else None

    return Number(measure, of_test(metric))


def on_sets(names: Sequence[str], kind: str, metric: str, *, detector: bool = False) -> Number:
    """A number of OOD detection, the mean over sets.

    Args:
        names: of OOD test sets.
        kind: a kind of uncertainty, a score or a detector.
        metric: `auroc`, `aupr_id` or `aupr_ood`.
        detector: whether it is a detector, even where a score has the same name.
    """
    pick = of_detector if detector else of_set

    def measure(run: RunRecord, sets: View) -> float | None:
        key = array_name(run, kind, detector=detector)
        return _detected(sets, "test", names, key, metric)

    return Number(measure, mean_of([pick(name, kind, metric) for name in names]))


def under_shift(severity: int | None, kind: str, metric: str) -> Number:
    """A number of telling corrupted test images from clean ones, the mean over the types.

    Args:
        severity: 1 to 5, None for all.
        kind: as in `on_sets`.
        metric: as in `on_sets`.
    """

    def measure(run: RunRecord, sets: View) -> float | None:
        ending = "" if severity is None else f"-{severity}"
        names = [name for name in sets if name.startswith("shift/") and name.endswith(ending)]
        return _detected(sets, CLEAN, names, array_name(run, kind), metric)

    return Number(measure, of_shift(severity, kind, metric))


def _detected(sets: View, inside: str, names: Sequence[str], key: str, metric: str) -> float | None:
    known = _column(sets, inside, key)
    columns = [_column(sets, name, key) for name in names]
    if known is None or not columns:
        return None
    function = getattr(metrics, metric)
    values = [function(known, column) for column in columns if column is not None]
    return float(np.mean(values)) if len(values) == len(columns) else None


# -- from the arrays alone ------------------------------------------------------------------------


def correlation(first: str, second: str, names: Sequence[str] = _TEST) -> Number:
    """Spearman's correlation of two arrays over one set or more."""

    def measure(_run: RunRecord, sets: View) -> float | None:
        one, other = _pooled(sets, first, names), _pooled(sets, second, names)
        if one is None or other is None:
            return None
        value = spearman(one, other)
        return None if np.isnan(value) else value

    return Number(measure)


def mean_over(key: str, names: Sequence[str] = _TEST) -> Number:
    """The mean of an array over one set or more."""

    def measure(_run: RunRecord, sets: View) -> float | None:
        values = _pooled(sets, key, names)
        return None if values is None else float(values.mean())

    return Number(measure)


def mean_among(key: str, group: str) -> Number:
    """The mean of an array over the test inputs that are `easy` or at the `boundary`."""

    def measure(_run: RunRecord, sets: View) -> float | None:
        values = _column(sets, "test", key)
        if values is None:
            return None
        chosen = conditions(sets["test"])[group]
        return float(values[chosen].mean()) if chosen.any() else None

    return Number(measure)


def gain_of_temperature(metric: str) -> Number:
    """By how much temperature scaling, fitted on validation data, lowers a test metric."""

    def measure(_run: RunRecord, sets: View) -> float | None:
        values = scaled(sets)
        return values[f"{metric} before"] - values[f"{metric} after"]

    return Number(measure)


def used_heads() -> Number:
    """Effective number of heads on test data: exp of the entropy of the mean weights."""

    def measure(_run: RunRecord, sets: View) -> float | None:
        weights = _column(sets, "test", "router")
        if weights is None:
            return None
        mean = weights.astype(np.float64).mean(axis=0)
        positive = mean[mean > 0]
        return float(np.exp(-(positive * np.log(positive)).sum()))

    return Number(measure)


def _pooled(sets: View, key: str, names: Sequence[str]) -> Floats | None:
    """An array over one set or more; None if one of them does not keep it."""
    columns = [_column(sets, name, key) for name in names]
    known = [column for column in columns if column is not None]
    return np.concatenate(known) if known and len(known) == len(columns) else None


def _column(sets: View, name: str, key: str) -> Floats | None:
    """An array of a set, None where it is not kept."""
    return sets.get(name, {}).get(key)


# -- of a run -------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A number of a run, the run's key, and the same from resampled arrays (None without them)."""

    value: float
    key: str
    again: Callable[[Draw], float | None] | None


def measured(results: Results, run: RunRecord, number: Number) -> Measured | None:
    """A number of a run; None where it has none."""
    has_arrays = results.has_arrays(run)
    value = None
    if number.pick is not None:
        value = number.pick(run)
    elif has_arrays:
        value = number.measure(run, results.arrays(run))
    if value is None or not has_arrays:
        return None if value is None else Measured(value, run.key, None)
    return Measured(value, run.key, lambda draw: number.measure(run, draw(results.arrays(run))))


def gap(pairs: Sequence[tuple[Measured, Measured]]) -> Difference:
    """By how much the first numbers exceed the second, each pair of one seed.

    Where seeds say nothing about chance, the interval is that over samples of the first pair.
    """
    first, second = [one.value for one, _ in pairs], [other.value for _, other in pairs]
    again, beside = pairs[0][0].again, pairs[0][1].again
    interval = None
    if again is not None and beside is not None and alike(np.subtract(first, second).tolist()):
        interval = over_samples(lambda draw: _less(again(draw), beside(draw)))
    return paired_difference(first, second, bootstrap=interval)


def level(numbers: Sequence[Measured]) -> Difference:
    """The mean of numbers, one a seed, as a difference from 0; its interval as in `gap`."""
    zero = Measured(0.0, "", lambda _draw: 0.0)
    return gap([(number, zero) for number in numbers])


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
