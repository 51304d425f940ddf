"""How sure a number is: intervals over seeds and over samples, and what they let one say.

Over **seeds**, runs of the same seed are paired and the interval is Student's. Over **samples**, a
run is resampled by the bootstrap (here for the numbers of a table, in `resampling.py` for any
difference): that says how lucky the test set was, but not how another seed would have done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch
from scipy.special import stdtrit

from gemfi import metrics
from gemfi.diagnosis import rank_correlation
from gemfi.errors import InputError
from gemfi.metrics import Floats, Ints, Values
from gemfi_bench.tabular import Better

Detection = Literal["auroc", "aupr_id", "aupr_ood"]
Outcome = Literal["supported", "refuted", "undecided"]

_ALIKE: Final = 1e-9  # records hold six digits

SEEDS_NEEDED: Final = 3
"""Below this many seeds nothing is decided."""


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval around it."""

    low: float
    high: float
    estimate: float


@dataclass(frozen=True)
class Difference:
    """By how much a exceeds b: the mean of a - b over `n` seeds.

    `interval` is that of the mean; None where nothing is known of it.
    """

    estimate: float
    interval: Interval | None
    n: int

    @property
    def few_seeds(self) -> bool:
        """Whether there are too few seeds to decide anything."""
        return self.n < SEEDS_NEEDED


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Student's interval of a mean, m ± t · s / √n, over at least two seeds.

    >>> interval = mean_interval([1.0, 2.0, 3.0])
    >>> round(interval.low, 3), round(interval.high, 3)
    (-0.484, 4.484)
    """
    sample = _finite("values", values)
    if len(sample) < 2:
        raise InputError(f"an interval of a mean needs at least 2 values, got {len(sample)}")
    mean = float(sample.mean())
    error = float(sample.std(ddof=1)) / math.sqrt(len(sample))
    half = float(stdtrit(len(sample) - 1, (1 + level) / 2)) * error
    return Interval(mean - half, mean + half, mean)


def paired_difference(
    a: Sequence[float], b: Sequence[float], *, bootstrap: Interval | None = None
) -> Difference:
    """By how much a exceeds b, paired: a[i] and b[i] are of the same seed.

    `bootstrap` is the interval over samples, for a single seed, or seeds that are `alike`;
    otherwise the interval is Student's, as only that knows how seeds differ.
    """
    first, second = _finite("a", a), _finite("b", b)
    if len(first) != len(second):
        raise InputError(
            f"a has {len(first)} values but b has {len(second)}; give those of the same seeds"
        )
    gaps = (first - second).tolist()
    interval = bootstrap if alike(gaps) else mean_interval(gaps)
    return Difference(float(np.mean(gaps)), interval, len(gaps))


def alike(values: Sequence[float]) -> bool:
    """Whether seeds say nothing about chance: there is one, or their numbers are all the same.

    So are those of a density on frozen features, which does not depend on the seed.

    >>> alike([98.5, 98.5]), alike([98.5, 98.4])
    (True, False)
    """
    return max(values) - min(values) < _ALIKE


def verdict(difference: Difference, margin: float = 0.0, better: Better = "high") -> Outcome:
    """What a difference says about the claim that a is better than b by more than `margin`.

    Supported where the whole interval lies beyond the margin, refuted where the whole interval
    lies short of it, undecided otherwise, and where `decided` says so. With `better="low"`, a is
    better where a - b is below -margin.
    """
    sign = 1.0 if better == "high" else -1.0

    def judge(interval: Interval) -> Outcome:
        least, most = sorted((sign * interval.low, sign * interval.high))
        if least > margin:
            return "supported"
        return "refuted" if most < margin else "undecided"

    return decided(difference, judge)


def decided(difference: Difference, judge: Callable[[Interval], Outcome]) -> Outcome:
    """What the interval of a difference says; undecided without one, and below three seeds.

    An interval over samples does not know how another seed would have done.
    """
    if difference.interval is None or difference.few_seeds:
        return "undecided"
    return judge(difference.interval)


def spearman(x: Values, y: Values) -> float:
    """Spearman's ρ, ties sharing their mean rank; NaN where x or y is constant.

    >>> spearman([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    0.5
    """
    return rank_correlation(torch.from_numpy(_array(x)), torch.from_numpy(_array(y)))


# -- the bootstrap --------------------------------------------------------------------------------


def bootstrap_ood(
    runs: Sequence[tuple[Values, Values]],
    metric: Detection,
    resamples: int = 500,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Percentile bootstrap of the mean of an OOD metric over runs that scored the same samples.

    ID and OOD samples are resampled apart, so that the base rate stays, and for all runs alike.
    Where the two sets do not overlap every resample is perfect, and the interval has no width.

    `runs` holds the uncertainties of ID and of OOD samples, a pair a run.
    """
    pairs = [(_array(inside), _array(outside)) for inside, outside in runs]
    estimates = [float(getattr(metrics, metric)(*pair)) for pair in pairs]  # which checks them
    sizes = {(len(inside), len(outside)) for inside, outside in pairs}
    if len(sizes) != 1:
        raise InputError(f"runs must have scored the same samples, got {sorted(sizes)} of them")
    n_id, n_ood = sizes.pop()
    resampled = [resampler(*pair, metric) for pair in pairs]
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(resamples):
        draw = rng.integers(0, n_id, n_id), rng.integers(0, n_ood, n_ood)
        values.append(float(np.mean([of_draw(*draw) for of_draw in resampled])))
    return percentile_interval(values, float(np.mean(estimates)), level)


def percentile_interval(values: Sequence[float], estimate: float, level: float) -> Interval:
    """The interval of an estimate, from the values that its resamples have."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), estimate)


def resampler(
    id_scores: Floats, ood_scores: Floats, metric: Detection
) -> Callable[[Ints, Ints], float]:
    """The metric of drawn samples, given the indices of the ID and the OOD ones.

    Scores are sorted once: a resample is then a matter of counts and cumulative sums.
    """
    distinct, group = np.unique(np.concatenate([id_scores, ood_scores]), return_inverse=True)
    id_group, ood_group = group[: len(id_scores)], group[len(id_scores) :]

    def of_draw(inside: Ints, outside: Ints) -> float:
        n_id = np.bincount(id_group[inside], minlength=len(distinct))
        n_ood = np.bincount(ood_group[outside], minlength=len(distinct))
        return _FROM_COUNTS[metric](n_id, n_ood)

    return of_draw


def _auroc(n_id: Ints, n_ood: Ints) -> float:
    below_twice = 2 * np.cumsum(n_id) - n_id  # ID below, twice; a tie is half
    return 100.0 * int(n_ood @ below_twice) / (2 * int(n_id.sum()) * int(n_ood.sum()))


def _average_precision(positive: Ints, negative: Ints) -> float:
    hits = np.cumsum(positive)
    called = np.maximum(hits + np.cumsum(negative), 1)  # scores that a resample left out: 0 of 0
    total = float((positive * (hits / called)).sum())  # `@` would call several threads to this
    return 100.0 * total / int(hits[-1])


_FROM_COUNTS: Final[dict[Detection, Callable[[Ints, Ints], float]]] = {
    "auroc": _auroc,
    "aupr_id": _average_precision,
    "aupr_ood": lambda n_id, n_ood: _average_precision(n_ood[::-1], n_id[::-1]),
}
"""Each metric from how many ID and OOD samples hold each distinct score, from low to high."""


def _finite(name: str, values: Sequence[float]) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or len(numbers) == 0:
        raise InputError(f"{name} must hold one number a seed, got shape {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} must be finite, got {numbers.tolist()}")
    return numbers


def _array(values: Values) -> Floats:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy()
    return np.array(values, dtype=np.float64)
