"""A stream so far, what is known of it, and its record as numbers and arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from gemfi._config import decode
from gemfi.errors import InputError
from gemfi.metrics import Floats, Ints
from gemfi.monitor import martingale
from gemfi.monitor.martingale import BETTORS, Order

RECENT: Final = 100  # inputs that the median of p is of
BINS: Final = 1024  # of the history that a figure is drawn from, however long the stream is
FORMAT: Final = 1  # of the record; another number is another meaning

Direction = Literal["rise", "fall"]
_DIRECTIONS: Final[tuple[Direction | None, ...]] = (None, "rise", "fall")


@dataclass(frozen=True)
class MonitorState:
    """What is known of a stream so far; inputs are counted from 0."""

    count: int  # how many inputs there were
    log10_wealth: float  # of the martingale now; it began at 0
    log10_limit: float  # at which it fires, −log10 of the false-alarm rate
    log10_largest: float  # the largest it has been
    largest_at: int | None  # the input at which it was; None if it was never above its beginning
    fired_at: int | None  # the input at which it first reached the limit; None if it has not
    direction: Direction | None  # whether scores rose or fell when it fired; None if it has not

    @property
    def fired(self) -> bool:
        """Whether it has fired; it stays so until `reset`."""
        return self.fired_at is not None


@dataclass(frozen=True, eq=False)
class Stream:
    """Everything that a monitor knows of a stream. It never changes: more inputs make another one.

    Bin b of the history is of the inputs from b·stride on. Its maxima and sums of integers are
    exact, however the stream is cut into batches.
    """

    order: Order = field(default_factory=Order)  # the scores
    log_stakes: Floats = field(default_factory=martingale.no_stakes)  # (BETTORS,)
    log_wealth: float = 0.0  # log of the martingale
    log_largest: float = 0.0  # the largest that it has been
    largest_at: int = -1  # the input at which it was; −1 for the beginning
    fired_at: int = -1  # the input at which it first reached the limit; −1 if it has not
    direction: int = 0  # of the scores then, a place in `_DIRECTIONS`
    recent: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # the last ranks, ≤ RECENT
    stride: int = 1  # inputs a bin, a power of two
    peaks: Floats = field(
        default_factory=lambda: np.full(BINS, -np.inf)
    )  # (BINS,) largest log wealth
    ranks: Ints = field(default_factory=lambda: np.zeros(BINS, np.int64))  # sums, see `mean_p`

    def __len__(self) -> int:
        return len(self.order)

    def state(self, false_alarm: float) -> MonitorState:
        """What is known of it, for the world."""
        return MonitorState(
            count=len(self),
            log10_wealth=self.log_wealth / math.log(10),
            log10_limit=-math.log10(false_alarm),
            log10_largest=self.log_largest / math.log(10),
            largest_at=None if self.largest_at < 0 else self.largest_at,
            fired_at=None if self.fired_at < 0 else self.fired_at,
            direction=_DIRECTIONS[self.direction],
        )

    def extended(
        self, scores: Floats, uniform: Floats, reference: Floats, false_alarm: float
    ) -> Stream:
        """With m ≥ 1 more inputs of these scores; it fires at the inverse of `false_alarm`.

        `uniform` (m,) numbers break ties; `reference` are the calibration scores, ascending.
        """
        count, limit = len(self), -math.log(false_alarm)
        inside = martingale.counts_among(reference, scores)
        outside, order = self.order.extended(scores)
        total = len(reference) + np.arange(count + 1, count + len(scores) + 1)
        p, q = martingale.p_values(inside + outside, total, uniform)
        stakes, wealth = martingale.play(self.log_stakes, count, p, q)
        ranks = 2 * inside[0] + inside[1] + 1
        after = replace(
            self,
            order=order,
            log_stakes=stakes[-1].copy(),  # not a view, which would hold all of them
            log_wealth=float(wealth[-1]),
            recent=np.append(self.recent, ranks)[-RECENT:],
            **self._history(wealth, ranks),
        )
        top = int(wealth.argmax())
        if wealth[top] > self.log_largest:
            after = replace(after, log_largest=float(wealth[top]), largest_at=count + top)
        if self.fired_at < 0 and wealth[top] >= limit:
            first = int((wealth >= limit).argmax())
            word: Direction = "rise" if martingale.is_rise(stakes[first]) else "fall"
            after = replace(after, fired_at=count + first, direction=_DIRECTIONS.index(word))
        return after

    def _history(self, log_wealth: Floats, ranks: Ints) -> dict[str, Any]:
        """The bins with m more inputs, twice as wide as often as it takes."""
        count, stride, peaks, sums = len(self), self.stride, self.peaks.copy(), self.ranks.copy()
        while count + len(ranks) > BINS * stride:
            stride *= 2
            peaks = np.append(peaks.reshape(-1, 2).max(axis=1), np.full(BINS // 2, -np.inf))
            sums = np.append(sums.reshape(-1, 2).sum(axis=1), np.zeros(BINS // 2, np.int64))
        bins = np.arange(count, count + len(ranks)) // stride
        np.maximum.at(peaks, bins, log_wealth)
        np.add.at(sums, bins, ranks)
        return {"stride": stride, "peaks": peaks, "ranks": sums}

    def record(self) -> dict[str, Any]:
        """Numbers and arrays by name; nothing is shared with the stream."""
        values = {name: value for name, value in vars(self).items() if name != "order"}
        return {"scores": self.order.ascending(), **deepcopy(values)}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Stream:
        """The stream of a checked record."""
        values = {name: record[name] for name in cls.__dataclass_fields__ if name != "order"}
        return cls(Order.of(record["scores"]), **values)


def mean_p(ranks: Ints | Floats, reference: int) -> Floats:
    """Ranks among n calibration scores, 2·#above + #equal + 1, as p-values in (0, 1).

    As `p_values`, against calibration data alone, with ties at their mean. It describes a stream;
    no bet is made on it.
    """
    return np.asarray(ranks / (2.0 * (reference + 1)))


# -- records --------------------------------------------------------------------------------------

_NUMBERS: Final[Mapping[str, type[int | float | str]]] = {
    "format": int, "false_alarm": float, "seed": int, "score": str, "stream": int,
    "log_wealth": float, "log_largest": float, "largest_at": int, "fired_at": int,
    "direction": int, "stride": int,
}  # fmt: skip
_ARRAYS: Final[Mapping[str, tuple[str, int | None]]] = {  # type and length
    "reference": ("float64", None), "scores": ("float64", None), "log_stakes": ("float64", BETTORS),
    "recent": ("int64", None), "peaks": ("float64", BINS), "ranks": ("int64", BINS),
}  # fmt: skip


def checked_record(state: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose every entry is there and of its type, with arrays of its own.

    Numbers may come as arrays without an axis, as `numpy.load` gives them.
    """
    if not isinstance(state, Mapping):
        raise InputError(f"a monitor's state must be a mapping, got {type(state).__name__}")
    known = {*_NUMBERS, *_ARRAYS}
    if known != set(state):
        missing, unknown = sorted(known - set(state)), sorted(set(state) - known)
        wrong = f"lacks {', '.join(missing)}" if missing else f"holds {', '.join(unknown)}"
        raise InputError(
            f"this is no state of a monitor: it {wrong}; give what state_dict returned"
        )
    record: dict[str, Any] = {}
    for name, kind in _NUMBERS.items():
        value = state[name]
        value = value.item() if np.ndim(value) == 0 and hasattr(value, "item") else value
        record[name] = decode(kind, value, f"a monitor's state: {name}")
    if record["format"] != FORMAT:
        raise InputError(
            f"a monitor's state of format {record['format']}, but this version reads {FORMAT}"
        )
    record |= {name: _array(name, state[name], *_ARRAYS[name]) for name in _ARRAYS}
    if not _is_consistent(record):
        raise InputError("a monitor's state whose parts contradict each other: was it changed?")
    return record


def _array(name: str, value: Any, dtype: str, length: int | None) -> Any:
    array = np.array(value)
    if array.ndim != 1 or array.dtype.kind != dtype[0] or length not in (None, len(array)):
        size = "any length" if length is None else f"length {length}"
        raise InputError(
            f"a monitor's state: {name} must be a {dtype} array of {size}, got {array.dtype} of "
            f"shape {array.shape}"
        )
    return array.astype(dtype, copy=False)


def _is_consistent(record: Mapping[str, Any]) -> bool:
    """Whether the parts belong together."""
    count, stride = len(record["scores"]), record["stride"]
    return (
        bool(np.isfinite(record["reference"]).all() and np.isfinite(record["scores"]).all())
        and len(record["reference"]) > 0
        and len(record["recent"]) == min(count, RECENT)
        and stride > 0
        and stride & (stride - 1) == 0
        and stride * BINS >= count
        and not np.isnan([*record["log_stakes"], record["log_wealth"], record["log_largest"]]).any()
        and -1 <= record["largest_at"] < count
        and -1 <= record["fired_at"] < count
        and record["direction"] in range(len(_DIRECTIONS))
        and (record["direction"] > 0) == (record["fired_at"] >= 0)
        and record["stream"] >= 0
    )
