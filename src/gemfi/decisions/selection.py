"""Which familiar inputs to accept: thresholds of doubt with a bound on the error or the coverage.

The doubts of one part of the calibration data propose thresholds, another part tests them, so that
what is promised of a threshold was not also what chose it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gemfi.errors import InputError

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_STEPS = 200  # thresholds that are tried, at most


def threshold_for_risk(
    proposing: tuple[Floats, Bools], testing: tuple[Floats, Bools], risk: float, delta: float
) -> float:
    """The most lenient threshold whose error rate is at most `risk`, with probability 1 − delta.

    Learn, then test. One part of the data proposes thresholds and where to begin: where its own
    errors speak most clearly for a rate below `risk`. From there the other part tests one after the
    other, ever more lenient, by the binomial tail of its errors among those that are accepted. The
    first that fails ends the walk, so that no correction for many tests is due.

    Args:
        proposing: doubts (l,) of familiar inputs, and whether their labels are wrong.
        testing: the same (m,) of others.
        risk: largest error rate among the accepted.
        delta: probability with which the bound may fail.
    """
    doubt, wrong = testing
    needed = samples_for_risk(risk, delta)
    if len(doubt) < needed:
        raise InputError(
            f"an error rate of at most {risk:g} with probability {1 - delta:g} needs at least "
            f"{needed} familiar calibration samples in this stage, but there are {len(doubt)}: "
            "give more, or a higher risk or delta"
        )
    values = _thresholds(proposing[0], needed / len(doubt))
    start = int(_tails(values, *proposing, risk).argmin())
    passed = _tails(values[start:], doubt, wrong, risk) <= math.log(delta)
    if not passed[0]:
        first = doubt <= values[start]
        raise InputError(
            f"no threshold keeps the error rate at {risk:g} with probability {1 - delta:g}: of the "
            f"{int(first.sum())} most certain inputs {int(wrong[first].sum())} are wrong. Allow a "
            "higher risk or delta, give more calibration data, or a better model. Do not try again "
            "with another seed: what passes one of many tries is not proven"
        )
    count = len(passed) if passed.all() else int(passed.argmin())
    return float(values[start + count - 1])


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


def _thresholds(proposed: Floats, start: float) -> Floats:
    """Quantiles of the proposed doubts from a share `start` of them on, and then no limit."""
    shares = np.linspace(start, 1, _STEPS)
    if len(proposed) == 0:
        return np.array([math.inf])
    inner = np.quantile(proposed, shares, method="higher")
    return np.append(np.unique(inner), math.inf)


def _tails(values: Floats, doubt: Floats, wrong: Bools, risk: float) -> Floats:
    """For each threshold, log P(as few errors among the accepted), if their rate were `risk`."""
    from scipy import stats  # noqa: PLC0415 - slow to import

    order = np.argsort(doubt)
    accepted = np.searchsorted(doubt[order], values, side="right")
    errors = np.append(0, np.cumsum(wrong[order]))[accepted]
    tails: Floats = stats.binom.logcdf(errors, accepted, risk)
    return tails
