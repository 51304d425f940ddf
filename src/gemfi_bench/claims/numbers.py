"""Numbers that claims speak of: from the record of a run, and again from its arrays.

The record has what is told. The arrays are looked at where the interval is one over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemfi import metrics
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
from gemfi_bench.statistics import Difference, alike, paired_difference

Measure = Callable[[View], float | None]
"""A number from the arrays of a run."""


@dataclass(frozen=True)
class Number:
    """A number of a run.

    Attributes:
        pick: from the record.
        measure: from the arrays, which give the same number.
    """

    pick: Pick
    measure: Callable[[RunRecord, View], float | None]


def on_test(metric: str) -> Number:
    """A number of the classifier on test data, `accuracy`, `brier` and so on."""

    def measure(_run: RunRecord, sets: View) -> float | None:
        arrays = sets.get("test", {})
        return classification(arrays)[metric] if "log_probs" in arrays else None

    return Number(of_test(metric), measure)


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

    return Number(mean_of([pick(name, kind, metric) for name in names]), measure)


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

    return Number(of_shift(severity, kind, metric), measure)


def _detected(sets: View, inside: str, names: Sequence[str], key: str, metric: str) -> float | None:
    pairs = [(sets.get(inside, {}).get(key), sets.get(name, {}).get(key)) for name in names]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not known or len(known) < len(pairs):
        return None
    return float(np.mean([getattr(metrics, metric)(a, b) for a, b in known]))


# -- of a run -------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A number of a run.

    Attributes:
        value: the number.
        key: of the run.
        again: the same from resampled arrays; None without arrays.
    """

    value: float
    key: str
    again: Callable[[Draw], float | None] | None


def measured(results: Results, run: RunRecord, number: Number) -> Measured | None:
    """A number of a run; None where it has none."""
    value = number.pick(run)
    if value is None:
        return None
    if not results.has_arrays(run):
        return Measured(value, run.key, None)
    return Measured(value, run.key, lambda draw: number.measure(run, draw(results.arrays(run))))


def measured_arrays(results: Results, run: RunRecord, measure: Measure) -> Measured | None:
    """A number from the arrays of a run, which are here; None where it has none."""
    value = measure(results.arrays(run))
    if value is None:
        return None
    return Measured(value, run.key, lambda draw: measure(draw(results.arrays(run))))


def gap(pairs: Sequence[tuple[Measured, Measured]]) -> Difference:
    """By how much the first numbers exceed the second, each pair of one seed.

    Where seeds say nothing about chance, the interval is that over samples of the first pair.
    """
    first, second = [one.value for one, _ in pairs], [other.value for _, other in pairs]
    one, other = pairs[0]
    again, beside = one.again, other.again
    interval = None
    if again is not None and beside is not None and alike(np.subtract(first, second).tolist()):
        interval = over_samples(lambda draw: _less(again(draw), beside(draw)))
    return paired_difference(first, second, bootstrap=interval)


def level(numbers: Sequence[Measured]) -> Difference:
    """The mean of numbers, one a seed, as a difference from 0; its interval as in `gap`."""
    values, again = [each.value for each in numbers], numbers[0].again
    interval = over_samples(again) if again is not None and alike(values) else None
    return paired_difference(values, [0.0] * len(values), bootstrap=interval)


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
