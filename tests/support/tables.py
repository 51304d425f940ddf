"""Tables to render, and what every rendering of them must show."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from gemfi_bench.tabular import Cell, Column, Row, Table, Value

COLUMNS = (
    Column("Alea.", "MNIST → KMNIST", "high"),
    Column("Epis.", "MNIST → KMNIST", "high"),
    Column("NLL", "", "low", 3),
    Column("one pass"),
)
SAMPLE = Table(
    "table2",
    "AUPR of OOD detection",
    COLUMNS,
    (
        Row("EDL", (Value(97.021, 0.804, 3, ("k1", "k2")), None, Value(0.25, n=3), True), "edl"),
        Row("I-EDL", (Value(98.34, n=3), "data absent", Value(math.inf, n=3), False), "i-edl"),
        Row(
            "GEM-FI",
            (Value(99.949, n=3), Value(math.nan, n=3), Value(-0.0004, n=3), True),
            "gem-fi",
            ours=True,
        ),
        Row(
            "GEM-FI",
            (Value(99.95, 0.0, 5), Value(-1.5, flag="impossible: < 0"), None, None),
            section="Published",
        ),
        Row("DAEDL", (None, None, Value(0.1, flag="impossible: < 0"), None), section="Published"),
    ),
    notes=("ID is positive.", "5 seeds & more."),
)
ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
SIGNS = st.text(
    "-'`\"[]*\\&%$#_{}~^<>|,!?/λ→– é", max_size=12
)  # what a format may take for its own
MARKUP = st.sampled_from(["<b>x</b>", "&lt;&amp;", '"><i>', "</td><td>", "<!-- -->", "**x** `y`"])
NAMES = ASCII | SIGNS | MARKUP | st.text(max_size=12)
VALUES = st.builds(
    Value,
    st.floats(-1e3, 1e3),
    st.none() | st.floats(0, 10),
    flag=st.none() | NAMES,
)
CELLS = VALUES | NAMES | st.booleans() | st.none()


@st.composite
def tables(draw: st.DrawFn) -> Table:
    better = st.sampled_from(["high", "low", None])
    columns = draw(
        st.lists(st.builds(Column, NAMES, NAMES, better, st.integers(0, 4)), min_size=1, max_size=4)
    )
    sections = draw(st.lists(NAMES, max_size=2, unique=True))
    rows = [
        Row(
            draw(NAMES), tuple(draw(CELLS) for _ in columns), ours=draw(st.booleans()), section=name
        )
        for name in sections
        for _ in range(draw(st.integers(1, 2)))
    ]
    notes = draw(st.lists(NAMES, max_size=2))
    return Table("table2", draw(NAMES), tuple(columns), tuple(rows), draw(NAMES), tuple(notes))


def one_line(text: str) -> str:
    """What all renderings may show of a text: its words, one space apart."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text).split())


def shown_head(column: Column) -> str:
    return one_line(column.name + {"high": " ↑", "low": " ↓", None: ""}[column.better])


def flags(table: Table) -> list[str]:
    """Each remark on a number, once, in order."""
    cells = [cell for row in table.rows for cell in row.cells if isinstance(cell, Value)]
    return list(dict.fromkeys(one_line(cell.flag) for cell in cells if cell.flag))


def shown_cell(cell: Cell, column: Column) -> str:
    """A cell in plain text, from the words of the specification."""
    if isinstance(cell, str):
        return one_line(cell)
    if not isinstance(cell, Value):
        return {True: "✓", False: "✗", None: "–"}[cell]
    numbers = [cell.mean] if cell.std is None else [cell.mean, cell.std]
    texts = [f"{number:.{column.decimals}f}" for number in numbers]
    return " ± ".join(text.replace("-", "−") if float(text) else text.lstrip("-") for text in texts)


def assert_rows(
    rows: Sequence[Sequence[str]], table: Table, form: Callable[[str], str] = str
) -> None:
    """Rows of texts are those of a table, with a heading before each section that has a name.

    Args:
        rows: as they were read back.
        table: that was rendered.
        form: what the rendering makes of a text.
    """
    expected, section = list[list[str]](), ""
    for row in table.rows:
        if row.section != section and one_line(row.section):
            expected.append([one_line(row.section), *[""] * len(table.columns)])
        section = row.section
        pairs = zip(row.cells, table.columns, strict=True)
        expected.append([one_line(row.name), *(shown_cell(cell, col) for cell, col in pairs)])
    assert [list(row) for row in rows] == [[form(text) for text in row] for row in expected]
