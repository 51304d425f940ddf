"""Numbers from the arrays of a run that claims speak of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gemfi_bench.claims.numbers import Measure
from gemfi_bench.record_file import View
from gemfi_bench.statistics import spearman
from gemfi_bench.tables.classification import scaled
from gemfi_bench.tables.diagnostics import conditions

Floats = npt.NDArray[Any]


def correlation(first: str, second: str, names: Sequence[str] = ("test",)) -> Measure:
    """Spearman's correlation of two arrays over one set or more."""

    def measure(sets: View) -> float | None:
        one, other = pooled(sets, first, names), pooled(sets, second, names)
        if one is None or other is None:
            return None
        found = spearman(one, other)
        return None if np.isnan(found) else found

    return measure


def pooled(sets: View, key: str, names: Sequence[str]) -> Floats | None:
    """An array over one set or more; None if one of them does not keep it."""
    found = [column(sets, name, key) for name in names]
    known = [each for each in found if each is not None]
    return np.concatenate(known) if known and len(known) == len(found) else None


def mean_over(key: str, names: Sequence[str] = ("test",)) -> Measure:
    """The mean of an array over one set or more."""

    def measure(sets: View) -> float | None:
        values = pooled(sets, key, names)
        return None if values is None else float(values.mean())

    return measure


def mean_among(key: str, group: str) -> Measure:
    """The mean of an array over the test inputs that are `easy` or at the `boundary`."""

    def measure(sets: View) -> float | None:
        values = sets["test"].get(key)
        if values is None:
            return None
        chosen = conditions(sets["test"])[group]
        return float(values[chosen].mean()) if chosen.any() else None

    return measure


def gain_of_temperature(metric: str) -> Measure:
    """By how much temperature scaling, fitted on validation data, lowers a test metric."""

    def measure(sets: View) -> float | None:
        found = scaled(sets)
        return found[f"{metric} before"] - found[f"{metric} after"]

    return measure


def used_heads(sets: View) -> float | None:
    """Effective number of heads on test data: exp of the entropy of the mean weights."""
    weights = column(sets, "test", "router")
    if weights is None:
        return None
    mean = weights.astype(np.float64).mean(axis=0)
    positive = mean[mean > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def column(sets: View, name: str, key: str) -> Floats | None:
    """An array of a set, None where it is not kept."""
    return sets.get(name, {}).get(key)
