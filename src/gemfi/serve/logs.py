"""Structured logs: a line of JSON for each request and each event, on standard error."""

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
    """Write an event.

    Args:
        event: what happened, in a word or two.
        level: how serious it is.
        error: add the traceback of the exception that is being handled.
        fields: what else is known of it.
    """
    LOGGER.log(level, event, exc_info=error, extra={_FIELDS: fields})


def log_to_stderr(level: int = logging.INFO, worker: int | None = None) -> None:
    """Send the server's events, and warnings of every library, to standard error as JSON.

    Args:
        level: the least of the events.
        worker: number of this process among several; None for one alone.
    """
    handler = SteadyHandler(sys.stderr)
    handler.setFormatter(JsonLines(worker))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    LOGGER.setLevel(level)
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # of every malformed form


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, what happened, and its fields.

    Args:
        worker: number of this process among several; None for one alone.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "time": moment,
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **self._worker,
            **_fields(record),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return to_json(fields, ensure_ascii=True)


@dataclass
class _Repeated:
    since: float
    left_out: int = 0


class SteadyHandler(logging.StreamHandler[TextIO]):
    """Writes each kind of warning and error once a second at most, and counts what it leaves out.

    The count is in the next line of that kind, or in one at the end. What is below a warning, such
    as the line of a request, is always written. Two records are of one kind if they have the same
    logger, level, first line, reason and type of exception.
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
            return
        if repeated is None and len(self._kinds) >= _MOST_KINDS:
            self._report_left_out()
        self._kinds[kind] = _Repeated(now)
        self._write(record, 0 if repeated is None else repeated.left_out)

    def close(self) -> None:
        """Write how much was left out, and close."""
        self._report_left_out()
        super().close()

    def _report_left_out(self) -> None:
        kinds, self._kinds = self._kinds, {}
        for (name, level, first, reason, _), repeated in kinds.items():
            if repeated.left_out:
                record = logging.LogRecord(name, level, "", 0, first, None, None)
                setattr(record, _FIELDS, {} if reason is None else {"reason": reason})
                self._write(record, repeated.left_out)

    def _write(self, record: logging.LogRecord, left_out: int) -> None:
        if left_out:
            setattr(record, _FIELDS, {**_fields(record), "repeated": left_out})
        super().emit(record)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, _FIELDS, {})
    return fields
