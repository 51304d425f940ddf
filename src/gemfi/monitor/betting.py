"""A test martingale: the wealth of one who bets that p-values are not uniform.

Bettor j multiplies its stake by f_j(p): ε p^(ε−1), which grows when scores rise, or the same of
1 − p, when they fall. Each has mean one if p is uniform. Of the money that waits, w_n is put on the
table at input n, in equal parts, so that a change late in the stream finds fresh stakes:

    S_{j,n} = (S_{j,n−1} + w_n) f_j(p_n),    M_n = mean_j S_{j,n} + 1 − Σ_{k≤n} w_k
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from gemfi.metrics import Floats, Ints

EXPONENTS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)
"""The ε: small ones for strong changes, those near one for weak ones."""

BETTORS: Final = 2 * len(EXPONENTS)
"""First those on rising scores, then those on falling ones."""

_LOGS: Final = np.log(EXPONENTS)
_POWERS: Final = np.array(EXPONENTS) - 1


def log_bets(p: Floats, q: Floats) -> Floats:
    """Log of what each bettor's stake is multiplied by, (m, BETTORS).

    Args:
        p: (m,) p-values.
        q: (m,) one minus them.
    """
    logs = np.log(np.array([p, q])).T  # (m, 2)
    return np.asarray((_LOGS + _POWERS * logs[:, :, None]).reshape(len(p), BETTORS))


def log_reserve(n: Ints) -> Floats:
    """Log of the money that still waits after input n: 1 − Σ_{k≤n} w_k = ln 2 / ln(n + 2)."""
    return np.asarray(np.log(math.log(2) / np.log(n + 2.0)))


def log_new_stake(n: Ints) -> Floats:
    """Log of w_n = ln 2 / ln(n + 1) − ln 2 / ln(n + 2), about ln 2 / (n ln² n); n from 1 on."""
    below, above = np.log(n + 1.0), np.log(n + 2.0)
    return np.asarray(np.log(math.log(2) * np.log1p(1 / (n + 1.0)) / (below * above)))


def log_stakes(before: Floats, bets: Floats, n: Ints) -> Floats:
    """Log S_{j,n} (m, BETTORS) after each input.

    Args:
        before: (BETTORS,) before the first of them; −inf where there is none.
        bets: (m, BETTORS) as `log_bets` returns them.
        n: (m,) the numbers of the inputs, from 1 on.
    """
    after, stakes = np.empty_like(bets), before
    for bet, new, row in zip(bets, log_new_stake(n), after, strict=True):
        stakes = np.add(np.logaddexp(stakes, new), bet, out=row)
    return after


def log_wealth(stakes: Floats, n: Ints) -> Floats:
    """Log M_n (m,) from the stakes (m, BETTORS) after inputs n."""
    played = np.logaddexp.reduce(stakes, axis=1) - math.log(BETTORS)
    return np.asarray(np.logaddexp(played, log_reserve(n)))


def is_rise(stakes: Floats) -> bool:
    """Whether those who bet on rising scores hold most of the stakes (BETTORS,)."""
    rising, falling = np.logaddexp.reduce(stakes.reshape(2, -1), axis=1)
    return bool(rising >= falling)
