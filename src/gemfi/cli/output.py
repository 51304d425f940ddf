"""What the commands print: no text of a file reaches the terminal as a command to it."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from gemfi._text import printable

_MOVES: Final = re.compile(r"(?:\n|\x1b\[A)*")  # how progress bars below each other find their line


class PrintableStream:
    """A text stream that shows control characters as escapes, but line breaks and tabs.

    What a progress bar writes stays as it is: it begins with a carriage return, and moves from bar
    to bar by whole writes that hold nothing else.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; returns how many of its characters were taken: all."""
        start, shown = "\r" if text.startswith("\r") else "", text
        if not _MOVES.fullmatch(text):
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
