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
from gemfi_bench.statistics import Interval, percentile_interval

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
    values = []
    for stream in (None, *((seed, at) for at in range(resamples))):
        value = statistic(partial(_drawn, stream=stream))
        if value is None or math.isnan(value):
            return None
        values.append(value)
    estimate, *resampled = values
    return percentile_interval(resampled, estimate, level)


class _Lazy(Mapping[str, Any]):
    """Values that are made when they are asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self.makers = makers

    def __getitem__(self, name: str) -> Any:
        return self.makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


def _drawn(sets: View, *, stream: tuple[int, int] | None) -> View:
    """The sets of a run with drawn rows."""

    def of(arrays: Arrays, family: str, count: int) -> Arrays:
        """Drawn rows of the arrays that have one for each input; the others are not there."""
        rows = _rows(stream, family, count)
        length = _length(arrays)
        kept = {name: array for name, array in arrays.items() if len(array) == length}
        return _Lazy({name: partial(array.__getitem__, rows) for name, array in kept.items()})

    shifted = [name for name in sets if name.startswith(f"{_SHIFT}/")]
    makers = {
        name: partial(of, arrays, _SHIFT if name in shifted else name, _length(arrays))
        for name, arrays in sets.items()
    }
    if shifted and "test" in sets:
        makers[CLEAN] = partial(of, sets["test"], _SHIFT, _length(sets[shifted[0]]))
    return _Lazy(makers)


def _rows(stream: tuple[int, int] | None, family: str, count: int) -> Ints:
    """Which inputs of a set; of one stream the same, whatever is asked for in which order."""
    if stream is None:
        return np.arange(count)
    rng = np.random.default_rng([*stream, zlib.crc32(family.encode())])
    return rng.integers(0, count, count)


def _length(arrays: Arrays) -> int:
    """Inputs of a set."""
    return max(map(len, arrays.values()))
