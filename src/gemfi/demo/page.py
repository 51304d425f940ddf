"""The bare page of the report: its style and the pieces of HTML that it is made of.

One file, no script, no request: the policy in the head forbids the browser all but what is inline.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from html import escape

_STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1f2933; --soft: #55606e; --rule: #d9dee4; --panel: #f4f6f8;
  --best: #e3eef8; --figure: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181d; --text: #e4e8ed; --soft: #a3adb9; --rule: #353d47; --panel: #1c2229;
    --best: #1d3a52; --figure: #ffffff;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 72rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .75rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 3rem 0 .75rem; }
p, ul, figcaption { max-width: 44rem; }
p { margin: 0 0 1rem; }
ul { margin: 0; padding-left: 1.2rem; }
li { margin: .3rem 0; }
.lead { font-size: 1.08rem; }
.soft { color: var(--soft); }
code { font-family: ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; font-size: .9em; }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 1.5rem 0 0; padding: .9rem 1.1rem;
  background: var(--panel); border-radius: 8px; }
.facts div { display: flex; gap: .5rem; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; margin: 0 0 1rem; }
.scroll:focus-visible { outline: 2px solid var(--soft); outline-offset: 3px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap;
  font-size: .94rem; margin: 0 0 .75rem; }
caption { text-align: left; padding: 0 0 .5rem; font-weight: 600; white-space: normal; }
caption span { display: inline-block; position: sticky; left: 0; /* stays while the table moves */
  max-width: min(44rem, calc(100vw - 2.5rem)); }
th, td { padding: .36rem .6rem; text-align: right; }
thead th { font-weight: 500; vertical-align: bottom; line-height: 1.3; }
thead small { display: block; color: var(--soft); font-size: .82em; }
thead tr:last-child th { border-bottom: 1px solid var(--text); }
th[scope="colgroup"] { text-align: center; color: var(--soft); padding-bottom: .15rem; }
th[scope="colgroup"] span { display: block; border-bottom: 1px solid var(--rule); }
tbody th { text-align: left; font-weight: 500; }
tbody td, tbody th { border-bottom: 1px solid var(--rule); }
th:first-child { text-align: left; padding-left: 0; position: sticky; left: 0;
  background: var(--page); }
.first { padding-left: 1.3rem; }
.best { background: var(--best); font-weight: 700; }
.dot { display: inline-block; width: .65em; height: .65em; margin-right: .5em; border-radius: 50%; }
figure { margin: 0 0 2.75rem; }
figure .scroll { border: 1px solid var(--rule); border-radius: 8px; background: var(--figure);
  padding: .75rem; margin: 0 0 .8rem; }
img { display: block; width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .95rem; }
figcaption strong { color: var(--text); }
@media (max-width: 44rem) {
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.45rem; }
  figure .scroll img { width: 42rem; max-width: none; }
}
@media print {
  :root {
    --page: #ffffff; --text: #000000; --soft: #444444; --rule: #cccccc; --panel: #f4f6f8;
    --best: #e3eef8;
  }
  main { max-width: none; padding: 0; }
  body { font-size: 10pt; }
  .scroll { overflow: visible; }
  table { font-size: 8.5pt; }
  th, td { padding: .25rem .4rem; }
  figure, table { break-inside: avoid; }
  h2 { break-after: avoid; }
  figure .scroll { border: 0; padding: 0; }
  .best { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def page(title: str, body: str) -> str:
    """A whole document around `body`."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def facts(values: Mapping[str, object]) -> str:
    """A list of names and values."""
    pairs = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>"
        for name, value in values.items()
    )
    return f'<dl class="facts">{"".join(pairs)}</dl>'


def scrolling(label: str, content: str) -> str:
    """What may be wider than the page, in a box of its own that a keyboard can scroll too."""
    return (
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0">\n'
        f"{content}\n</div>"
    )


def picture(name: str, png: bytes, *, alt: str, caption: str) -> str:
    """A figure with the picture inside the page; `caption` is HTML, `alt` is text."""
    width, height = struct.unpack(">II", png[16:24])  # of the PNG's header
    data = base64.b64encode(png).decode("ascii")
    image = (
        f'<img src="data:image/png;base64,{data}" width="{width}" height="{height}" '
        f'alt="{escape(alt)}">'
    )
    return (
        f'<figure id="{escape(name)}">\n{scrolling(f"Figure: {name}", image)}\n'
        f"<figcaption>{caption}</figcaption>\n</figure>"
    )
