"""The statistics behind a policy: p-values, proven thresholds, and levels chosen on OOD data.

`Reference` ranks scores among calibration scores (conformal p-values). `threshold_for_risk` and
`threshold_for_coverage` decide which familiar inputs are certain enough. `Trial` tries levels on
OOD-validation data. Everything here is NumPy; models and beliefs are in `policy.py`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemfi._config import check_number
from gemfi.decisions.goal import Costs
from gemfi.errors import InputError
from gemfi.metrics import Bools, Floats, Ints

_MAX_THRESHOLDS = 200  # that the risk is tested at
_MAX_TRIED = 400  # levels, and thresholds of doubt, that costs are computed for


# -- conformal p-values ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reference:
    """Scores of calibration data, in groups if p-values are to hold within each group.

    p = (1 + #{reference scores ≥ s}) / (n + 1). If an input is exchangeable with the n of its
    group, P(p ≤ α) ≤ α for every α, whatever the score and its distribution.
    """

    groups: tuple[Floats, ...]  # one sorted array, or one for each predicted class

    @classmethod
    def of(cls, scores: Floats, labels: Ints | None = None, num_classes: int = 1) -> Reference:
        """From scores (n,); with predicted labels, a group for each of the classes."""
        values = checked_scores(scores, "calibration scores")
        labels = np.zeros(len(values), np.int64) if labels is None else labels
        _check_labels(labels, num_classes)
        return cls(tuple(np.sort(values[labels == label]) for label in range(num_classes)))

    @property
    def is_conditional(self) -> bool:
        """Whether there is a group for each predicted class."""
        return len(self.groups) > 1

    @property
    def size(self) -> int:
        """Scores in all groups."""
        return sum(map(len, self.groups))

    @property
    def least_level(self) -> float:
        """The smallest p-value that every group has: no lower rate can be asked for."""
        return 1 / (min(map(len, self.groups)) + 1)

    def p_values(self, scores: Floats, labels: Ints) -> Floats:
        """P-values (N,) of scores with predicted labels."""
        values = checked_scores(scores, "scores")
        labels = labels if self.is_conditional else np.zeros(len(values), np.int64)
        _check_labels(labels, len(self.groups))
        p = np.empty(len(values))
        for label, group in enumerate(self.groups):
            rows = labels == label
            at_least = len(group) - np.searchsorted(group, values[rows], side="left")
            p[rows] = (1 + at_least) / (len(group) + 1)
        return p

    def require_level(
        self, level: float, names: Sequence[str] | None = None, stages: int = 1
    ) -> None:
        """Refuse a false-alarm rate that no p-value could reach, as there is too little data.

        The message tells `names` of the classes, and how many stages shared the calibration data.
        """
        needed = least_samples(level)
        few = [label for label, group in enumerate(self.groups) if len(group) < needed]
        if few and self.is_conditional:
            where = "" if stages == 1 else " in this stage"
            labels = ", ".join(str(label) if names is None else names[label] for label in few)
            raise InputError(
                f"a false-alarm rate of {level:g} in each class needs at least {needed} "
                f"calibration samples of each predicted class{where}, "
                f"but these have fewer: {textwrap.shorten(labels, 80, placeholder=' …')}. Give "
                "more, a higher rate, or conditional=False"
            )
        if few:
            shared = "" if stages == 1 else f", {needed} of them in the first of {stages} stages"
            raise InputError(
                f"a false-alarm rate of {level:g} needs {stages * (needed - 1) + 1} or more "
                f"calibration samples{shared}, but there are {self.size}: give more, or a rate of "
                f"{self.least_level:.3g} or more"
            )

    def threshold(self, level: float) -> Threshold:
        """What a score must exceed; of several groups, the one that loses most to ties."""
        return max((threshold_of(group, level) for group in self.groups), key=lambda t: t.lost)

    def rate_interval(self, level: float) -> tuple[float, float]:
        """Where the false-alarm rate of this very reference lies, with probability 90 %.

        The level holds on average over calibration sets; the rate of one set is Beta distributed,
        given scores without ties. With groups, these are the ends of all their intervals.
        """
        from scipy import stats  # noqa: PLC0415 - slow to import

        ends: list[float] = []
        for group in self.groups:
            count, rank = len(group), _rank(len(group), level)
            if 0 < rank <= count:
                ends += stats.beta(rank, count + 1 - rank).interval(0.9)
            else:
                ends.append(float(rank > 0))
        return float(min(ends)), float(max(ends))


class Threshold(NamedTuple):
    """The score that an input must exceed to be unfamiliar, and what ties make of it.

    A score that equals the threshold is not above it. Where many do, or where it is infinite, fewer
    inputs are called unfamiliar than the level allows: the level holds, with less power.
    """

    value: float  # a score of the reference; infinite if no input can be unfamiliar
    tied: float  # share of the reference that equals it
    above: float  # share of the reference that exceeds it
    lost: float  # share of the level that ties take away, from 0 to 1


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


def least_samples(level: float) -> int:
    """The fewest calibration samples with which a p-value can be as small as `level`."""
    check_number("false_alarm", level, above=0, below=1)
    return max(1, math.ceil(1 / level - 1 - 1e-9))


def checked_scores(scores: Floats, what: str) -> Floats:
    """Scores (N,) as float64; NaN is refused, as it has no rank."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"{what} must have shape (N,), got {values.shape}")
    bad = np.isnan(values)
    if bad.any():
        raise InputError(f"{what} must be numbers: number {int(bad.argmax())} is NaN")
    return values


def _rank(count: int, level: float) -> int:
    """How many of the p-values 1/(n + 1), 2/(n + 1), ..., 1 do not exceed a level."""
    return int(((1 + np.arange(count + 1)) / (count + 1) <= level).sum())


def _check_labels(labels: Ints, num_classes: int) -> None:
    """Refuse classes that have no group: there would be nothing to rank them in."""
    bad = (labels < 0) | (labels >= num_classes)
    if bad.any():
        raise InputError(
            f"predicted class {int(labels[bad.argmax()])} of input {int(bad.argmax())} is not one "
            f"of the {num_classes} classes that have a reference, 0 to {num_classes - 1}"
        )


# -- thresholds of doubt --------------------------------------------------------------------------


def threshold_for_risk(
    proposing: tuple[Floats, Bools], testing: tuple[Floats, Bools], risk: float, delta: float
) -> float:
    """The most lenient threshold whose error rate is at most `risk`, with probability 1 − delta.

    Learn, then test (Angelopoulos et al. 2021), with a fixed sequence. One part of the data
    proposes thresholds and where to begin: where its own errors speak most clearly for a rate below
    `risk`. From there the other part tests ever more lenient ones by the binomial tail of its
    errors among the accepted. The first that fails ends the walk, so no correction for many tests
    is due. Both are doubts (m,) of familiar inputs, and whether their labels are wrong.
    """
    doubt, wrong = testing
    needed = samples_for_risk(risk, delta)
    if len(doubt) < needed:
        raise InputError(
            f"an error rate of at most {risk:g} with probability {1 - delta:g} needs at least "
            f"{needed} familiar calibration samples in this stage, but there are {len(doubt)}: "
            "give more, or a higher risk or delta"
        )
    thresholds = np.array([math.inf])
    if len(proposing[0]):
        shares = np.linspace(needed / len(doubt), 1, _MAX_THRESHOLDS)
        proposed = np.unique(np.quantile(proposing[0], shares, method="higher"))
        thresholds = np.append(proposed, math.inf)
    start = int(_log_tails(thresholds, *proposing, risk).argmin())
    passed = _log_tails(thresholds[start:], doubt, wrong, risk) <= math.log(delta)
    if not passed[0]:
        first = doubt <= thresholds[start]
        raise InputError(
            f"no threshold keeps the error rate at {risk:g} with probability {1 - delta:g}: of the "
            f"{int(first.sum())} most certain inputs {int(wrong[first].sum())} are wrong. Allow a "
            "higher risk or delta, give more calibration data, or a better model. Do not try again "
            "with another seed: what passes one of many tries is not proven"
        )
    count = len(passed) if passed.all() else int(passed.argmin())
    return float(thresholds[start + count - 1])


def threshold_for_coverage(doubt: Floats, coverage: float) -> float:
    """The threshold that accepts a familiar input with probability `coverage` at least.

    It is the ⌈(m + 1)·coverage⌉-th smallest doubt, a conformal quantile.
    """
    rank = math.ceil((len(doubt) + 1) * coverage - 1e-9)
    if rank > len(doubt):
        needed = math.ceil(coverage / (1 - coverage) - 1e-9)
        raise InputError(
            f"a coverage of {coverage:g} needs at least {needed} familiar calibration samples in "
            f"this stage, but there are {len(doubt)}: give more, or a lower coverage"
        )
    return float(np.sort(doubt)[rank - 1])


def samples_for_risk(risk: float, delta: float) -> int:
    """The fewest accepted inputs, all right, that prove an error rate of at most `risk`."""
    return math.ceil(math.log(delta) / math.log1p(-risk) - 1e-9)


def _log_tails(thresholds: Floats, doubt: Floats, wrong: Bools, risk: float) -> Floats:
    """For each threshold, log P(as few errors among the accepted), if their rate were `risk`."""
    from scipy import stats  # noqa: PLC0415 - slow to import

    order = np.argsort(doubt)
    accepted = np.searchsorted(doubt[order], thresholds, side="right")
    errors = np.append(0, np.cumsum(wrong[order]))[accepted]
    tails: Floats = stats.binom.logcdf(errors, accepted, risk)
    return tails


# -- levels chosen with OOD-validation data -------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trial:
    """Known and unfamiliar inputs on which levels and thresholds of doubt are tried."""

    p: Floats  # (n,) p-values of calibration data
    doubt: Floats  # (n,)
    wrong: Bools  # (n,) whether their labels are wrong
    ood_p: Floats  # (m,) p-values of OOD-validation data
    ood_doubt: Floats  # (m,)

    def youden_level(self) -> float:
        """The level α of the largest P(p ≤ α | OOD) − P(p ≤ α | known); the least of several."""
        levels = np.unique(np.append(self.p, self.ood_p))
        gap = _share_up_to(self.ood_p, levels) - _share_up_to(self.p, levels)
        return float(levels[int(gap.argmax())])

    def cheapest(self, costs: Costs) -> tuple[float, float]:
        """The level and the threshold of doubt of the least expected cost."""
        levels = _thinned(np.append(self.p, self.ood_p))
        doubts = np.append(_thinned(np.append(self.doubt, self.ood_doubt)), [-math.inf, math.inf])
        best, chosen = math.inf, (0.0, math.inf)
        for level in np.append(0.0, levels):
            expected = self.expected_costs(costs, float(level), doubts)
            least = int(expected.argmin())
            if expected[least] < best - 1e-12:
                best, chosen = float(expected[least]), (float(level), float(doubts[least]))
        return chosen

    def expected_costs(self, costs: Costs, level: float, doubts: Floats) -> Floats:
        """Mean costs (T,) of an input under one level and thresholds of doubt (T,)."""
        familiar, missed = self.p > level, self.ood_p > level
        accepted = _share_up_to(self.doubt[familiar], doubts) * familiar.mean()
        wrong = familiar & self.wrong
        failed = _share_up_to(self.doubt[wrong], doubts) * wrong.mean()
        inside = costs.error * failed + costs.abstain * (1 - accepted)
        taken = _share_up_to(self.ood_doubt[missed], doubts) * missed.mean()
        outside = costs.unfamiliar * taken + costs.abstain * (missed.mean() - taken)
        result: Floats = (1 - costs.prevalence) * inside + costs.prevalence * outside
        return result


def _share_up_to(values: Floats, limits: Floats) -> Floats:
    """For each limit the share of the values that do not exceed it; 0 where there are none."""
    return np.searchsorted(np.sort(values), limits, side="right") / max(1, len(values))


def _thinned(values: Floats) -> Floats:
    """The distinct values, at most `_MAX_TRIED` of them."""
    distinct = np.unique(values)
    if len(distinct) <= _MAX_TRIED:
        return distinct
    return np.unique(np.quantile(distinct, np.linspace(0, 1, _MAX_TRIED), method="nearest"))
