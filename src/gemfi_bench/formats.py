"""A table as CSV, Markdown and HTML, and the layout that these and `latex.py` share.

Each shows the mean ± the standard deviation with the same rounding, the notes and the flags. Texts
of the layout are plain Unicode in one line: "99.95 ± 0.01", "–" for what is not defined.
"""

from __future__ import annotations

import csv as csv_module
import io
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from gemfi_bench.page import fill
from gemfi_bench.tabular import Cell, Column, Mark, Row, Table, Value, marks, printed

UNDEFINED, YES, NO = "–", "✓", "✗"
_ARROWS: Final = {"high": " ↑", "low": " ↓", None: ""}


# -- layout ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShownCell:
    """A cell as it is shown; `footnote` is the letter of its remark, or empty."""

    kind: Literal["value", "text", "yes", "no", "undefined"]
    text: str
    mark: Mark | None = None
    footnote: str = ""
    value: Value | None = None

    @property
    def number(self) -> str:
        """The mean in full precision, 1 or 0 for a tick or a cross, empty for neither."""
        if self.kind == "value" and self.value:
            return _exact(self.value.mean)
        return {"yes": "1", "no": "0"}.get(self.kind, "")


@dataclass(frozen=True)
class ShownRow:
    """A row as it is shown."""

    name: str
    cells: tuple[ShownCell, ...]
    row: Row


@dataclass(frozen=True)
class Span:
    """Neighbouring columns, by their indices, under a common title, which may be empty."""

    title: str
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """A table as it is shown."""

    label: str
    title: str
    stub: str  # head of the first column
    heads: tuple[str, ...]  # of the other columns, with an arrow to where good numbers are
    spans: tuple[Span, ...]  # over all columns; empty where no column has a group
    blocks: tuple[tuple[str, tuple[ShownRow, ...]], ...]  # heading, or "", and rows of a section
    footnotes: dict[str, str]  # letter -> remark on a number
    remarks: tuple[tuple[str, str], ...]  # below it: footnotes with letters, notes without


def layout(table: Table) -> Layout:
    """Round, mark and number all that a table holds."""
    cells = (cell for row in table.rows for cell in row.cells if isinstance(cell, Value))
    remarks = dict.fromkeys(one_line(cell.remark) for cell in cells if cell.remark)
    letters = {remark: _letter(index) for index, remark in enumerate(remarks)}
    footnotes = {letter: remark for remark, letter in letters.items()}
    marked = marks(table)

    def shown(index: int) -> ShownRow:
        row = table.rows[index]
        return ShownRow(
            one_line(row.name),
            tuple(
                _shown(cell, table.columns[at].decimals, marked.get((index, at)), letters)
                for at, cell in enumerate(row.cells)
            ),
            row,
        )

    return Layout(
        label=table.label,
        title=one_line(table.title),
        stub=one_line(table.stub),
        heads=tuple(one_line(column.name + _ARROWS[column.better]) for column in table.columns),
        spans=_spans(table.columns),
        blocks=tuple(
            (one_line(section), tuple(map(shown, members))) for section, members in table.sections()
        ),
        footnotes=footnotes,
        remarks=(*footnotes.items(), *(("", one_line(note)) for note in table.notes)),
    )


def one_line(text: str) -> str:
    """Text in one line: spaces in place of line breaks and of what no format can show."""
    shown = (" " if unicodedata.category(sign) in ("Cc", "Cs") else sign for sign in text)
    return " ".join("".join(shown).split())


def _shown(cell: Cell, decimals: int, mark: Mark | None, letters: dict[str, str]) -> ShownCell:
    if isinstance(cell, bool):
        return ShownCell("yes", YES) if cell else ShownCell("no", NO)
    if not isinstance(cell, Value):
        return (
            ShownCell("undefined", UNDEFINED) if cell is None else ShownCell("text", one_line(cell))
        )
    footnote = letters[one_line(cell.remark)] if cell.remark else ""
    if math.isnan(cell.mean):
        return ShownCell("undefined", UNDEFINED, mark, footnote, cell)
    text = _signed(cell.mean, decimals)
    if cell.std is not None and math.isfinite(cell.std):
        text += f" ± {printed(cell.std, decimals)}"
    elif cell.interval is not None:
        low, high = (_signed(end, decimals) for end in cell.interval)
        text += f" [{low}, {high}]"
    return ShownCell("value", text, mark, footnote, cell)


def _signed(number: float, decimals: int) -> str:
    return printed(number, decimals).replace("-", "−").replace("inf", "∞")


def _exact(number: float) -> str:
    """In full precision, never a negative zero."""
    return repr(float(number) + 0.0)


def _spans(columns: Sequence[Column]) -> tuple[Span, ...]:
    titles = [one_line(column.group) for column in columns]
    if not any(titles):
        return ()
    groups = groupby(range(len(titles)), titles.__getitem__)
    return tuple(Span(title, tuple(members)) for title, members in groups)


