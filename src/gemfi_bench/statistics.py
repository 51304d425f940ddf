"""How sure a number is: intervals over seeds and over samples, and what they let one say.

Two sources of chance are kept apart. Over **seeds**, runs of the same seed are paired and the
interval is Student's. Over **samples**, a single run is resampled by the bootstrap (here for the
numbers of a table, in `resampling.py` for any difference), which says how much the test set was
lucky, but not how another seed would have done. A difference is called one only where its interval
excludes the contrary, and never below three seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch

from gemfi import metrics
from gemfi._config import check_choice, check_int, check_number, check_seed
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
    """By how much a exceeds b.

    Attributes:
        estimate: mean of a - b over the seeds.
        interval: of that mean; None where nothing is known of it.
        n: how many seeds.
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

    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> round(found.low, 3), round(found.high, 3)
    (-0.484, 4.484)
    """
    check_number("level", level, above=0.0, below=1.0)
    sample = _finite("values", values)
    if len(sample) < 2:
        raise InputError(f"an interval of a mean needs at least 2 values, got {len(sample)}")
    mean = float(sample.mean())
    error = float(sample.std(ddof=1)) / math.sqrt(len(sample))
    half = _student_quantile(len(sample) - 1, level) * error
    return Interval(mean - half, mean + half, mean)


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    level: float = 0.95,
    *,
    bootstrap: Interval | None = None,
) -> Difference:
    """By how much a exceeds b, paired: a[i] and b[i] are of the same seed.

    Args:
        a: a number of one method, one a seed.
        b: that of the other.
        level: of the interval.
        bootstrap: the interval over samples, for a single seed, or seeds that are `alike`;
            otherwise the interval is Student's, as only that knows how seeds differ.
    """
    first, second = _finite("a", a), _finite("b", b)
    if len(first) != len(second):
        raise InputError(
            f"a has {len(first)} values but b has {len(second)}; give those of the same seeds"
        )
    gap = first - second
    interval = bootstrap if alike(gap.tolist()) else mean_interval(gap.tolist(), level)
    return Difference(float(gap.mean()), interval, len(gap))


def alike(values: Sequence[float]) -> bool:
    """Whether seeds say nothing about chance: there is one, or their numbers are all the same.

    Numbers of a density on frozen features are: no seed has a part in it.

    >>> alike([98.5, 98.5]), alike([98.5, 98.4])
    (True, False)
    """
    return max(values) - min(values) < _ALIKE


def verdict(difference: Difference, margin: float = 0.0, better: Better = "high") -> Outcome:
    """What a difference says about the claim that a is better than b by more than `margin`.

    Supported where the whole interval lies beyond the margin, refuted where the whole interval
    lies short of it, undecided otherwise: with no interval, one that touches the margin, or few
    seeds.

    Args:
        difference: a - b.
        margin: by how much a must be better, in the unit of the metric; counted as better.
        better: whether high or low numbers are good.
    """
    check_choice("better", better, ("high", "low"))
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

    Args:
        difference: with its interval.
        judge: from the interval to the outcome.
    """
    if difference.interval is None or difference.few_seeds:
        return "undecided"
    return judge(difference.interval)


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

    Args:
        runs: uncertainties of ID samples and of OOD samples, a pair a run.
        metric: `auroc`, `aupr_id` or `aupr_ood`.
        resamples: how many.
        seed: of the resampling.
        level: of the interval.
    """
    check_choice("metric", metric, _FROM_COUNTS)
    _check_resampling(resamples, seed, level)
    rankings = [_Sorted.of(*each, metric) for each in runs]
    sizes = {(len(each.id_group), len(each.ood_group)) for each in rankings}
    if len(sizes) != 1:
        raise InputError(f"runs must have scored the same samples, got {sorted(sizes)} of them")
    rng = np.random.default_rng(seed)
    draws = (rankings[0].draw(rng) for _ in range(resamples))
    found = [float(np.mean([each.resampled(*draw) for each in rankings])) for draw in draws]
    return _percentiles(found, float(np.mean([each.estimate for each in rankings])), level)


def spearman(x: Values, y: Values) -> float:
    """Spearman's ρ, ties sharing their mean rank; NaN where x or y is constant.

    >>> spearman([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    0.5
    """
    return rank_correlation(torch.from_numpy(_array(x)), torch.from_numpy(_array(y)))


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Scores sorted once: a resample is then a matter of counts and cumulative sums."""

    id_group: Ints  # (n_id,), index of the sample's score among the distinct ones, from low
    ood_group: Ints  # (n_ood,)
    groups: int
    metric: Detection
    estimate: float

    @classmethod
    def of(cls, id_scores: Values, ood_scores: Values, metric: Detection) -> _Sorted:
        estimate = float(getattr(metrics, metric)(id_scores, ood_scores))  # which checks the scores
        inside, outside = _array(id_scores), _array(ood_scores)
        distinct, group = np.unique(np.concatenate([inside, outside]), return_inverse=True)
        cut = len(inside)
        return cls(group[:cut], group[cut:], len(distinct), metric, estimate)

    def draw(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Samples drawn with replacement, as many as there are, ID and OOD apart."""
        n_id, n_ood = len(self.id_group), len(self.ood_group)
        return rng.integers(0, n_id, n_id), rng.integers(0, n_ood, n_ood)

    def resampled(self, inside: Ints, outside: Ints) -> float:
        """The metric of a draw."""
        n_id = np.bincount(self.id_group[inside], minlength=self.groups)
        n_ood = np.bincount(self.ood_group[outside], minlength=self.groups)
        return _FROM_COUNTS[self.metric](n_id, n_ood)


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


def _percentiles(found: Sequence[float], estimate: float, level: float) -> Interval:
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), estimate)


def _student_quantile(freedom: int, level: float) -> float:
    """The t that |T| stays below with probability `level`, for a whole number of degrees.

    Found by halving the angle θ of t = √ν tan θ, in which the probability is a finite sum.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # an angle has 53 bits
        angle = (low + high) / 2
        if _student_within(freedom, angle) < level:
            low = angle
        else:
            high = angle
    return math.sqrt(freedom) * math.tan(low)


def _student_within(freedom: int, angle: float) -> float:
    """P(|T| <= √ν tan θ), by integrating cos^(ν-1) from 0 to θ in parts."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * power / (power + 1)
    return (angle + sine * total) * 2 / math.pi if odd else sine * total


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


def _check_resampling(resamples: int, seed: int, level: float) -> None:
    check_int("resamples", resamples, 1)
    check_seed("seed", seed)
    check_number("level", level, above=0.0, below=1.0)
