"""Bounds that a published number cannot cross, whatever the model.

All arguments and results are shares in [0, 1]; the audit speaks in percent.

Notation: t is the recall, f(t) the share of negatives that rank above it, π the base rate (share
of positives) and r = (1 - π)/π. Then AP = ∫ t/(t + r·f(t)) dt and AUROC = 1 - ∫ f(t) dt, with f
from 0 to 1 and never falling.

At a fixed base rate each bound holds for means over runs as it does for one run: the upper ones are
concave and the lower ones convex in what they are given (Jensen).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gemfi._config import check_choice, check_number

_HALVINGS = 40  # leaves 1e-12 of an interval


def least_brier(accuracy: float, convention: str = "sum") -> float:
    """The smallest Brier score that a classifier of ten classes can have at an accuracy.

    An error has a class j ≠ y with p_j ≥ p_y. With a = p_y and b = p_j, of which a + b ≤ 1,
    Σ d² ≥ (1 - a)² + b² ≥ (1 - a)² + a² ≥ ½, reached by a tie a = b = ½. What is right can cost
    nothing. So the score is at least ½·(1 - accuracy) as a `sum`, a tenth of it as a `mean`.

    >>> round(100 * least_brier(0.9334), 2)
    3.33
    """
    check_choice("convention", convention, ("sum", "mean"))
    check_number("accuracy", accuracy, 0, 1)
    return 0.5 * (1 - accuracy) / (10 if convention == "mean" else 1)


def largest_ap(auroc: float, base_rate: float) -> float:
    """The largest average precision of an AUROC, for scores without ties.

    Precision t/(t + r·f) is convex in f, so it lies below its chord between f = 0 and f = 1:
    AP ≤ 1 - ∫ f·r/(t + r) dt. The weight r/(t + r) falls with t, so a fixed ∫ f = 1 - AUROC costs
    least where t is largest: f = 1 above t = AUROC, 0 below it. That curve ranks a share AUROC of
    the positives above every negative and the others below every negative, and has

        AP = 1 - r·ln((1 + r)/(AUROC + r)).

    With n positives a sample may pass this by about 1/n.

    >>> round(100 * largest_ap(0.8129, 10000 / 36032), 1)
    86.1
    """
    r = _odds(base_rate, auroc=auroc)
    return 1 - r * math.log((1 + r) / (auroc + r))


def largest_ap_with_ties(auroc: float, base_rate: float) -> float:
    """The largest average precision of an AUROC, ties and small samples included.

    A group of tied scores has the precision of its end, T/(T + r·F) ≤ 1 - r·F/(T + r) by the same
    chord, and T ≤ 1 makes that at most 1 - (1 - π)·F. In the AUROC the group counts (F₀ + F)/2 of
    negatives above, which is at most F. Summed over groups,

        AP ≤ 1 - (1 - π)·(1 - AUROC),

    reached when the positives that rank below every negative all tie.

    >>> round(100 * largest_ap_with_ties(0.8129, 10000 / 36032), 1)
    86.5
    """
    _odds(base_rate, auroc=auroc)
    return 1 - (1 - base_rate) * (1 - auroc)


def least_auroc(ap: float, base_rate: float) -> float:
    """The smallest AUROC that an average precision needs: `largest_ap_with_ties` turned round.

    >>> round(100 * least_auroc(0.9994, 0.9375), 2)
    99.04
    """
    _odds(base_rate, ap=ap)
    return max(0.0, 1 - (1 - ap) / (1 - base_rate))


def least_ap(auroc: float, base_rate: float) -> float:
    """The smallest average precision of an AUROC, for scores without ties.

    AP is convex in f, so the minimum of AP + μ·∫ f is where its derivative is 0 at each t:
    t + r·f = √(c·t), with c = r/μ. This f rises while t < c/4. Where it would fall or pass 1, the
    best f that never falls is flat from some s on, at r·f = k. With s + k = √(c·s),

        1 - AUROC = (⅔·s·(s + k) - ½·s² + k·(1 - s)) / r
        AP = ⅔·s²/(s + k) + 1 - s - k·ln((1 + k)/(s + k)).

    While k < r, s follows from k (the mean derivative over the flat part is 0); at k = r the curve
    is at the top, and s runs down to 0. Both areas grow along this path, so that the point of the
    AUROC is found by halving.

    >>> round(100 * least_ap(0.5, 0.5), 1)  # worse than a constant score, which ties, at 50
    44.5
    """
    r = _odds(base_rate, auroc=auroc)
    start_at_top = _flat_from(r)
    if 1 - auroc <= _area_above(start_at_top, r, r):
        k = _halve(lambda k: _area_above(_flat_from(k), k, r) < 1 - auroc, 0.0, r)
        return _least_precision(_flat_from(k), k)
    s = _halve(lambda s: _area_above(s, r, r) > 1 - auroc, 0.0, start_at_top)
    return _least_precision(s, r)


def least_ap_with_ties(auroc: float, base_rate: float) -> float:
    """An average precision that none of an AUROC is below, ties included; no tie may reach it.

    Let a group of tied scores end at (T, F). Give all its recalls t ≤ T the value F: that f never
    falls, and t/(t + r·F) ≤ T/(T + r·F), the group's precision. The AUROC counts at least F/2 for
    the group, so ∫ f ≤ 2·(1 - AUROC), and `least_ap` of that area is below the AP.
    """
    return least_ap(max(0.0, 2 * auroc - 1), base_rate)


def _flat_from(k: float) -> float:
    """The recall s from which the lowest precision curve of level k is flat; 1 where never."""
    if k >= 1:
        return 1.0

    def too_early(s: float) -> bool:
        # the mean over (s, 1) of t/(t + k)², against its value at s
        mean = math.log((1 + k) / (s + k)) + k / (1 + k) - k / (s + k)
        return mean * (s + k) ** 2 > (1 - s) * s

    return _halve(too_early, 0.0, k)


def _area_above(s: float, k: float, r: float) -> float:
    return (2 / 3 * s * (s + k) - s * s / 2 + k * (1 - s)) / r


def _least_precision(s: float, k: float) -> float:
    if s + k == 0:
        return 1.0
    return 2 / 3 * s * s / (s + k) + 1 - s - k * math.log((1 + k) / (s + k))


def _halve(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition that is true first and false later changes."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if is_below(middle):
            low = middle
        else:
            high = middle
    return high


def _odds(base_rate: float, **shares: float) -> float:
    """Negatives for each positive; refuses a bad base rate and bad shares."""
    for name, value in shares.items():
        check_number(name, value, 0, 1)
    check_number("base_rate", base_rate, above=0, below=1)
    return (1 - base_rate) / base_rate
