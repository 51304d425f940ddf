"""Structured logs: a line of JSON for each request and each event, on standard error."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from gemfi.files import to_json

LOGGER: Final = logging.getLogger("gemfi.serve")
_FIELDS: Final = "gemfi_fields"


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, what happened, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "time": moment,
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return to_json(fields, ensure_ascii=True)


def log(event: str, *, level: int = logging.INFO, error: bool = False, **fields: Any) -> None:
    """Write an event.

    Args:
        event: what happened, in a word or two.
        level: how serious it is.
        error: add the traceback of the exception that is being handled.
        fields: what else is known of it.
    """
    LOGGER.log(level, event, exc_info=error, extra={_FIELDS: fields})


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send the server's events, and warnings of every library, to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    LOGGER.setLevel(level)
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # of every malformed form
