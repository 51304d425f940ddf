"""A table as LaTeX with booktabs, for pdfLaTeX and its successors."""

from __future__ import annotations

from collections.abc import Iterator

from gemfi_bench.render.latex_text import escaped
from gemfi_bench.render.layout import Block, Layout, Line, Shown, layout
from gemfi_bench.table import Table

_NEEDS = (
    r"% needs \usepackage{booktabs} \usepackage[table]{xcolor} \usepackage{amssymb} "
    r"\usepackage{adjustbox}"
)
_SHADE = r"\rowcolor{gray!15} "


def latex(table: Table) -> str:
    r"""A `table` with its caption, label `tab:` and flags and notes below it.

    The best number is bold, the second best underlined, rows of ours are gray. It shrinks to the
    width of the text where it is wider; for one over two columns write `table*` instead.
    """
    shown = layout(table)
    lines = [
        _NEEDS,
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escaped(shown.title)}}}",
        rf"\label{{tab:{shown.label}}}",
        r"\begin{adjustbox}{max width=\linewidth}",
        rf"\begin{{tabular}}{{l{'c' * len(shown.heads)}}}",
        r"\toprule",
        *_spanning(shown),
        _row([escaped(shown.stub), *map(escaped, shown.heads)]),
        *(line for block in shown.blocks for line in _block(block, len(shown.heads) + 1)),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{adjustbox}",
        *_remarks(shown),
        r"\end{table}",
    ]
    return "\n".join([*lines, ""])


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _spanning(shown: Layout) -> Iterator[str]:
    """The line of the groups and the rules below them, if there are groups."""
    if not shown.spans:
        return
    cells, rules = [""], []
    for span in shown.spans:
        if span.title:
            cells.append(rf"\multicolumn{{{span.width}}}{{c}}{{{escaped(span.title)}}}")
            # columns of LaTeX count from 1, and the first holds the names
            rules.append(rf"\cmidrule(lr){{{span.first + 2}-{span.first + span.width + 1}}}")
        else:
            cells += [""] * span.width
    yield _row(cells)
    yield "".join(rules)


def _block(block: Block, columns: int) -> Iterator[str]:
    yield r"\midrule"
    if block.heading:
        yield rf"\multicolumn{{{columns}}}{{l}}{{\textit{{{escaped(block.heading)}}}}} \\"
    for line in block.lines:
        yield _line(line)


def _line(line: Line) -> str:
    return (_SHADE if line.row.ours else "") + _row([escaped(line.name), *map(_cell, line.cells)])


def _cell(cell: Shown) -> str:
    text = escaped(cell.text)
    if cell.mark:
        text = rf"\{'textbf' if cell.mark == 'best' else 'underline'}{{{text}}}"
    return text + (_superscript(cell.footnote) if cell.footnote else "")


def _superscript(letter: str) -> str:
    return rf"\textsuperscript{{{letter}}}"


def _remarks(shown: Layout) -> Iterator[str]:
    remarks = [f"{_superscript(letter)} {escaped(text)}" for letter, text in shown.footnotes]
    remarks += [escaped(note) for note in shown.notes]
    if remarks:
        yield r"\par\smallskip"
        yield r"\begin{minipage}{\linewidth}\footnotesize"
        yield from (rf"{remark}\par" for remark in remarks)
        yield r"\end{minipage}"
