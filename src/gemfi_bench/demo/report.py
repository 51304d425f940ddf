"""The demo's report: one page that needs no network, no script and no other file."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

import torch

from gemfi._version import __version__
from gemfi.scores import score_label
from gemfi_bench.demo.captions import CAPTIONS, listed
from gemfi_bench.demo.runner import Run
from gemfi_bench.demo.table import TITLES, Column, columns, datasets, shown
from gemfi_bench.page import document, dot, picture, scrolling
from gemfi_bench.page import facts as fact_list
from gemfi_bench.style import method_label

_TITLE = "gemfi demo: what a classifier does not know"
_FACT_NAMES = {"seed": "Seed", "quick": "Quick", "seconds": "Seconds in all"}
_TASK_NAMES = {
    "digits": "handwritten digits",
    "two-moons": "two moons",
    "line": "a one-dimensional toy",
}
_CONVENTIONS = (
    "Accuracy, ECE, AUROC and AUPR are in percent. ↑: higher is better, ↓: lower.",
    "ECE: top-label confidence in 15 bins of equal width.",
    "Brier: the sum over classes of the squared error, ×100 (0 to 200).",
    "AUROC: the chance that an unseen input scores higher than a test input; 50 is chance.",
    "AUPR: average precision, ID positive; it depends on the sizes of both sides.",
    "OOD sets have the role ood-test: training, statistics and selection refuse them.",
)


def render_report(
    runs: Sequence[Run], figures: Mapping[str, bytes], facts: Mapping[str, Any]
) -> str:
    """The page.

    Args:
        runs: what was trained.
        figures: name -> PNG, as from `draw_figures`.
        facts: about the run; `seed` is told in the text too.
    """
    chosen = datasets(runs)
    parts = [_opening(runs, facts)]
    if "digits" in chosen:
        parts += ["<h2>Digits</h2>", _table("digits", chosen["digits"]), _scores(chosen["digits"])]
    toys = [name for name in chosen if name != "digits"]
    if toys:
        parts += ["<h2>Toys</h2>", *(_table(name, chosen[name]) for name in toys)]
    parts += ["<h2>Figures</h2>", *_figures(chosen, figures)]
    notes = "".join(f"<li>{escape(note)}</li>" for note in _CONVENTIONS)
    parts.append(f"<h2>Conventions</h2>\n<ul>{notes}</ul>")
    body = "\n".join(parts)
    return document(_TITLE, f"<main>\n{body}\n</main>")


def _opening(runs: Sequence[Run], facts: Mapping[str, Any]) -> str:
    shown_facts = {
        _FACT_NAMES.get(name, name): {True: "yes", False: "no"}.get(value, value)
        if isinstance(value, bool)
        else value
        for name, value in facts.items()
    }
    versions = {
        "gemfi": __version__,
        "torch": torch.__version__,
        "Python": platform.python_version(),
    }
    methods = list(dict.fromkeys(method_label(run.plan.method) for run in runs))
    tasks = [_TASK_NAMES.get(name, name) for name in dict.fromkeys(run.plan.task for run in runs)]
    return (
        f"<h1>{escape(_TITLE)}</h1>\n"
        f'<p class="lead">{len(runs)} models, of {escape(listed(methods))}, were trained on '
        f"{escape(listed(tasks))}, and then met inputs unlike any they had seen. The numbers say "
        "how often each is right, how well its confidence fits, and how well its uncertainty tells "
        "the unseen from the seen.</p>\n"
        "<p>One seed and small data: every difference is indicative only. "
        "<strong>Bold</strong> is the best value of its column, if better than chance.</p>\n"
        + fact_list(shown_facts | versions)
    )


def _table(dataset: str, runs: Sequence[Run]) -> str:
    cols = columns(dataset)
    best = [col.best(runs) if len(runs) > 1 else None for col in cols]
    rows = []
    for run in runs:
        cells = [
            _cell(cols, index, shown(col.value(run)), best[index]) for index, col in enumerate(cols)
        ]
        name = dot(run.plan.method) + escape(method_label(run.plan.method))
        rows.append(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>')
    body = "\n".join(rows)
    return scrolling(
        f"Table: {dataset}",
        f"<table>\n<caption><span>{escape(TITLES[dataset])}</span></caption>\n<thead>\n{_head(cols)}\n</thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>",
    )


def _head(cols: Sequence[Column]) -> str:
    groups = []
    for group, members in groupby(cols, key=lambda col: col.group):
        span = len(list(members))
        groups.append(
            f'<th scope="colgroup" colspan="{span}" class="first"><span>{escape(group)}</span></th>'
            if group
            else f'<td colspan="{span}"></td>'
        )
    heads = []
    for index, col in enumerate(cols):
        small = f"<small>{escape(col.score)}</small>" if col.score else ""
        heads.append(f'<th scope="col"{_place(cols, index)}>{escape(col.head)}{small}</th>')
    return (
        f'<tr><td></td>{"".join(groups)}</tr>\n<tr><th scope="col">method</th>{"".join(heads)}</tr>'
    )


def _place(cols: Sequence[Column], index: int, *more: str) -> str:
    """The class attribute of a cell: the first of a group stands apart."""
    begins = index > 0 and cols[index].group != cols[index - 1].group
    names = [*(["first"] if begins else []), *more]
    return f' class="{" ".join(names)}"' if names else ""


def _cell(cols: Sequence[Column], index: int, text: str, best: str | None) -> str:
    if text == best:
        return f"<td{_place(cols, index, 'best')}><strong>{text}</strong></td>"
    return f"<td{_place(cols, index)}>{text}</td>"


def _scores(runs: Sequence[Run]) -> str:
    """Which score stands behind the two words, for each method."""
    told = []
    for kind in ("aleatoric", "epistemic"):
        by_score: dict[str, list[str]] = {}
        for run in runs:
            score = getattr(run.model.head.info, kind)
            by_score.setdefault(score, []).append(method_label(run.plan.method))
        everyone = len(by_score) == 1
        uses = (
            f"{score_label(score)} ({'every method' if everyone else listed(who)})"
            for score, who in by_score.items()
        )
        told.append(f"{kind.capitalize()} score: {'; '.join(uses)}.")
    return f'<p class="soft">{escape(" ".join(told))}</p>'


def _figures(chosen: Mapping[str, Sequence[Run]], figures: Mapping[str, bytes]) -> list[str]:
    made = []
    for name, png in figures.items():
        dataset, describe = CAPTIONS[name]
        caption = describe(chosen[dataset])
        text = f"<strong>{escape(caption.title)}</strong> {escape(caption.text)}"
        made.append(picture(name, png, alt=caption.alt, caption=text))
    return made
