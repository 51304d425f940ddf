"""Online conformal ranks, and a test martingale that bets against them; see `docs/monitor.md`.

*Ranks.* Each score is ranked among all that came before it, which makes its p-value uniform and
independent of the others while the scores are exchangeable. Counts of earlier scores are arrays
(2, m): how many are above each of m scores, and how many equal it.

*Bets.* Bettor j multiplies its stake by f_j(p): ε p^(ε−1), which grows when scores rise, or the
same of 1 − p, when they fall. Each has mean one if p is uniform. Of the money that waits, w_n is
put on the table at input n, in equal parts, so that a change late in the stream finds fresh stakes:

    S_{j,n} = (S_{j,n−1} + w_n) f_j(p_n),    M_n = mean_j S_{j,n} + 1 − Σ_{k≤n} w_k
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from gemfi.metrics import Floats, Ints

BLOCK: Final = 256  # scores that wait unsorted before they become a run
RATIO: Final = 16  # runs are merged unless one has more than so many times the scores of the next
EXPONENTS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)  # small ε for strong changes, large for weak ones
BETTORS: Final = 2 * len(EXPONENTS)  # first those on rising scores, then those on falling ones

_DRAWN: Final = 4096  # uniform numbers at a time
# A caller's own generator of the same seed draws otherwise: draws that the scores came from would
# not be independent of them, and the test would fire by itself.
_DRAWS: Final = 7_031_978
_LOGS: Final = np.log(EXPONENTS)
_POWERS: Final = np.array(EXPONENTS) - 1


# -- ranks ----------------------------------------------------------------------------------------


def counts_among(ascending: Floats, scores: Floats) -> Ints:
    """Counts (2, m) of scores (m,) among sorted numbers."""
    first = ascending.searchsorted(scores, side="left")
    last = ascending.searchsorted(scores, side="right")
    return np.array([len(ascending) - last, last - first])


@dataclass(frozen=True, eq=False)
class Order:
    """Scores that can be counted and added to, each addition in O(log² n) on average.

    A few sorted runs, each much longer than the next, and an unsorted rest. It never changes: an
    addition makes another one that shares the long runs. 8 bytes a score.
    """

    runs: tuple[Floats, ...] = ()  # each ascending
    rest: Floats = field(default_factory=lambda: np.empty(0))  # fewer than `BLOCK`

    @classmethod
    def of(cls, scores: Floats) -> Order:
        """From scores at once, when nobody asks for their ranks."""
        return cls((np.sort(scores),)) if len(scores) else cls()

    def __len__(self) -> int:
        return sum(map(len, self.runs)) + len(self.rest)

    def ascending(self) -> Floats:
        """All of them, sorted."""
        return np.sort(np.concatenate([*self.runs, self.rest]))

    def extended(self, scores: Floats) -> tuple[Ints, Order]:
        """Counts (2, m) of each score (m,) among all before it, and the order with all of them."""
        order, start = self, 0
        counts = np.empty((2, len(scores)), np.int64)
        while start < len(scores):
            part = slice(start, start + BLOCK - len(order.rest))
            counts[:, part], order = order._with_block(scores[part])
            start = part.stop
        return counts, order

    def _with_block(self, block: Floats) -> tuple[Ints, Order]:
        rest = np.concatenate([self.rest, block])
        counts = _counts_before(rest, len(self.rest))
        for run in self.runs:
            counts += counts_among(run, block)
        if len(rest) < BLOCK:
            return counts, Order(self.runs, rest)
        runs, last = list(self.runs), np.sort(rest)
        while runs and len(runs[-1]) <= RATIO * len(last):
            last = np.concatenate([runs.pop(), last])
            last.sort(kind="stable")  # two sorted parts are merged in one pass
        return counts, Order((*runs, last))


def _counts_before(scores: Floats, start: int) -> Ints:
    """Counts (2, m) of scores[start:], each among those before it, by comparing every pair."""
    asked = scores[start:, None]
    if len(asked) == 1:  # most of the time of a stream that comes one by one
        before = scores[:start]
        return np.array([(before > asked).sum(axis=1), (before == asked).sum(axis=1)])
    earlier = np.tri(len(asked), len(scores), start - 1, dtype=np.bool_)
    pairs = (scores > asked) & earlier, (scores == asked) & earlier
    return np.array([pair.sum(axis=1) for pair in pairs])


def p_values(counts: Ints, total: Ints, uniform: Floats) -> tuple[Floats, Floats]:
    """Smoothed conformal p-values (m,), and one minus them without loss of digits.

    p = (#above + u·(#equal + 1)) / total, with (2, m) counts among the earlier scores, `total`
    scores up to each, itself included, and u in (0, 1). If these are exchangeable, p is uniform and
    independent of the earlier p-values. A high score has a small p.
    """
    above, equal = counts
    tied = equal + 1
    return (above + uniform * tied) / total, (total - above - tied + (1 - uniform) * tied) / total


def draws(seed: int, stream: int, start: int, count: int) -> Floats:
    """Uniform numbers (count,) in (0, 1), from a place of a stream on; the seed decides."""
    first, last = start // _DRAWN, (start + count) // _DRAWN
    blocks = [_block_of_draws(seed, stream, block) for block in range(first, last + 1)]
    return np.concatenate(blocks)[start - first * _DRAWN :][:count]


@lru_cache(maxsize=8)
def _block_of_draws(seed: int, stream: int, block: int) -> Floats:
    bits = np.random.PCG64([_DRAWS, seed, stream, block]).random_raw(_DRAWN)
    places = (bits >> np.uint64(12)).astype(np.float64)
    numbers: Floats = (places + 0.5) * 2.0**-52  # 52 bits and a half: never 0 or 1, 1 − u is exact
    numbers.flags.writeable = False  # it is shared
    return numbers


# -- bets -----------------------------------------------------------------------------------------


def log_reserve(n: Ints) -> Floats:
    """Log of the money that still waits after input n: 1 − Σ_{k≤n} w_k = ln 2 / ln(n + 2)."""
    return np.asarray(np.log(math.log(2) / np.log(n + 2.0)))


def log_new_stake(n: Ints) -> Floats:
    """Log of w_n = ln 2 / ln(n + 1) − ln 2 / ln(n + 2), about ln 2 / (n ln² n); n from 1 on."""
    below, above = np.log(n + 1.0), np.log(n + 2.0)
    return np.asarray(np.log(math.log(2) * np.log1p(1 / (n + 1.0)) / (below * above)))


def play(before: Floats, count: int, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Log S_{j,n} (m, BETTORS) and log M_n (m,) after each of m more inputs.

    `before` are the log stakes (BETTORS,) after `count` inputs; p and q are as of `p_values`.
    """
    n = np.arange(count + 1, count + len(p) + 1)
    logs = np.log(np.array([p, q])).T[:, :, None]  # (m, 2, 1)
    bets = (_LOGS + _POWERS * logs).reshape(len(p), BETTORS)
    stakes, last = np.empty_like(bets), before
    for bet, new, row in zip(bets, log_new_stake(n), stakes, strict=True):
        last = np.add(np.logaddexp(last, new), bet, out=row)
    played = np.logaddexp.reduce(stakes, axis=1) - math.log(BETTORS)
    return stakes, np.logaddexp(played, log_reserve(n))


def no_stakes() -> Floats:
    """Log S_{j,0} (BETTORS,), of a stream without inputs."""
    return np.full(BETTORS, -np.inf)


def is_rise(stakes: Floats) -> bool:
    """Whether those who bet on rising scores hold most of the log stakes (BETTORS,)."""
    rising, falling = np.logaddexp.reduce(stakes.reshape(2, -1), axis=1)
    return bool(rising >= falling)
