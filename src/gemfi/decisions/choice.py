"""Levels that are chosen with OOD-validation data: by Youden's J, or by expected cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemfi.decisions.goal import Costs

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LEVELS, _DOUBTS = 400, 400  # that are tried, at most


@dataclass(frozen=True, eq=False)
class Trial:
    """Known and unfamiliar inputs on which levels and thresholds of doubt are tried.

    Attributes:
        p: (n,) p-values of calibration data.
        doubt: (n,) their doubts.
        wrong: (n,) whether their labels are wrong.
        ood_p: (m,) p-values of OOD-validation data.
        ood_doubt: (m,) their doubts.
    """

    p: Floats
    doubt: Floats
    wrong: Bools
    ood_p: Floats
    ood_doubt: Floats

    def youden_level(self) -> float:
        """The level α of the largest P(p ≤ α | OOD) − P(p ≤ α | known); the least of several."""
        levels = np.unique(np.append(self.p, self.ood_p))
        found = _share(self.ood_p, levels) - _share(self.p, levels)
        return float(levels[int(found.argmax())])

    def cheapest(self, costs: Costs) -> tuple[float, float]:
        """The level and the threshold of doubt of the least expected cost."""
        levels = _thinned(np.append(self.p, self.ood_p), _LEVELS)
        inner = _thinned(np.append(self.doubt, self.ood_doubt), _DOUBTS)
        doubts = np.append(inner, [-math.inf, math.inf])
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
        accepted = _share(self.doubt[familiar], doubts) * familiar.mean()
        failed = _share(self.doubt[familiar & self.wrong], doubts) * (familiar & self.wrong).mean()
        inside = costs.error * failed + costs.abstain * (1 - accepted)
        taken = _share(self.ood_doubt[missed], doubts) * missed.mean()
        outside = costs.unfamiliar * taken + costs.abstain * (missed.mean() - taken)
        result: Floats = (1 - costs.prevalence) * inside + costs.prevalence * outside
        return result


def _share(values: Floats, limits: Floats) -> Floats:
    """For each limit the share of the values that do not exceed it; 0 of none."""
    if len(values) == 0:
        return np.zeros(len(limits))
    return np.searchsorted(np.sort(values), limits, side="right") / len(values)


def _thinned(values: Floats, most: int) -> Floats:
    distinct = np.unique(values)
    if len(distinct) <= most:
        return distinct
    return np.unique(np.quantile(distinct, np.linspace(0, 1, most), method="nearest"))
