"""A table as Markdown, as GitHub reads it."""

from __future__ import annotations

import re

from gemfi._text import markdown_table
from gemfi_bench.render.layout import Block, Layout, Shown, layout
from gemfi_bench.table import Table

_ESCAPED = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|~$&#"})
_LIST = re.compile(r"^([-+=]|\d+(?=[.)]))")  # what would begin a list or a rule inside an item


def markdown(table: Table) -> str:
    """A heading, the table, then its flags and notes.

    The best number is bold and the second best underlined (`<ins>`, as GitHub drops `<u>`).
    Markdown has no cells over several columns: the title of a group stands in each of its heads.
    """
    shown = layout(table)
    lines = [f"### {_escaped(shown.title)} (`{shown.label}`)", ""]
    lines += markdown_table(
        [_heads(shown), *(row for block in shown.blocks for row in _rows(block, len(shown.heads)))]
    )
    remarks = [f"- {_superscript(letter)} {_escaped(text)}" for letter, text in shown.footnotes]
    remarks += [f"- {_item(note)}" for note in shown.notes]
    return "\n".join([*lines, *([""] if remarks else []), *remarks, ""])


def _heads(shown: Layout) -> list[str]:
    groups = ["" for _ in shown.heads]
    for span in shown.spans:
        groups[span.first : span.first + span.width] = [span.title] * span.width
    heads = [
        f"{_escaped(group)}<br>{_escaped(head)}" if group else _escaped(head)
        for group, head in zip(groups, shown.heads, strict=True)
    ]
    return [_escaped(shown.stub), *heads]


def _rows(block: Block, columns: int) -> list[list[str]]:
    rows = [[f"*{_escaped(block.heading)}*", *[""] * columns]] if block.heading else []
    for line in block.lines:
        name = _escaped(line.name)
        bold = line.row.ours and name
        rows.append([f"**{name}**" if bold else name, *map(_cell, line.cells)])
    return rows


def _cell(cell: Shown) -> str:
    text = _escaped(cell.text)
    if cell.mark == "best":
        text = f"**{text}**"
    elif cell.mark == "second":
        text = f"<ins>{text}</ins>"
    return text + (_superscript(cell.footnote) if cell.footnote else "")


def _superscript(letter: str) -> str:
    return f"<sup>{letter}</sup>"


def _item(text: str) -> str:
    return _LIST.sub(
        lambda found: found[0] + "\\" if found[0].isdigit() else f"\\{found[0]}", _escaped(text)
    )


def _escaped(text: str) -> str:
    return text.translate(_ESCAPED)
