"""Summary, ledger, tables and figures, as HTML.

Each thing that can be searched for is an element with `data-card`, which holds its label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import zip_longest

from gemfi_bench import render
from gemfi_bench.claims.ledger import OURS, RULE
from gemfi_bench.page import data_url, image, scrolling, size_of
from gemfi_bench.report.content import FEW_SEEDS, VERDICTS, Claim, FigureFile, Missing, Verdict
from gemfi_bench.table import Table

LARGEST_SVG = 150_000
"""Bytes of vectors that a page takes; a larger drawing is shown from its PNG alone. All drawings
together then add a tenth to the page of a whole benchmark."""

_BROAD = 1.7  # a picture that is so many times wider than high takes the whole width
_CROWDED = (9, 15, 22)  # columns from which a table is printed smaller, on its side, and tiny
_LONG = 40  # rows from which a table scrolls in a box of its own
_SIGNS: dict[Verdict, str] = {
    "supported": "✓",
    "refuted": "✗",
    "undecided": "?",
    "not tested": "–",
}
_LEDGER = ("Verdict", "Claim", "Estimate and interval", "Runs")


def figure_id(label: str) -> str:
    """The id of a figure, which may have the label of a table too."""
    return f"figure-{label}"


# -- summary and ledger ---------------------------------------------------------------------------


def summary(sentences: Sequence[str]) -> str:
    """What was found, a paragraph each."""
    return "\n".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def ledger(claims: Sequence[Claim]) -> str:
    """Every claim with its verdict, and how many there are of each."""
    heads = "".join(
        f'<th scope="col" data-column="{at}">{escape(head)}</th>' for at, head in enumerate(_LEDGER)
    )
    rows = "\n".join(map(_claim, claims))
    table = (
        f'<table class="ledger">\n<thead>\n<tr>{heads}</tr>\n</thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )
    return (
        f'{_tallies(claims)}\n<figure class="table" id="ledger" data-card="claims ledger">\n'
        f"{scrolling('The claims', table)}\n"
        f'<ul class="notes"><li>{escape(RULE)}</li></ul>\n</figure>'
    )


def _tallies(claims: Sequence[Claim]) -> str:
    """The paper's claims and ours, counted apart."""
    ours = [claim for claim in claims if claim.where == OURS]
    theirs = [claim for claim in claims if claim.where != OURS]
    parts = (("Of the paper", theirs), ("Of this project", ours))
    return "\n".join(_tally(whose, each) for whose, each in parts if each)


def _tally(whose: str, claims: Sequence[Claim]) -> str:
    counts = Counter(claim.verdict for claim in claims)
    items = (f"<li>{_badge(each, f'{counts[each]} {each}')}</li>" for each in VERDICTS)
    return f'<ul class="tally"><li class="soft">{whose}</li>{"".join(items)}</ul>'


def _claim(claim: Claim) -> str:
    rank = VERDICTS.index(claim.verdict)
    few = f'<span class="few-seeds">{FEW_SEEDS}</span>' if claim.few_seeds else ""
    where = f'<span class="where">{escape(claim.where)}</span>' if claim.where else ""
    return (
        f'<tr class="claim"><td class="verdict" data-value="{rank}">'
        f"{_badge(claim.verdict, claim.verdict)}{few}</td>"
        f'<th scope="row"><span class="said">{escape(claim.claim)}</span>'
        f'<span class="statistic">{escape(claim.statistic)}</span>{where}</th>'
        f"{_tests(claim)}{_rests_on(claim)}</tr>"
    )


def _tests(claim: Claim) -> str:
    """Each line of the estimate with that of the interval below it."""
    pairs = list(
        zip_longest(claim.estimate.splitlines(), claim.interval.splitlines(), fillvalue="")
    )
    if not pairs:
        return '<td class="undefined tests">–</td>'
    lines = "".join(
        f'<span class="test">{escape(estimate)}'
        + (f' <span class="interval">{escape(interval)}</span>' if interval else "")
        + "</span>"
        for estimate, interval in pairs
    )
    return f'<td class="text tests">{lines}</td>'


def _badge(verdict: Verdict, text: str) -> str:
    kind = verdict.replace(" ", "-")
    return (
        f'<span class="badge {kind}"><span aria-hidden="true">{_SIGNS[verdict]}</span> '
        f"{escape(text)}</span>"
    )


def _rests_on(claim: Claim) -> str:
    if not claim.keys:
        return '<td class="undefined runs">–</td>'
    keys = escape(" ".join(claim.keys))
    return (
        f'<td class="runs" data-value="{len(claim.keys)}" data-keys="{keys}">{len(claim.keys)}</td>'
    )


# -- tables ---------------------------------------------------------------------------------------


def tables(found: Iterable[Table | Missing]) -> str:
    """Every table, and a card with the reason for each that is not there."""
    return "\n".join(
        missing(each, each.label) if isinstance(each, Missing) else _table(each) for each in found
    )


def _table(table: Table) -> str:
    size = sum(len(table.columns) >= least for least in _CROWDED)
    levels = "".join(f" crowded-{level}" for level in range(2, size + 1))
    crowded = f" crowded{levels}" if size else ""
    long = " long" if len(table.rows) >= _LONG else ""
    return (
        f'<div class="card{crowded}{long}" data-card="{escape(table.label)}">\n'
        f"{_tag(table.label, table.label)}\n{render.html(table)}</div>"
    )


def missing(which: Missing, identifier: str) -> str:
    """A card in the place of what could not be made."""
    return (
        f'<div class="card missing" id="{escape(identifier)}" data-card="{escape(which.label)}">\n'
        f"{_tag(which.label, identifier)}\n"
        f'<p class="title">{escape(which.title)}</p>\n'
        f"<p>Not available: {escape(which.reason)}</p>\n</div>"
    )


def _tag(label: str, identifier: str) -> str:
    """The paper's label, as a link to the place itself."""
    return f'<a class="tag" href="#{escape(identifier)}">{escape(label)}</a>'


# -- figures --------------------------------------------------------------------------------------


def figures(found: Iterable[FigureFile | Missing]) -> str:
    """Every figure, and a card with the reason for each that is not there."""
    cards = (
        missing(each, figure_id(each.label)) if isinstance(each, Missing) else _figure(each)
        for each in found
    )
    return '<div class="figures">\n' + "\n".join(cards) + "\n</div>"


def _figure(figure: FigureFile) -> str:
    width, height = size_of(figure.png)
    broad = " broad" if width > _BROAD * height else ""
    identifier = figure_id(figure.label)
    picture = image(figure.png, alt=f"{figure.title}. {figure.caption}")
    return (
        f'<figure class="card plot{broad}" id="{escape(identifier)}" '
        f'data-card="{escape(figure.label)}">\n{_tag(figure.label, identifier)}{_vectors(figure)}\n'
        f"<figcaption>{escape(figure.title)}</figcaption>\n"
        f'<button type="button" class="zoom" title="Enlarge">{picture}</button>\n'
        f'<p class="caption">{escape(figure.caption)}</p>\n</figure>'
    )


def _vectors(figure: FigureFile) -> str:
    """A link that keeps the drawing; enlarged, the figure is shown from it."""
    if figure.svg is None or len(figure.svg) > LARGEST_SVG:
        return ""
    name = "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in figure.label)
    address = data_url("image/svg+xml", figure.svg)
    return f'<a class="vectors" download="{escape(name)}.svg" href="{address}">SVG</a>'