def _letter(index: int) -> str:
    """Number 0 is a, 25 is z, 26 is aa."""
    before, last = divmod(index, 26)
    return (_letter(before - 1) if before else "") + chr(ord("a") + last)


# -- CSV ------------------------------------------------------------------------------------------

_FIELDS: Final = (
    "label", "row", "section", "group", "column", "mean", "std", "low", "high", "n", "text",
    "flag", "keys",
)  # fmt: skip


def csv(table: Table) -> str:
    """One line a cell, with all numbers in full precision and `text` as the tables print it.

    A cell that holds a tick or a cross has the text `true` or `false`, one that is not defined
    none. `keys` are separated by spaces. Lines without a row hold the title and the notes.
    """
    shown = layout(table)
    buffer = io.StringIO()
    writer = csv_module.DictWriter(buffer, _FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for heading, rows in shown.blocks:
        for row in rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                place = {"row": row.name, "section": heading, "group": one_line(column.group)}
                place |= {"label": table.label, "column": one_line(column.name)}
                writer.writerow(place | _numbers(cell))
    writer.writerow({"label": table.label, "column": "title", "text": shown.title})
    for letter, note in shown.remarks:
        if not letter:
            writer.writerow({"label": table.label, "column": "note", "text": note})
    return buffer.getvalue()


def _numbers(cell: ShownCell) -> dict[str, str]:
    value = cell.value
    if value is None:
        words = {"yes": "true", "no": "false", "undefined": ""}
        return {"text": words.get(cell.kind, cell.text)}
    numbers = (value.mean, value.std, *(value.interval or (None, None)))
    exact = ["" if number is None or math.isnan(number) else _exact(number) for number in numbers]
    return {
        **dict(zip(("mean", "std", "low", "high"), exact, strict=True)),
        "n": str(value.n),
        "text": cell.text,
        "flag": one_line(value.remark),
        "keys": " ".join(value.keys),
    }


# -- Markdown -------------------------------------------------------------------------------------

_ESCAPES: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|~$&#"})


def markdown(table: Table) -> str:
    """A heading, the table, then its flags and notes, as GitHub reads them.

    The best number is bold and the second best underlined (`<ins>`, as GitHub drops `<u>`).
    Markdown has no cells over several columns: the title of a group stands in each of its heads.
    """
    shown = layout(table)
    titles = {
        at: f"{_escaped(span.title)}<br>"
        for span in shown.spans
        if span.title
        for at in span.columns
    }
    heads = [titles.get(at, "") + _escaped(head) for at, head in enumerate(shown.heads)]
    rows = [[_escaped(shown.stub), *heads]]
    for heading, members in shown.blocks:
        rows += [[f"*{_escaped(heading)}*", *[""] * len(heads)]] if heading else []
        for row in members:
            name = _escaped(row.name)
            bold = f"**{name}**" if row.row.ours and name else name
            rows.append([bold, *map(_markdown_cell, row.cells)])
    remarks = [
        f"- <sup>{letter}</sup> {_escaped(text)}" if letter else f"- {_item(text)}"
        for letter, text in shown.remarks
    ]
    title = f"### {_escaped(shown.title)} (`{shown.label}`)"
    return "\n".join([title, "", *markdown_table(rows), *([""] if remarks else []), *remarks, ""])


def _markdown_cell(cell: ShownCell) -> str:
    around = {"best": "**{}**", "second": "<ins>{}</ins>", None: "{}"}[cell.mark]
    text = around.format(_escaped(cell.text))
    return f"{text}<sup>{cell.footnote}</sup>" if cell.footnote else text


def _item(text: str) -> str:
    """Text of an item of a list, with a backslash where it would begin a list or rule itself."""
    return re.sub(r"^(\d+(?=[.)])|(?=[-+=]))", r"\1\\", _escaped(text))


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


# -- HTML -----------------------------------------------------------------------------------------

_LONG: Final = 30  # characters of a text that is better broken into lines


def html(table: Table) -> str:
    """A `figure` with the title, the table, then its flags and notes; see `table.html`."""
    shown = layout(table)
    rows = [row for _, members in shown.blocks for row in members]
    kinds = [_kind([row.cells[at] for row in rows]) for at in range(len(shown.heads))]
    return fill("table.html", table=shown, kinds=kinds)


def _kind(cells: Sequence[ShownCell]) -> str:
    """The class of a column: empty for one with numbers, ticks or nothing at all."""
    texts = [cell.text for cell in cells if cell.kind == "text"]
    if not texts or any(cell.kind not in ("text", "undefined") for cell in cells):
        return ""
    return "words prose" if max(map(len, texts)) > _LONG else "words"


def markdown_table(rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Rows as a Markdown table, the head first."""
    head, *body = rows
    rule = ["---" if index < left else "---:" for index in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]
