"""Intervals over samples: any number that is made from the arrays of runs, on resampled inputs.

Within a resample the inputs of a set are the same for every run, so that what makes an input hard
for two of them cancels in a difference. Sets are resampled apart, and the base rates stay; but
the corrupted copies of an image are drawn together with the image that they were made from.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.metrics import Ints
from gemfi_bench.record_file import View
from gemfi_bench.statistics import Interval, check_resampling, percentile_interval

RESAMPLES: Final = 300

CLEAN: Final = "clean"
"""In a drawn view: the test images that corrupted ones were made from."""

_SHIFT: Final = "shift"

Draw = Callable[[View], View]
"""Resamples the inputs of every set of a run; of all runs the same ones."""

Arrays = Mapping[str, npt.NDArray[Any]]


def over_samples(
    statistic: Callable[[Draw], float | None],
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = 0.95,
) -> Interval | None:
    """The percentile bootstrap of a number; None where it, or one of a resample, is not defined.

    `statistic` is the number, given how to look at the arrays of a run.
    """
    check_resampling(resamples, seed, level)
    values = []
    for stream in (None, *((seed, at) for at in range(resamples))):
        value = statistic(partial(_Drawn, stream=stream))
        if value is None or math.isnan(value):
            return None
        values.append(value)
    estimate, *resampled = values
    return percentile_interval(resampled, estimate, level)


class _Drawn(Mapping[str, Arrays]):
    """The sets of a run with drawn rows; an array is drawn when it is asked for."""

    def __init__(self, sets: View, stream: tuple[int, int] | None) -> None:
        self.sets, self.stream = sets, stream
        self.shifted = next((name for name in sets if name.startswith(f"{_SHIFT}/")), None)

    def __getitem__(self, name: str) -> Arrays:
        if name == CLEAN and self.shifted is not None:
            return _Rows(self.sets["test"], self._rows(_SHIFT, _length(self.sets[self.shifted])))
        arrays = self.sets[name]
        family = _SHIFT if name.startswith(f"{_SHIFT}/") else name
        return _Rows(arrays, self._rows(family, _length(arrays)))

    def _rows(self, family: str, count: int) -> Ints:
        """Which inputs of a set; of one stream the same, whatever is asked for in which order."""
        if self.stream is None:
            return np.arange(count)
        rng = np.random.default_rng([*self.stream, zlib.crc32(family.encode())])
        return rng.integers(0, count, count)

    def __iter__(self) -> Iterator[str]:
        yield from self.sets
        if self.shifted is not None:
            yield CLEAN

    def __len__(self) -> int:
        return len(self.sets) + (self.shifted is not None)


class _Rows(Arrays):
    """Drawn rows of the arrays that have one for each input; the others are not there."""

    def __init__(self, arrays: Arrays, rows: Ints) -> None:
        length = _length(arrays)
        self.arrays = {name: array for name, array in arrays.items() if len(array) == length}
        self.rows = rows

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.arrays[name][self.rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)


def _length(arrays: Arrays) -> int:
    """Inputs of a set."""
    return max(map(len, arrays.values()))
