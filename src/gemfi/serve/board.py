"""The metrics of several workers, which each of them can show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_SAMPLE: Final = re.compile(r"([a-z0-9_]+)(?:\{(.*)\})? ([^ ]+)")


class Board:
    """A folder in which every worker leaves its metrics.

    Whichever worker is asked shows those of all, told apart by the label `worker`.

    Args:
        folder: that they share.
        worker: number of this one.
    """

    def __init__(self, folder: Path, worker: int) -> None:
        self._folder, self._worker = folder, worker

    def leave(self, text: str) -> None:
        """Leave the metrics of this worker for the others."""
        file = self._folder / f"{self._worker}.prom"
        temporary = file.with_suffix(".tmp")
        temporary.write_text(_labelled(text, self._worker), encoding="utf-8")
        temporary.replace(file)

    def shown(self, text: str) -> str:
        """The metrics of all workers, with those of this one as they are now."""
        self.leave(text)
        files = sorted(self._folder.glob("*.prom"), key=lambda file: int(file.stem))
        return _joined([file.read_text(encoding="utf-8") for file in files])


def _labelled(text: str, worker: int) -> str:
    return "".join(f"{_line(line, worker)}\n" for line in text.splitlines())


def _line(line: str, worker: int) -> str:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        return line
    name, labels, value = found.groups()
    inner = f'worker="{worker}"' + (f",{labels}" if labels else "")
    return f"{name}{{{inner}}} {value}"


def _joined(texts: list[str]) -> str:
    """Several texts as one, in which each family stands once."""
    families: dict[str, list[str]] = {}
    for text in texts:
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("# HELP "):
                lines = families.setdefault(line, [])
            elif not line.startswith("# ") or line not in lines:
                lines.append(line)
    return "".join(
        f"{head}\n" + "".join(f"{each}\n" for each in rest) for head, rest in families.items()
    )
