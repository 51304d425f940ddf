"""Precision-recall and ROC curves: of all methods overall, and for each score and OOD set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from gemfi import metrics
from gemfi._drawing import MUTED
from gemfi.metrics import Floats
from gemfi.scores import score_label
from gemfi_bench.figures import common
from gemfi_bench.figures.common import SMALL, TEXT, MethodRuns, Shown
from gemfi_bench.observation import constant
from gemfi_bench.results import Results, of_set
from gemfi_bench.unavailable import Unavailable

Kind = Literal["pr", "roc"]

SCORES: Final = (
    "max_prob", "entropy", "evidence", "differential_entropy", "mutual_information",
    "disagreement", "energy",
)  # fmt: skip
"""Rows of the figures by score; that of no method is left out."""

_ZOOMS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


_AREAS: Final[Mapping[Kind, tuple[str, str, Callable[[Floats, Floats], float]]]] = {
    "pr": ("AUPR", "aupr_id", metrics.aupr_id),
    "roc": ("AUROC", "auroc", metrics.auroc),
}
"""Kind -> the name of its area, its key in the records, its function."""

_AXES: Final[Mapping[Kind, tuple[str, str]]] = {
    "pr": ("recall (ID is positive)", "precision"),
    "roc": ("share of ID inputs flagged", "share of OOD inputs flagged"),
}


@dataclass(frozen=True, eq=False)
class Scored(Shown):
    """Scores of a method on ID and OOD inputs; its area over all seeds, as text and as number."""

    inside: Floats
    outside: Floats
    area: str
    mean: float


Panel = Sequence[Scored]


# -- drawing --------------------------------------------------------------------------------------


def draw_overall(panels: Mapping[Kind, Mapping[str, Panel]]) -> Figure:
    """A row of curves for each kind, a column for each group of OOD sets, areas at the side.

    Every column has the same methods.
    """
    columns = len(next(iter(panels.values())))
    figure = Figure(figsize=(TEXT, 2.3 * len(panels)), layout="constrained")
    ratios = [1.0] * columns + [0.5 + 0.4 * columns]
    axes = figure.subplots(len(panels), columns + 1, squeeze=False, width_ratios=ratios)
    for row, (kind, by_title) in enumerate(panels.items()):
        for column, (title, panel) in enumerate(by_title.items()):
            _draw_curves(axes[row, column], kind, panel, zoom(kind, panel))
            x_label, y_label = _AXES[kind]
            axes[row, column].set(xlabel=x_label, ylabel=y_label)
            common.panel_title(axes[row, column], row * columns + column, title)
        _list_areas(axes[row, -1], kind, by_title)
    return figure


def draw_by_score(kind: Kind, panels: Mapping[str, Mapping[str, Panel]]) -> Figure:
    """A row for each score, a column for each OOD set, lines for the methods with the score."""
    sets = list(next(iter(panels.values())))
    figure = Figure(figsize=(TEXT, 0.75 + 1.19 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), len(sets), squeeze=False, sharex=True, sharey="row")
    digits = 1 if len(sets) > 3 else 2
    for row, (name, by_set) in enumerate(panels.items()):
        for column, (title, panel) in enumerate(by_set.items()):
            _draw_curves(axes[row, column], kind, panel)
            _name_best(axes[row, column], panel, digits)
            if row == 0:
                axes[row, column].set_title(title, fontsize=8.5, pad=13)
        axes[row, 0].set_ylim(min(_lowest(kind, panel) for panel in by_set.values()), 1.02)
        axes[row, 0].set_ylabel(common.in_lines(score_label(name)), fontsize=8)
    x_label, y_label = _AXES[kind]
    figure.supxlabel(x_label, fontsize=8.5)
    figure.supylabel(y_label, fontsize=8.5)
    methods = [method for by_set in panels.values() for method in next(iter(by_set.values()))]
    figure.legend(
        handles=common.line_handles(methods), loc="outside upper center", ncols=8, handlelength=1.2,
        columnspacing=1.0, handletextpad=0.5,
    )  # fmt: skip
    return figure


def _draw_curves(axes: Axes, kind: Kind, panel: Panel, part: float = 1.0) -> None:
    """The lines of the methods, that of chance, and limits that leave no empty half."""
    for method in sorted(panel, key=lambda method: method.on_top):
        steps = "steps-pre" if kind == "pr" else "default"
        axes.plot(*points(kind, method), label=method.label, drawstyle=steps, **method.style())
    axes.tick_params(labelsize=SMALL)
    if part < 1.0:
        _zoom_in(axes, kind, part)
        return
    ends = [0.0, 1.0] if kind == "roc" else [_chance(panel)] * 2
    axes.plot([0, 1], ends, color=MUTED, linewidth=0.7, linestyle=":")
    axes.set(xlim=(-0.02, 1.02), xticks=[0, 0.5, 1], xticklabels=["0", "½", "1"])
    axes.set_ylim(_lowest(kind, panel), 1.02)
    if kind == "roc":
        axes.set(yticks=[0, 0.5, 1], yticklabels=["0", "½", "1"])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}")


def points(kind: Kind, scored: Scored) -> tuple[Floats, Floats]:
    """The line of a method; one of precision is level up to the recall of its first ID input."""
    if kind == "roc":
        curve = metrics.roc_curve(scored.inside, scored.outside)
        return curve.x, curve.y
    curve = metrics.pr_curve(scored.inside, scored.outside, "id")
    known = curve.x > 0  # OOD inputs before the first ID input have a precision of 0 at no recall
    return np.append(0.0, curve.x[known]), np.append(curve.y[known][0], curve.y[known])


def _chance(panel: Panel) -> float:
    """The precision of a score that knows nothing: the share of ID inputs."""
    inside, outside = len(panel[0].inside), len(panel[0].outside)
    return inside / (inside + outside)


def _lowest(kind: Kind, panel: Panel) -> float:
    """The low end of the vertical axis: below chance and every line, its first few inputs aside."""
    if kind == "roc":
        return -0.02
    lines = [points(kind, method) for method in panel]
    low = min(_chance(panel), *(float(y[x >= 0.1].min()) for x, y in lines))
    return max(-0.02, low - 0.06 * (1.02 - low))


def zoom(kind: Kind, panel: Panel) -> float:
    """The part of both axes that holds the bend of every curve: 1 for all, 0.1 for a corner.

    The bend is where as much is missing to a perfect value on one axis as on the other; twice its
    distance from the corner is shown.
    """
    missing = []
    for method in panel:
        x, y = points(kind, method)
        missing.append(float(np.maximum(x if kind == "roc" else 1 - x, 1 - y).min()))
    return min(part for part in _ZOOMS if part == 1.0 or part >= 2 * max(missing))


def _zoom_in(axes: Axes, kind: Kind, part: float) -> None:
    x_ends = (0.0, part) if kind == "roc" else (1 - part, 1.0)
    for axis, (low, high) in ((axes.xaxis, x_ends), (axes.yaxis, (1 - part, 1.0))):
        axis.set_view_interval(low - 0.02 * part, high + 0.02 * part, ignore=True)
        axis.set_major_locator(FixedLocator([low, (low + high) / 2, high]))
        axis.set_major_formatter(lambda value, _: f"{value:.4g}")


def _list_areas(axes: Axes, kind: Kind, by_title: Mapping[str, Panel]) -> None:
    """The legend of a row as a small table: each method with its area in every column."""
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    methods = list(zip(*by_title.values(), strict=True))
    places = np.linspace(1.0, 0.3, len(by_title) + 1)[:-1][::-1]
    heights = 0.9 - 0.105 * np.arange(len(methods) + 1)
    style: dict[str, Any] = {"fontsize": SMALL, "va": "center"}
    axes.text(0.0, heights[0], _AREAS[kind][0], fontweight="bold", **style)
    for x, title in zip(places, by_title, strict=True):
        group = title.partition(":")[0]
        axes.text(x, heights[0], group, ha="right", fontweight="bold", **style)
    for y, (method, *others) in zip(heights[1:], methods, strict=True):
        weight = "bold" if method.on_top else "normal"
        axes.plot([-0.1, -0.03], [y, y], color=method.color, linewidth=1.8, clip_on=False)
        axes.text(0.0, y, method.label, fontweight=weight, **style)
        for x, scored in zip(places, (method, *others), strict=True):
            axes.text(x, y, scored.area.replace(" ", ""), ha="right", **style)


def _name_best(axes: Axes, panel: Panel, digits: int) -> None:
    """Above a panel the area of the method on top, and the best of the others."""
    ours = [method for method in panel if method.on_top]
    others = sorted((method for method in panel if not method.on_top), key=lambda m: -m.mean)
    for x, side, chosen in ((0.0, "left", ours), (1.0, "right", others[:1])):
        for method in chosen:
            mean = f"{method.mean:.{digits}f}"
            axes.text(
                x, 1.03, f"{method.label} {'100' if mean.startswith('100') else mean}",
                transform=axes.transAxes, ha=side, va="bottom", fontsize=6.3, color=method.color,
            )  # fmt: skip


# -- from results ---------------------------------------------------------------------------------


def overall(results: Results) -> Figure:
    """Every method by its own epistemic score, against all near and all far OOD sets."""
    groups = common.ood_groups(results)
    titles = {group: common.group_title(results, group, names) for group, names in groups.items()}
    panels: dict[Kind, dict[str, list[Scored]]] = {
        kind: {title: [] for title in titles.values()} for kind in _AREAS
    }
    for row in common.leading_rows(results):  # outermost, so that the arrays of a run are read once
        for group, names in groups.items():
            pairs = []
            for run in row.runs:
                key = f"score/{run.scores['epistemic']}"
                inside = common.needed(results, run, ["test"], key)
                pairs.append((inside, common.needed(results, run, names, key)))
            for kind, (_, _, area) in _AREAS.items():
                areas = [area(*pair) for pair in pairs]
                scored = Scored(
                    row.label, row.color, *pairs[0], common.spread(areas, 2), float(np.mean(areas)),
                    on_top=row.is_ours,
                )  # fmt: skip
                panels[kind][titles[group]].append(scored)
    return draw_overall(panels)


def by_score(results: Results, kind: Kind) -> Figure:
    """Each score of each method against each OOD set."""
    rows, sets = common.leading_rows(results), list(common.group_of(results))
    panels: dict[str, dict[str, Panel]] = {}
    for score in SCORES:
        having = [row for row in rows if _has(results, row, score, sets)]
        if having:
            panels[score] = {
                results.title(name): [_scores(results, row, score, name, kind) for row in having]
                for name in sets
            }
    if not panels:
        raise Unavailable("no score of these methods differs from input to input")
    return draw_by_score(kind, panels)


def _has(results: Results, row: MethodRuns, score: str, names: Sequence[str]) -> bool:
    """Whether a method has a score that is not one number throughout."""
    arrays = [
        common.pooled(results, row.first, [name], f"score/{score}") for name in ("test", *names)
    ]
    known = [array for array in arrays if array is not None]
    return len(known) == len(arrays) and not constant(known)


def _scores(results: Results, row: MethodRuns, score: str, name: str, kind: Kind) -> Scored:
    sets = results.arrays(row.first)
    value = results.value(row.row, of_set(name, score, _AREAS[kind][1]))
    mean = float("nan") if value is None else value.mean
    inside, outside = sets["test"][f"score/{score}"], sets[name][f"score/{score}"]
    return Scored(row.label, row.color, inside, outside, f"{mean:.1f}", mean, on_top=row.is_ours)


FIGURES: Final = {
    "prroc": overall,
    "pr-curves": partial(by_score, kind="pr"),
    "roc-curves": partial(by_score, kind="roc"),
}
