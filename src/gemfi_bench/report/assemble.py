"""The page: its parts in order, the contents beside them, and the controls above."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib import resources

from gemfi.errors import InputError
from gemfi.methods import METHODS
from gemfi_bench.page import document, dot, facts
from gemfi_bench.report import runs, sections
from gemfi_bench.report.content import Content
from gemfi_bench.style import method_label
from gemfi_bench.table import Table

_SCRIPTS = ("script.js", "tables.js", "runs.js")


@dataclass(frozen=True)
class _Part:
    """A part of the page: its title, its HTML, and (id, title) of what the contents name in it."""

    identifier: str
    title: str
    body: str
    entries: Sequence[tuple[str, str]] = ()


def page(content: Content) -> str:
    """One HTML document that needs no network and no other file.

    Args:
        content: what it shows.
    """
    content = replace(content, published=_published(content))
    _check_labels("table", content.tables, content.published)
    _check_labels("figure", content.figures)
    parts = [part for part in _parts(content) if part.body]
    main = "\n".join([_opening(content), *map(_part, parts)])
    body = (
        f"{_controls(_methods(content))}\n"
        f'<div class="layout">\n{_contents(parts)}\n<main id="top">\n{main}\n</main>\n</div>\n'
        f"{_DIALOGS}"
    )
    return document(content.title, body, style=_asset("style.css"), script=_script())


def _published(content: Content) -> list[Table]:
    """With labels of their own, where they have that of the table that they stand beside."""
    taken = {each.label for each in content.tables}
    return [
        replace(each, label=f"published-{each.label}") if each.label in taken else each
        for each in content.published
    ]


def _check_labels(kind: str, *groups: Sequence[object]) -> None:
    labels = [getattr(each, "label") for group in groups for each in group]  # noqa: B009
    again = [label for at, label in enumerate(labels) if label in labels[:at]]
    if again:
        raise InputError(f"two {kind}s of a report have the label {again[0]!r}; give one another")


def _script() -> str:
    """In one block, so that its names are its own."""
    return "\n".join(['"use strict";', "{", *map(_asset, _SCRIPTS), "}", ""])


def _asset(name: str) -> str:
    return resources.files("gemfi_bench.report").joinpath(name).read_text("utf-8")


# -- parts ----------------------------------------------------------------------------------------


def _parts(content: Content) -> Iterator[_Part]:
    if content.summary:
        yield _Part("part-summary", "Summary", sections.summary(content.summary))
    if content.claims:
        yield _Part("part-claims", "Claims", sections.ledger(content.claims))
    if content.tables:
        entries = [(each.label, each.title) for each in content.tables]
        yield _Part("part-tables", "Tables", sections.tables(content.tables), entries)
    if content.figures:
        entries = [(sections.figure_id(each.label), each.title) for each in content.figures]
        yield _Part("part-figures", "Figures", sections.figures(content.figures), entries)
    if content.published:
        entries = [(each.label, each.title) for each in content.published]
        body = sections.tables(content.published)
        yield _Part("part-published", "Beside the published numbers", body, entries)
    if content.records:
        yield _Part("part-runs", "Records of the runs", _records(content))


def _records(content: Content) -> str:
    count = len(content.records)
    hint = f"{count} run{'' if count == 1 else 's'}; a number of a table leads to those it is of."
    return (
        f'<p class="soft">{hint} <button type="button" class="open-all control">Open all</button>'
        f"</p>\n{runs.records(content.records)}"
    )


def _opening(content: Content) -> str:
    subtitle = f'<p class="lead">{escape(content.subtitle)}</p>\n' if content.subtitle else ""
    listed = facts(content.facts) if content.facts else ""
    return f"<header>\n<h1>{escape(content.title)}</h1>\n{subtitle}{listed}\n</header>"


def _part(part: _Part) -> str:
    return (
        f'<section class="part" id="{part.identifier}">\n<h2>{escape(part.title)}</h2>\n'
        f"{part.body}\n</section>"
    )


# -- around them ----------------------------------------------------------------------------------


def _contents(parts: Sequence[_Part]) -> str:
    items = []
    for part in parts:
        inner = "".join(f"<li>{_link(*entry)}</li>" for entry in part.entries)
        nested = f"<ol>{inner}</ol>" if inner else ""
        items.append(f"<li>{_link(part.identifier, part.title)}{nested}</li>")
    return f'<nav id="contents" aria-label="Contents">\n<ol>{"".join(items)}</ol>\n</nav>'


def _link(identifier: str, title: str) -> str:
    return f'<a href="#{escape(identifier)}">{escape(title)}</a>'


def _methods(content: Content) -> list[str]:
    """Known ones in the order of the package, then others of our own tables and records.

    Published rows have many more names, which nobody chooses between.
    """
    tables = [each for each in content.tables if isinstance(each, Table)]
    ours = [row.method for table in tables for row in table.rows if row.method]
    ours += [str(each.spec["method"]) for each in content.records if "method" in each.spec]
    theirs = {row.method for table in content.published for row in table.rows}
    others = [name for name in dict.fromkeys(ours) if name not in METHODS]
    return [*(name for name in METHODS if name in {*ours, *theirs}), *others]


def _controls(methods: Sequence[str]) -> str:
    """What works by the script alone, which shows it."""
    boxes = "".join(
        f'<label><input type="checkbox" value="{escape(name)}" checked>'
        f"{dot(name)}{escape(method_label(name))}</label>"
        for name in methods
    )
    chooser = (
        '<details id="methods"><summary>Methods <span class="count"></span></summary>\n'
        '<fieldset><legend class="unseen">Methods to show</legend>'
        '<p><button type="button" data-choose="all">All</button> '
        f'<button type="button" data-choose="none">None</button></p>{boxes}</fieldset></details>\n'
    )
    return (
        '<div class="bar" role="toolbar" aria-label="Controls" hidden>\n'
        '<button type="button" id="show-contents" aria-controls="contents" aria-expanded="false">'
        "Contents</button>\n"
        '<input type="search" id="search" placeholder="Search" '
        'aria-label="Search in tables, figures, claims and runs">\n'
        f"{chooser if methods else ''}"
        '<output id="found" aria-live="polite"></output>\n'
        '<button type="button" id="theme">Dark</button>\n</div>'
    )


_DIALOGS = """<dialog id="runs-of" aria-labelledby="runs-of-title">
<form method="dialog"><h2 id="runs-of-title"></h2><button aria-label="Close">✕</button></form>
<p class="value"></p>
<ol></ol>
</dialog>
<dialog id="enlarged" aria-labelledby="enlarged-title">
<form method="dialog"><h2 id="enlarged-title"></h2><button aria-label="Close">✕</button></form>
<div class="picture" tabindex="0"></div>
</dialog>"""
