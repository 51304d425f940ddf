"""A table as a fragment of HTML, for a page that brings its own style and scripts.

What they can hold on to: `figure.table` with the label as id; `th[data-column]` over each column,
counted from 0, the names of the rows being the first; `tbody` for each section, with its heading in
`tr.section`; `tr.ours`, `tr[data-method]`; `td` with `data-value` (the mean in full precision, 1 or
0 for a tick or a cross), `data-keys`, and the class `best`, `second`, `text`, `yes`, `no` or
`undefined`; `words` on head and cells of a column that holds texts alone, with `prose` where they
are long; `span.spread` with the standard deviation or the interval; `abbr[title]` with the remark
on a number; `ul.notes` with remarks and notes below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gemfi_bench.page import scrolling
from gemfi_bench.render.layout import Block, Layout, Line, Shown, layout
from gemfi_bench.table import Table

_BOOLEANS = {"yes": "1", "no": "0"}
_LONG = 30  # characters of a text that is better broken into lines


def html(table: Table) -> str:
    """A `figure` with the title, the table, then its flags and notes."""
    shown = layout(table)
    flags, kinds = dict(shown.footnotes), _kinds(shown)
    body = (_block(block, flags, kinds) for block in shown.blocks)
    head = _head(shown, ("", *kinds))
    content = "\n".join(["<table>", "<thead>", *head, "</thead>", *body, "</table>"])
    lines = [
        f'<figure class="table" id="{escape(shown.label)}">',
        f"<figcaption>{escape(shown.title)}</figcaption>",
        scrolling(shown.title, content),
        *_remarks(shown),
        "</figure>",
    ]
    return "\n".join([*lines, ""])


def _kinds(shown: Layout) -> tuple[str, ...]:
    """The class of each column: empty for one with numbers, ticks or nothing at all."""
    lines = [line for block in shown.blocks for line in block.lines]
    columns = [[line.cells[at] for line in lines] for at in range(len(shown.heads))]
    return tuple(map(_kind, columns))


def _kind(cells: Sequence[Shown]) -> str:
    texts = [cell.text for cell in cells if cell.kind == "text"]
    if not texts or any(cell.kind not in ("text", "undefined") for cell in cells):
        return ""
    return "words prose" if max(map(len, texts)) > _LONG else "words"


def _head(shown: Layout, kinds: Sequence[str]) -> Iterator[str]:
    """One line of heads, or two where columns have groups; what has no group spans both."""
    if not shown.spans:
        names = enumerate((shown.stub, *shown.heads))
        heads = [_column(at, head, kinds[at]) for at, head in names]
        yield f"<tr>{''.join(heads)}</tr>"
        return
    upper, lower = [_column(0, shown.stub, kinds[0], both=True)], list[str]()
    for span in shown.spans:
        members = range(span.first, span.first + span.width)
        heads = [
            _column(at + 1, shown.heads[at], kinds[at + 1], both=not span.title) for at in members
        ]
        if span.title:
            title = f"<span>{escape(span.title)}</span>"
            upper.append(f'<th scope="colgroup" colspan="{span.width}">{title}</th>')
            lower += heads
        else:
            upper += heads
    yield f"<tr>{''.join(upper)}</tr>"
    yield f"<tr>{''.join(lower)}</tr>"


def _column(at: int, head: str, kind: str, *, both: bool = False) -> str:
    attributes = {
        "scope": "col",
        "rowspan": "2" if both else "",
        "data-column": str(at),
        "class": kind,
    }
    return f"{_open('th', attributes)}{escape(head)}</th>"


def _block(block: Block, flags: dict[str, str], kinds: Sequence[str]) -> str:
    lines = ["<tbody>"]
    if block.heading:
        lines.append(
            f'<tr class="section"><th scope="rowgroup" colspan="{len(kinds) + 1}">'
            f"{escape(block.heading)}</th></tr>"
        )
    lines += [_line(line, flags, kinds) for line in block.lines]
    return "\n".join([*lines, "</tbody>"])


def _line(line: Line, flags: dict[str, str], kinds: Sequence[str]) -> str:
    attributes = {
        "class": "ours" if line.row.ours else "",
        "data-method": line.row.method or "",
    }
    cells = "".join(_cell(cell, flags, kind) for cell, kind in zip(line.cells, kinds, strict=True))
    return f'{_open("tr", attributes)}<th scope="row">{escape(line.name)}</th>{cells}</tr>'


def _cell(cell: Shown, flags: dict[str, str], kind: str) -> str:
    value = cell.value
    number = _BOOLEANS.get(cell.kind, "")
    if value and cell.kind == "value":
        number = repr(float(value.mean) + 0.0)  # never a negative zero
    attributes = {
        "data-value": number,
        "data-keys": " ".join(value.keys) if value else "",
        "class": f"{cell.mark or ('' if cell.kind == 'value' else cell.kind)} {kind}".strip(),
    }
    return f"{_open('td', attributes)}{_content(cell, flags)}</td>"


def _content(cell: Shown, flags: dict[str, str]) -> str:
    mean, space, spread = cell.text.partition(" ") if cell.value else (cell.text, "", "")
    text = escape(mean) + (f'<span class="spread"> {spread}</span>' if space else "")
    if cell.mark:  # also where a page has no style, as in a feed reader
        element = "strong" if cell.mark == "best" else "u"
        text = f"<{element}>{text}</{element}>"
    if cell.footnote:
        # around the letter only: browsers underline it, which on a number would mean second best
        title = escape(flags[cell.footnote])
        text += f'<sup><abbr title="{title}">{cell.footnote}</abbr></sup>'
    return text


def _open(element: str, attributes: dict[str, str]) -> str:
    """An opening tag with the attributes that are not empty."""
    given = "".join(f' {name}="{escape(text)}"' for name, text in attributes.items() if text)
    return f"<{element}{given}>"


def _remarks(shown: Layout) -> list[str]:
    """Flags and notes; the flags again, as paper and touch screens show no tooltip."""
    remarks = [f"<sup>{letter}</sup> {escape(text)}" for letter, text in shown.footnotes]
    remarks += [escape(note) for note in shown.notes]
    items = "".join(f"<li>{remark}</li>" for remark in remarks)
    return [f'<ul class="notes">{items}</ul>'] if remarks else []
