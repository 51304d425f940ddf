"""What every rendering of a table shows, before any of them has escaped or set it.

Texts are plain Unicode in one line: "99.95 ± 0.01", "–" for what is not defined, "✓" and "✗".
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from gemfi_bench.table import Cell, Column, Mark, Row, Table, Value, marks, printed

Kind = Literal["value", "text", "yes", "no", "undefined"]

UNDEFINED, YES, NO = "–", "✓", "✗"
_ARROWS = {"high": " ↑", "low": " ↓", None: ""}


@dataclass(frozen=True)
class Shown:
    """A cell as it is shown.

    Attributes:
        kind: what the cell holds; a number that is NaN is undefined.
        text: in full, with the standard deviation or the interval.
        mark: best or second best of its column.
        footnote: the letter of its remark, or empty.
        value: the number that the cell holds, if it holds one.
    """

    kind: Kind
    text: str
    mark: Mark | None = None
    footnote: str = ""
    value: Value | None = None


@dataclass(frozen=True)
class Line:
    """A row as it is shown."""

    name: str
    cells: tuple[Shown, ...]
    row: Row


@dataclass(frozen=True)
class Block:
    """The rows of a section under their heading, which may be empty."""

    heading: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Span:
    """Neighbouring columns under a common title, which may be empty."""

    title: str
    first: int  # index of the first column
    width: int  # how many columns


@dataclass(frozen=True)
class Layout:
    """A table as it is shown.

    Attributes:
        label: of the table.
        title: of the table.
        stub: head of the first column.
        heads: of the other columns, with an arrow to where good numbers are.
        spans: over all columns; empty where no column has a group.
        blocks: the sections from the top.
        footnotes: letter and text of each remark.
        notes: of the table.
    """

    label: str
    title: str
    stub: str
    heads: tuple[str, ...]
    spans: tuple[Span, ...]
    blocks: tuple[Block, ...]
    footnotes: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def layout(table: Table) -> Layout:
    """Round, mark and number all that a table holds."""
    letters = _letters(table)
    marked = marks(table)
    lines = [
        Line(
            one_line(row.name),
            tuple(
                _shown(cell, table.columns[at], marked.get((index, at)), letters)
                for at, cell in enumerate(row.cells)
            ),
            row,
        )
        for index, row in enumerate(table.rows)
    ]
    return Layout(
        label=table.label,
        title=one_line(table.title),
        stub=one_line(table.stub),
        heads=tuple(one_line(column.name + _ARROWS[column.better]) for column in table.columns),
        spans=_spans(table.columns),
        blocks=tuple(
            Block(one_line(section), tuple(lines[at] for at in members))
            for section, members in table.sections()
        ),
        footnotes=tuple((letter, flag) for flag, letter in letters.items()),
        notes=tuple(one_line(note) for note in table.notes),
    )


def one_line(text: str) -> str:
    """Text in one line: spaces in place of line breaks and of what no format can show."""
    shown = (" " if unicodedata.category(sign) in ("Cc", "Cs") else sign for sign in text)
    return " ".join("".join(shown).split())


def text_of(cell: Cell, decimals: int) -> str:
    """A cell as all tables show it."""
    if isinstance(cell, Value):
        return _number(cell, decimals)
    if isinstance(cell, bool):
        return YES if cell else NO
    return UNDEFINED if cell is None else one_line(cell)


def _number(value: Value, decimals: int) -> str:
    if math.isnan(value.mean):
        return UNDEFINED
    mean = _signed(value.mean, decimals)
    if value.std is not None and math.isfinite(value.std):
        return f"{mean} ± {printed(value.std, decimals)}"
    if value.interval is not None:
        low, high = (_signed(end, decimals) for end in value.interval)
        return f"{mean} [{low}, {high}]"
    return mean


def _signed(number: float, decimals: int) -> str:
    return printed(number, decimals).replace("-", "−").replace("inf", "∞")


def _shown(cell: Cell, column: Column, mark: Mark | None, letters: dict[str, str]) -> Shown:
    text = text_of(cell, column.decimals)
    if isinstance(cell, Value):
        footnote = letters[one_line(cell.remark)] if cell.remark else ""
        kind: Kind = "undefined" if math.isnan(cell.mean) else "value"
        return Shown(kind, text, mark, footnote, cell)
    if isinstance(cell, bool):
        return Shown("yes" if cell else "no", text)
    return Shown("undefined" if cell is None else "text", text)


def _spans(columns: Sequence[Column]) -> tuple[Span, ...]:
    titles = [one_line(column.group) for column in columns]
    if not any(titles):
        return ()
    found = [(title, list(at)) for title, at in groupby(range(len(titles)), titles.__getitem__)]
    return tuple(Span(title, at[0], len(at)) for title, at in found)


def _letters(table: Table) -> dict[str, str]:
    """Remark -> its letter; the same remark on many cells has one."""
    cells = (cell for row in table.rows for cell in row.cells)
    found = (one_line(cell.remark) for cell in cells if isinstance(cell, Value) and cell.remark)
    return {remark: _letter(index) for index, remark in enumerate(dict.fromkeys(found))}


def _letter(index: int) -> str:
    """Number 0 is a, 25 is z, 26 is aa."""
    before, last = divmod(index, 26)
    return (_letter(before - 1) if before else "") + chr(ord("a") + last)
