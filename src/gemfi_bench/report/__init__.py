"""The report of a benchmark: one page, one file, no network.

| file | holds |
|---|---|
| `content.py` | what a page shows, as data |
| `assemble.py` | the page: its parts in order, the contents, the controls |
| `sections.py` | summary, ledger, tables, figures |
| `runs.py` | the records of the runs |
| `style.css` | look |
| `script.js`, `tables.js`, `runs.js` | behaviour |

A page is readable without its script, which adds sorting, the filters, the theme and the way from
a number to its runs.
"""

from __future__ import annotations

from gemfi_bench.report.assemble import page
from gemfi_bench.report.content import (
    VERDICTS,
    Claim,
    Content,
    FigureFile,
    Missing,
    Verdict,
)

__all__ = ["VERDICTS", "Claim", "Content", "FigureFile", "Missing", "Verdict", "page"]
