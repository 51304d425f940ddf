"""A table as Markdown, CSV, LaTeX and HTML, all from one layout.

Each shows the mean ± the standard deviation with the same rounding, the notes and the flags.

| file | holds |
|---|---|
| `layout.py` | what all of them show: texts, marks, footnotes, spans |
| `as_markdown.py`, `as_csv.py`, `as_latex.py`, `as_html.py` | how one of them writes it |
"""

from __future__ import annotations

from gemfi_bench.render.as_csv import csv
from gemfi_bench.render.as_html import html
from gemfi_bench.render.as_latex import latex
from gemfi_bench.render.as_markdown import markdown

__all__ = ["csv", "html", "latex", "markdown"]
