"""What a figure needs of a stream, in a fixed number of bins however long it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from gemfi.metrics import Floats, Ints

BINS: Final = 1024


def _no_peaks() -> Floats:
    return np.full(BINS, -np.inf)


def _no_ranks() -> Ints:
    return np.zeros(BINS, np.int64)


@dataclass(frozen=True, eq=False)
class History:
    """Bin b is of the inputs from b·stride on. Maxima and sums of integers: exact in any batches.

    Attributes:
        stride: inputs a bin, a power of two.
        peaks: (BINS,) the largest log wealth.
        ranks: (BINS,) sums of the inputs' ranks among calibration scores.
    """

    stride: int = 1
    peaks: Floats = field(default_factory=_no_peaks)
    ranks: Ints = field(default_factory=_no_ranks)

    def extended(self, count: int, log_wealth: Floats, ranks: Ints) -> History:
        """With m more inputs.

        Args:
            count: how many there were before.
            log_wealth: (m,) after each.
            ranks: (m,) of each.
        """
        stride, peaks, sums = self.stride, self.peaks.copy(), self.ranks.copy()
        while count + len(ranks) > BINS * stride:
            stride *= 2
            peaks = np.append(peaks.reshape(-1, 2).max(axis=1), _no_peaks()[: BINS // 2])
            sums = np.append(sums.reshape(-1, 2).sum(axis=1), _no_ranks()[: BINS // 2])
        bins = np.arange(count, count + len(ranks)) // stride
        np.maximum.at(peaks, bins, log_wealth)
        np.add.at(sums, bins, ranks)
        return History(stride, peaks, sums)
