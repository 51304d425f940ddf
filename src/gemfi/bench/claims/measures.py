"""Numbers from the arrays of a run that claims speak of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gemfi import metrics
from gemfi.bench.claims.tests_of import Measure, column
from gemfi.bench.records import Sets
from gemfi.bench.statistics import spearman
from gemfi.calibration import fit_temperature

EASY, BOUNDARY = 0.9, 0.6
"""Confidence from which a right prediction is easy, and below which it is at the boundary."""

Floats = npt.NDArray[Any]


def correlation(first: str, second: str, names: Sequence[str] = ("test",)) -> Measure:
    """Spearman's correlation of two arrays over one set or more."""

    def measure(sets: Sets) -> float | None:
        one, other = pooled(sets, first, names), pooled(sets, second, names)
        if one is None or other is None:
            return None
        found = spearman(one, other)
        return None if np.isnan(found) else found

    return measure


def pooled(sets: Sets, key: str, names: Sequence[str]) -> Floats | None:
    """An array over one set or more; None if one of them does not keep it."""
    found = [column(sets, name, key) for name in names]
    known = [each for each in found if each is not None]
    return np.concatenate(known) if known and len(known) == len(found) else None


def mean_over(key: str, names: Sequence[str] = ("test",)) -> Measure:
    """The mean of an array over one set or more."""

    def measure(sets: Sets) -> float | None:
        values = pooled(sets, key, names)
        return None if values is None else float(values.mean())

    return measure


def mean_among(key: str, group: str) -> Measure:
    """The mean of an array over the test inputs that are `easy` or at the `boundary`."""

    def measure(sets: Sets) -> float | None:
        tested = sets["test"]
        values = tested.get(key)
        if values is None:
            return None
        chosen = among(tested, group)
        return float(values[chosen].mean()) if chosen.any() else None

    return measure


def among(tested: dict[str, Floats], group: str) -> npt.NDArray[np.bool_]:
    """Which test inputs are `easy` (right, confident) or at the `boundary` (right, not)."""
    confidence = 1 - tested["score/max_prob"]
    right = tested["prediction"] == tested["label"]
    chosen: npt.NDArray[np.bool_] = right & (
        confidence >= EASY if group == "easy" else confidence < BOUNDARY
    )
    return chosen


def gain_of_temperature(metric: str) -> Measure:
    """By how much temperature scaling, fitted on validation data, lowers a test metric."""

    def measure(sets: Sets) -> float | None:
        before, after = _tested(sets, 0.0), _tested(sets, _log_temperature(sets))
        found = metrics.classification_metrics
        labels = sets["test"]["label"]
        return found(before, labels)[metric] - found(after, labels)[metric]

    return measure


def _log_temperature(sets: Sets) -> float:
    validation = sets["validation"]
    log_probs = torch.from_numpy(validation["log_probs"].astype(np.float64))
    labels = torch.from_numpy(validation["label"].astype(np.int64))
    return float(fit_temperature(torch.log_softmax(log_probs, dim=1), labels))


def _tested(sets: Sets, log_temperature: float) -> Floats:
    log_probs = torch.from_numpy(sets["test"]["log_probs"].astype(np.float64))
    scaled: Floats = torch.log_softmax(log_probs * float(np.exp(-log_temperature)), dim=1).numpy()
    return scaled


def used_heads(sets: Sets) -> float | None:
    """Effective number of heads on test data: exp of the entropy of the mean weights."""
    weights = column(sets, "test", "router")
    if weights is None:
        return None
    mean = weights.astype(np.float64).mean(axis=0)
    positive = mean[mean > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))
