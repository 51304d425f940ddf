"""Structured logs: one line of JSON for each request and each event, on standard error."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from gemfi._files import to_json

LOGGER: Final = logging.getLogger("gemfi.serve")
_FIELDS: Final = "gemfi_fields"
_APART: Final = 1.0  # seconds between two warnings of one kind
_MOST_KINDS: Final = 256


def log(event: str, *, level: int = logging.INFO, error: bool = False, **fields: Any) -> None:
    """Write an event with its fields; `error` adds the traceback of the current exception."""
    LOGGER.log(level, event, exc_info=error, extra={_FIELDS: fields})


def log_to_stderr(worker: int | None = None) -> None:
    """Send the server's events, and warnings of every library, to standard error as JSON."""
    handler = SteadyHandler(sys.stderr)
    handler.setFormatter(JsonLines(worker))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    LOGGER.setLevel(logging.INFO)
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # of every malformed form


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, event and fields; `worker` numbers the process."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **self._worker,
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return to_json(line, ensure_ascii=True)


@dataclass
class _Repeated:
    since: float
    last: logging.LogRecord
    left_out: int = 0


class SteadyHandler(logging.StreamHandler[TextIO]):
    """Writes warnings of one kind once a second at most, and counts those that it leaves out.

    The count is in the next line of that kind, or in a last one. What is below a warning is always
    written. Records of one kind share logger, level, first line, reason and type of exception.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._kinds: dict[tuple[Any, ...], _Repeated] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        if record.levelno < logging.WARNING:
            super().emit(record)
            return
        error = record.exc_info[0] if record.exc_info else None
        first = str(record.msg).partition("\n")[0]
        kind = (record.name, record.levelno, first, _fields(record).get("reason"), error)
        repeated, now = self._kinds.get(kind), time.monotonic()
        if repeated is not None and now - repeated.since < _APART:
            repeated.left_out += 1
            repeated.last = record
            return
        if repeated is None and len(self._kinds) >= _MOST_KINDS:
            self._write_left_out()
        self._kinds[kind] = _Repeated(now, record)
        self._write(record, 0 if repeated is None else repeated.left_out)

    def close(self) -> None:
        """Write how much was left out, and close."""
        self._write_left_out()
        super().close()

    def _write_left_out(self) -> None:
        kinds, self._kinds = self._kinds, {}
        for repeated in kinds.values():
            if repeated.left_out:
                self._write(repeated.last, repeated.left_out)

    def _write(self, record: logging.LogRecord, left_out: int) -> None:
        if left_out:
            setattr(record, _FIELDS, {**_fields(record), "repeated": left_out})
        super().emit(record)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, _FIELDS, {})
    return fields
