"""A table as CSV, for programs: one line a cell."""

from __future__ import annotations

import csv as writing
import io
import math
from collections.abc import Iterator

from gemfi_bench.render.layout import Layout, Shown, layout, one_line
from gemfi_bench.table import Table

FIELDS = (
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
    writer = writing.DictWriter(buffer, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for fields in (*_cells(table, shown), *_remarks(shown)):
        writer.writerow({"label": table.label} | fields)
    return buffer.getvalue()


def _cells(table: Table, shown: Layout) -> Iterator[dict[str, str]]:
    for block in shown.blocks:
        for line in block.lines:
            for column, cell in zip(table.columns, line.cells, strict=True):
                yield {
                    "row": line.name,
                    "section": block.heading,
                    "group": one_line(column.group),
                    "column": one_line(column.name),
                } | _numbers(cell)


def _numbers(cell: Shown) -> dict[str, str]:
    if cell.value is None:
        words = {"yes": "true", "no": "false", "undefined": ""}
        return {"text": words.get(cell.kind, cell.text)}
    value = cell.value
    low, high = value.interval or (None, None)
    return {
        "mean": _number(value.mean),
        "std": _number(value.std),
        "low": _number(low),
        "high": _number(high),
        "n": str(value.n),
        "text": cell.text,
        "flag": one_line(value.remark),
        "keys": " ".join(value.keys),
    }


def _number(number: float | None) -> str:
    """In full precision; nothing for what is not defined, and no negative zero."""
    return "" if number is None or math.isnan(number) else repr(float(number) + 0.0)


def _remarks(shown: Layout) -> Iterator[dict[str, str]]:
    yield {"column": "title", "text": shown.title}
    for note in shown.notes:
        yield {"column": "note", "text": note}
