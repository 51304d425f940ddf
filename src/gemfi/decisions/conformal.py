"""Conformal p-values: where a score lies among those of calibration data, exactly, for any n."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemfi._config import check_number
from gemfi.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reference:
    """Scores of calibration data, in groups if p-values are to hold within each group.

    p = (1 + #{reference scores ≥ s}) / (n + 1). Of an input that is exchangeable with the n of its
    group, P(p ≤ α) ≤ α for every α, whatever the score and its distribution.

    Attributes:
        groups: one sorted array, or one for each predicted class.
    """

    groups: tuple[Floats, ...]

    @classmethod
    def of(cls, scores: Floats, labels: Ints | None = None, num_classes: int = 0) -> Reference:
        """From scores (n,); with predicted labels, a group for each of the classes."""
        values = checked_scores(scores, "calibration scores")
        if labels is None:
            return cls((np.sort(values),))
        _check_labels(labels, num_classes)
        return cls(tuple(np.sort(values[labels == each]) for each in range(num_classes)))

    @property
    def is_conditional(self) -> bool:
        """Whether there is a group for each predicted class."""
        return len(self.groups) > 1

    @property
    def size(self) -> int:
        """Scores in all groups."""
        return sum(len(group) for group in self.groups)

    @property
    def least_level(self) -> float:
        """The smallest p-value that every group has, and so the least rate that can be asked."""
        return 1 / (min(len(group) for group in self.groups) + 1)

    def p_values(self, scores: Floats, labels: Ints) -> Floats:
        """P-values (N,) of scores with predicted labels."""
        values = checked_scores(scores, "scores")
        if not self.is_conditional:
            return _p_values(self.groups[0], values)
        _check_labels(labels, len(self.groups))
        found = np.empty(len(values))
        for each, group in enumerate(self.groups):
            rows = labels == each
            found[rows] = _p_values(group, values[rows])
        return found

    def require_level(
        self, level: float, names: Sequence[str] | None = None, stages: int = 1
    ) -> None:
        """Refuse a level that the calibration data are too few for: nothing could reach it.

        Args:
            level: the false-alarm rate.
            names: of the classes.
            stages: how many shared the calibration data.
        """
        needed = least_samples(level)
        few = [each for each, group in enumerate(self.groups) if len(group) < needed]
        if not few:
            return
        if not self.is_conditional:
            raise InputError(
                f"a false-alarm rate of {level:g} needs {stages * (needed - 1) + 1} or more "
                f"calibration samples{_shared(needed, stages)}, but there are "
                f"{len(self.groups[0])}: give more, or a rate of {self.least_level:.3g} or more"
            )
        shown = ", ".join(str(each) if names is None else names[each] for each in few[:5])
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        raise InputError(
            f"a false-alarm rate of {level:g} in each class needs at least {needed} calibration "
            f"samples of each predicted class{' in this stage' if stages > 1 else ''}, but these "
            f"have fewer: {shown}{more}. Give more, a higher rate, or conditional=False"
        )

    def threshold(self, level: float) -> Threshold:
        """What a score must exceed; of several groups, that which ties take most from."""
        found = [threshold_of(group, level) for group in self.groups]
        return max(found, key=lambda each: each.lost)

    def rate_interval(self, level: float, mass: float = 0.9) -> tuple[float, float]:
        """Where the false-alarm rate of this very reference lies, with probability `mass`.

        The level holds on average over calibration sets; of one set it is Beta distributed. With
        groups, the ends of all their intervals.
        """
        ends = [_interval(len(group), level, mass) for group in self.groups]
        return min(low for low, _ in ends), max(high for _, high in ends)


@dataclass(frozen=True)
class Threshold:
    """The score that an input must exceed to be unfamiliar, and what ties make of it.

    Scores that equal the threshold are not above it. So where many do, or where it is infinite,
    fewer inputs are called unfamiliar than the level allows: the level holds, with less power.

    Attributes:
        value: a score of the reference; infinite if no input can be unfamiliar.
        tied: share of the reference that equals it.
        above: share of the reference that exceeds it.
        lost: share of the level that ties take away, from 0 to 1.
    """

    value: float
    tied: float
    above: float
    lost: float


def threshold_of(group: Floats, level: float) -> Threshold:
    """The threshold of one sorted group; −∞ if every input is unfamiliar."""
    count, rank = len(group), _rank(len(group), level)
    if rank == 0 or rank > count:
        return Threshold(math.inf if rank == 0 else -math.inf, 0.0, 0.0, 0.0)
    value = group[count - rank]
    first, last = np.searchsorted(group, value, "left"), np.searchsorted(group, value, "right")
    above = int(count - last)
    lost = 1.0 if value == math.inf else (rank - 1 - above) / rank
    return Threshold(float(value), int(last - first) / count, above / count, lost)


def _rank(count: int, level: float) -> int:
    """How many of the p-values 1/(n + 1), 2/(n + 1), ..., 1 do not exceed a level."""
    return int(((1 + np.arange(count + 1)) / (count + 1) <= level).sum())


def least_samples(level: float) -> int:
    """The fewest calibration samples with which a p-value can be as small as `level`."""
    check_number("false_alarm", level, above=0, below=1)
    return max(1, math.ceil(1 / level - 1 - 1e-9))


def checked_scores(scores: Floats, what: str) -> Floats:
    """Scores (N,) as float64; NaN has no rank."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"{what} must have shape (N,), got {values.shape}")
    bad = np.isnan(values)
    if bad.any():
        raise InputError(f"{what} must be numbers: number {int(bad.argmax())} is NaN")
    return values


def _p_values(reference: Floats, scores: Floats) -> Floats:
    at_least = len(reference) - np.searchsorted(reference, scores, side="left")
    return (1 + at_least) / (len(reference) + 1)


def _interval(n: int, level: float, mass: float) -> tuple[float, float]:
    """Of P(p ≤ level) given n scores: that of a Beta distribution, without ties."""
    from scipy import stats  # noqa: PLC0415 - slow to import

    rank = _rank(n, level)
    if rank == 0 or rank > n:
        return (0.0, 0.0) if rank == 0 else (1.0, 1.0)
    tail = (1 - mass) / 2
    low, high = stats.beta.ppf([tail, 1 - tail], rank, n + 1 - rank)
    return float(low), float(high)


def _shared(needed: int, stages: int) -> str:
    return "" if stages == 1 else f", {needed} of them in the first of {stages} stages"


def _check_labels(labels: Ints, num_classes: int) -> None:
    """Refuse classes that have no group: there would be nothing to rank them in."""
    bad = (labels < 0) | (labels >= num_classes)
    if bad.any():
        raise InputError(
            f"predicted class {int(labels[bad.argmax()])} of input {int(bad.argmax())} is not one "
            f"of the {num_classes} classes that have a reference, 0 to {num_classes - 1}"
        )
