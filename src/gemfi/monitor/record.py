"""A stream as numbers and arrays with names, and back, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.errors import InputError
from gemfi.metrics import Floats
from gemfi.monitor.betting import BETTORS
from gemfi.monitor.history import BINS, History
from gemfi.monitor.ranks import Order
from gemfi.monitor.state import Direction
from gemfi.monitor.stream import RECENT, Evidence, Stream

FORMAT: Final = 1
"""Of the record; another number is another meaning."""

Record = dict[str, Any]

_DIRECTIONS: Final[tuple[Direction | None, ...]] = (None, "rise", "fall")
_NUMBERS: Final[Mapping[str, type[int | float | str]]] = {
    "format": int, "false_alarm": float, "seed": int, "score": str, "stream": int,
    "log_wealth": float, "log_largest": float, "largest_at": int, "fired_at": int,
    "direction": int, "stride": int,
}  # fmt: skip
_ARRAYS: Final[Mapping[str, tuple[str, int | None]]] = {  # kind of the numbers, length
    "reference": ("f", None), "scores": ("f", None), "log_stakes": ("f", BETTORS),
    "recent": ("i", None), "peaks": ("f", BINS), "ranks": ("i", BINS),
}  # fmt: skip


def stream_record(stream: Stream) -> Record:
    """A stream by names; −1 stands for an input that there is not. Nothing is shared with it."""
    evidence, history = stream.evidence, stream.history
    return {
        "scores": stream.order.ascending(),
        "log_stakes": evidence.log_stakes.copy(),
        "log_wealth": evidence.log_wealth,
        "log_largest": evidence.log_largest,
        "largest_at": -1 if evidence.largest_at is None else evidence.largest_at,
        "fired_at": -1 if evidence.fired_at is None else evidence.fired_at,
        "direction": _DIRECTIONS.index(evidence.direction),
        "recent": stream.recent.copy(),
        "stride": history.stride,
        "peaks": history.peaks.copy(),
        "ranks": history.ranks.copy(),
    }


def stream_of(record: Record) -> Stream:
    """The stream of a checked record."""
    evidence = Evidence(
        record["log_stakes"],
        record["log_wealth"],
        record["log_largest"],
        None if record["largest_at"] < 0 else record["largest_at"],
        None if record["fired_at"] < 0 else record["fired_at"],
        _DIRECTIONS[record["direction"]],
    )
    history = History(record["stride"], record["peaks"], record["ranks"])
    return Stream(Order.of(record["scores"]), evidence, history, record["recent"])


def checked(state: Mapping[str, Any]) -> Record:
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
    numbers = {name: _number(name, state[name], kind) for name, kind in _NUMBERS.items()}
    if numbers["format"] != FORMAT:
        raise InputError(
            f"a monitor's state of format {numbers['format']}, but this version reads {FORMAT}"
        )
    record = numbers | {name: _array(name, state[name], *of) for name, of in _ARRAYS.items()}
    _check_whole(record)
    return record


def _number(name: str, value: Any, kind: type[int | float | str]) -> int | float | str:
    plain = (
        value.item() if isinstance(value, np.ndarray | np.generic) and value.ndim == 0 else value
    )
    accepted = (int, float) if kind is float else (kind,)
    if type(plain) not in accepted:
        raise InputError(f"a monitor's state: {name} must be {kind.__name__}, got {value!r:.40}")
    return kind(plain)


def _array(name: str, value: Any, kind: str, length: int | None) -> npt.NDArray[Any]:
    array = np.array(value)
    if array.ndim != 1 or array.dtype.kind != kind or length not in (None, len(array)):
        size = "any length" if length is None else f"length {length}"
        of = "float64" if kind == "f" else "int64"
        raise InputError(
            f"a monitor's state: {name} must be a {of} array of {size}, got {array.dtype} of "
            f"shape {array.shape}"
        )
    return array.astype(np.float64 if kind == "f" else np.int64, copy=False)


def _check_whole(record: Record) -> None:
    """Refuse a record whose parts do not belong together."""
    count = len(record["scores"])
    scores: list[Floats] = [record["reference"], record["scores"]]
    whole = (
        all(bool(np.isfinite(each).all()) for each in scores)
        and len(record["reference"]) > 0
        and len(record["recent"]) == min(count, RECENT)
        and record["stride"] > 0
        and record["stride"] & (record["stride"] - 1) == 0
        and record["stride"] * BINS >= count
        and not np.isnan([*record["log_stakes"], record["log_wealth"], record["log_largest"]]).any()
        and -1 <= record["largest_at"] < count
        and -1 <= record["fired_at"] < count
        and record["direction"] in range(len(_DIRECTIONS))
        and (record["direction"] > 0) == (record["fired_at"] >= 0)
        and record["stream"] >= 0
    )
    if not whole:
        raise InputError("a monitor's state whose parts contradict each other: was it changed?")
