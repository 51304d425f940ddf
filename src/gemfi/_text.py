"""Text for people: safe to print whoever wrote it, and numbers and tables in one form.

Class names, column names and notes come from files. Control characters in them could steer a
terminal: clear it, rename its window, or hide what stands before them. So do the marks that turn
the direction of writing around.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def printable(text: str, keep: str = "") -> str:
    r"""A text whose control and format characters are shown as escapes, such as `\u001b`.

    The escapes are those of JSON, so that a line of JSON stays one. Characters of `keep` stay.
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep else _shown(char) for char in text)


def _shown(char: str) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs":  # spaces of any width
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


class PrintableStream:
    """A text stream that shows control characters as escapes, but line breaks and tabs.

    What a progress bar writes stays as it is: it begins with a carriage return, and moves from bar
    to bar by whole writes of line breaks or `ESC[A`.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; returns how many of its characters were taken: all."""
        start, shown = "\r" if text.startswith("\r") else "", text
        if not re.fullmatch(r"(?:\n|\x1b\[A)*", text):
            shown = start + printable(text.removeprefix("\r"), keep="\n\t")
        self._stream.write(shown)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write texts one after the other."""
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def printable_output() -> Iterator[None]:
    """Let everything that is printed inside be safe for a terminal, warnings and logs included."""
    out: Any = PrintableStream(sys.stdout)
    errors: Any = PrintableStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        yield


# -- numbers and tables ----------------------------------------------------------------------------

WIDTH = 100  # characters of a line on the terminal
NUMBER = len("100.00")  # characters of the widest number
UNDEFINED = "-"
_UNITS = "Percent; NLL in nats. Brier: sum over classes ×100. ECE: 15 bins."
CONVENTIONS = f"{_UNITS} AUPR: ID positive."


def number(value: float | None, digits: int = 1) -> str:
    """A number of a table; what is not defined, or null in a file, is a dash."""
    return UNDEFINED if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def percent_or_nats(metric: str, value: float | None) -> str:
    """A metric with as many digits as its scale needs."""
    return number(value, 3 if metric == "nll" else 2)


def conventions(sections: Iterable[Mapping[str, Any]]) -> str:
    """What the numbers of sections of `metrics.json` mean, and no word on those they lack."""
    return CONVENTIONS if any(section["ood"] for section in sections) else _UNITS


def file_size(size: int) -> str:
    """Bytes as people say it."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.0f} kB"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as people say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def aligned(
    rows: Sequence[Sequence[str]], left: int = 1, *, indent: str = "", least: int = 0
) -> list[str]:
    """Rows of equal length, the head first, as lines with columns two spaces apart.

    The first `left` columns hold words, the others numbers, in at least `least` characters:
    `NUMBER` lets tables below each other agree.
    """
    lines = [indent] * len(rows)
    for index, column in enumerate(zip(*rows, strict=True)):
        is_words = index < left
        width = max(0 if is_words else least, *map(len, column))
        gap = "  " if index else ""
        for row, cell in enumerate(column):
            lines[row] += gap + (cell.ljust(width) if is_words else cell.rjust(width))
    return [line.rstrip() for line in lines]
