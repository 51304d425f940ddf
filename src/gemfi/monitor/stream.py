"""A stream so far: it never changes, an update makes another one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from gemfi.metrics import Floats, Ints
from gemfi.monitor import betting
from gemfi.monitor.history import History
from gemfi.monitor.ranks import Order, counts_among, p_values
from gemfi.monitor.state import Direction

RECENT: Final = 100
"""Inputs that the median of p is of."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the bets have come to.

    Attributes:
        log_stakes: (BETTORS,) of each bettor.
        log_wealth: the martingale's logarithm.
        log_largest: the largest it has been.
        largest_at: the input at which it was; None for the beginning.
        fired_at: the input at which it first reached the limit.
        direction: of the scores then.
    """

    log_stakes: Floats = field(default_factory=lambda: np.full(betting.BETTORS, -np.inf))
    log_wealth: float = 0.0
    log_largest: float = 0.0
    largest_at: int | None = None
    fired_at: int | None = None
    direction: Direction | None = None

    def extended(
        self, count: int, p: Floats, q: Floats, log_limit: float
    ) -> tuple[Evidence, Floats]:
        """With the bets on m ≥ 1 more inputs; and the log wealth (m,) after each.

        Args:
            count: how many inputs there were before.
            p: (m,) p-values.
            q: (m,) one minus them.
            log_limit: at which it fires.
        """
        n = np.arange(count + 1, count + len(p) + 1)
        stakes = betting.log_stakes(self.log_stakes, betting.log_bets(p, q), n)
        wealth = betting.log_wealth(stakes, n)
        top = int(wealth.argmax())
        is_larger = wealth[top] > self.log_largest
        fired_at, direction = self.fired_at, self.direction
        if fired_at is None and wealth[top] >= log_limit:
            first = int((wealth >= log_limit).argmax())
            fired_at = count + first
            direction = "rise" if betting.is_rise(stakes[first]) else "fall"
        after = Evidence(
            stakes[-1].copy(),  # not a view, which would hold the stakes after every input
            float(wealth[-1]),
            float(wealth[top]) if is_larger else self.log_largest,
            count + top if is_larger else self.largest_at,
            fired_at,
            direction,
        )
        return after, wealth


@dataclass(frozen=True, eq=False)
class Stream:
    """Everything that a monitor knows of a stream.

    Attributes:
        order: the scores.
        evidence: the bets on them.
        history: for the figure.
        recent: (at most `RECENT`,) ranks of the last inputs among calibration scores, see `ranks`.
    """

    order: Order = field(default_factory=Order)
    evidence: Evidence = field(default_factory=Evidence)
    history: History = field(default_factory=History)
    recent: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.order)

    def extended(
        self, scores: Floats, uniform: Floats, reference: Floats, false_alarm: float
    ) -> Stream:
        """With m ≥ 1 more inputs.

        Args:
            scores: (m,) of them.
            uniform: (m,) that break ties.
            reference: (n,) calibration scores, ascending.
            false_alarm: at whose inverse it fires.
        """
        count = len(self)
        inside = counts_among(reference, scores)
        outside, order = self.order.extended(scores)
        total = len(reference) + np.arange(count + 1, count + len(scores) + 1)
        p, q = p_values(inside + outside, total, uniform)
        evidence, wealth = self.evidence.extended(count, p, q, -math.log(false_alarm))
        ranks = 2 * inside.above + inside.equal + 1
        history = self.history.extended(count, wealth, ranks)
        return Stream(order, evidence, history, np.append(self.recent, ranks)[-RECENT:])


def mean_p(ranks: Ints | Floats, reference: int) -> Floats:
    """Ranks among n calibration scores, 2·#above + #equal + 1, as p-values in (0, 1).

    p = (#above + (#equal + 1) / 2) / (n + 1): as `p_values`, against calibration data alone, with
    ties at their mean. It describes a stream; no bet is made on it.
    """
    return np.asarray(ranks / (2.0 * (reference + 1)))
