"""Online conformal ranks: where a score lies among all that came before it, exactly and quickly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from gemfi.metrics import Floats, Ints

BLOCK: Final = 256
"""Scores that wait unsorted before they become a run."""

RATIO: Final = 16
"""A run has more than this many times the scores of the next one, or they are merged."""

DRAWN: Final = 4096
"""Uniform numbers that are drawn at a time."""

_DRAWS: Final = 7_031_978
"""So that a caller's own generator of the same seed draws otherwise: draws that the scores came
from would not be independent of them, and the test would fire by itself."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Of each of m scores, how many earlier ones are above it and how many equal it.

    Attributes:
        above: (m,).
        equal: (m,).
    """

    above: Ints
    equal: Ints

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.above + other.above, self.equal + other.equal)


def counts_among(ascending: Floats, scores: Floats) -> Counts:
    """Counts of scores (m,) among sorted numbers."""
    first = ascending.searchsorted(scores, side="left")
    last = ascending.searchsorted(scores, side="right")
    return Counts(len(ascending) - last, last - first)


@dataclass(frozen=True, eq=False)
class Order:
    """Scores that can be counted and added to, each addition in O(log² n) on average.

    A few sorted runs, each much longer than the next, and an unsorted rest. It never changes: an
    addition makes another one that shares the long runs. 8 bytes a score.

    Attributes:
        runs: each ascending.
        rest: fewer than `BLOCK` scores.
    """

    runs: tuple[Floats, ...] = ()
    rest: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, scores: Floats) -> Order:
        """From scores at once, when nobody asks for their ranks."""
        return cls((np.sort(scores),)) if len(scores) else cls()

    def __len__(self) -> int:
        return sum(map(len, self.runs)) + len(self.rest)

    def ascending(self) -> Floats:
        """All of them, sorted."""
        return np.sort(np.concatenate([*self.runs, self.rest]))

    def extended(self, scores: Floats) -> tuple[Counts, Order]:
        """Counts of each score (m,) among all before it, and the order with all of them."""
        if len(scores) < BLOCK - len(self.rest):
            return self._with_block(scores)
        order, start = self, 0
        above, equal = np.empty(len(scores), np.int64), np.empty(len(scores), np.int64)
        while start < len(scores):
            part = slice(start, start + BLOCK - len(order.rest))
            counts, order = order._with_block(scores[part])
            above[part], equal[part] = counts.above, counts.equal
            start = part.stop
        return Counts(above, equal), order

    def _with_block(self, block: Floats) -> tuple[Counts, Order]:
        rest = np.concatenate([self.rest, block])
        counts = _counts_before(rest, len(self.rest))
        for run in self.runs:
            counts += counts_among(run, block)
        if len(rest) < BLOCK:
            return counts, Order(self.runs, rest)
        return counts, Order(_merged((*self.runs, np.sort(rest))))


def _counts_before(scores: Floats, start: int) -> Counts:
    """Counts of scores[start:], each among those before it, by comparing every pair."""
    asked = scores[start:, None]
    if len(asked) == 1:  # most of the time of a stream that comes one by one
        before = scores[:start]
        return Counts((before > asked).sum(axis=1), (before == asked).sum(axis=1))
    earlier = np.tri(len(asked), len(scores), start - 1, dtype=np.bool_)
    above = ((scores > asked) & earlier).sum(axis=1)
    equal = ((scores == asked) & earlier).sum(axis=1)
    return Counts(above, equal)


def _merged(runs: tuple[Floats, ...]) -> tuple[Floats, ...]:
    """Runs whose last two are of similar length become one."""
    *before, last = runs
    while before and len(before[-1]) <= RATIO * len(last):
        last = np.concatenate([before.pop(), last])
        last.sort(kind="stable")  # two sorted parts are merged in one pass
    return (*before, last)


def p_values(counts: Counts, total: Ints, uniform: Floats) -> tuple[Floats, Floats]:
    """Smoothed conformal p-values (m,), and one minus them without loss of digits.

    p = (#above + u·(#equal + 1)) / total, where the score itself is one of the equal. If the total
    scores are exchangeable, p is uniform and independent of the earlier p-values. A high score has
    a small p.

    Args:
        counts: of each score among the earlier ones.
        total: (m,) how many scores there are up to it, itself included.
        uniform: (m,) in (0, 1), one draw a score.
    """
    tied = counts.equal + 1
    below = total - counts.above - tied
    return (counts.above + uniform * tied) / total, (below + (1 - uniform) * tied) / total


class Draws:
    """Uniform numbers in (0, 1) that depend on the seed, the stream and the place, on nothing else.

    Args:
        seed: of the numbers.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._block: tuple[int, int, Floats] = (-1, -1, np.empty(0))  # the last one, as a cache

    def take(self, stream: int, start: int, count: int) -> Floats:
        """The numbers (count,) of a stream from a place on."""
        first, last = start // DRAWN, (start + count) // DRAWN
        blocks = [self._of(stream, block) for block in range(first, last + 1)]
        return np.concatenate(blocks)[start - first * DRAWN :][:count]

    def _of(self, stream: int, block: int) -> Floats:
        if self._block[:2] != (stream, block):
            bits = np.random.PCG64([_DRAWS, self.seed, stream, block]).random_raw(DRAWN)
            places = (bits >> np.uint64(12)).astype(np.float64)
            # 52 bits and a half: never 0 or 1, and one minus it is exact
            self._block = (stream, block, (places + 0.5) * 2.0**-52)
        return self._block[2]
