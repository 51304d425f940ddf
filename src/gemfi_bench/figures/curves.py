"""Precision-recall and ROC curves: of all methods overall, and for each score and OOD set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from gemfi import metrics
from gemfi._drawing import MUTED, styled
from gemfi.metrics import Floats
from gemfi.scores import DIFFERENTIAL_ENTROPY_NOTE, score_label
from gemfi_bench.figures.common import (
    SMALL,
    TEXT,
    FigureEntry,
    Shown,
    group_title,
    in_lines,
    leading_rows,
    needed,
    ood_groups,
    panel_title,
    pooled,
    spread,
)
from gemfi_bench.observation import constant
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results, of_set
from gemfi_bench.unavailable import Unavailable

Kind = Literal["pr", "roc"]

SCORES: Final = (
    "max_prob", "entropy", "evidence", "differential_entropy", "mutual_information",
    "disagreement", "energy",
)  # fmt: skip
"""Rows of the figures by score; that of no method is left out."""

_AREA: Final[Mapping[Kind, str]] = {"pr": "AUPR", "roc": "AUROC"}
_METRIC: Final[Mapping[Kind, str]] = {"pr": "aupr_id", "roc": "auroc"}
_AXES: Final[Mapping[Kind, tuple[str, str]]] = {
    "pr": ("recall (ID is positive)", "precision"),
    "roc": ("share of ID inputs flagged", "share of OOD inputs flagged"),
}


@dataclass(frozen=True, eq=False)
class Scored:
    """What a method gives to a panel.

    Attributes:
        label: of the method.
        color: of its line.
        inside: scores of the ID inputs, higher is more uncertain.
        outside: of the OOD inputs.
        area: under the curve over all seeds, as text.
        mean: the same, as a number.
        on_top: draw it thicker and last.
    """

    label: str
    color: str
    inside: Floats
    outside: Floats
    area: str
    mean: float
    on_top: bool = False


Panel = Sequence[Scored]


# -- drawing --------------------------------------------------------------------------------------


@styled()
def draw_overall(panels: Mapping[Kind, Mapping[str, Panel]]) -> Figure:
    """A row of curves for each kind, a column for each group of OOD sets, areas at the side.

    Args:
        panels: kind -> title of a column -> methods, the same ones in every column.
    """
    columns = len(next(iter(panels.values())))
    figure = Figure(figsize=(TEXT, 2.3 * len(panels)), layout="constrained")
    axes = figure.subplots(
        len(panels),
        columns + 1,
        squeeze=False,
        width_ratios=[1.0] * columns + [0.5 + 0.4 * columns],
    )
    for row, (kind, by_title) in enumerate(panels.items()):
        for column, (title, panel) in enumerate(by_title.items()):
            _curves(axes[row, column], kind, panel, zoom(kind, panel))
            _labelled(axes[row, column], kind)
            panel_title(axes[row, column], row * columns + column, title)
        _areas(axes[row, -1], kind, by_title)
    return figure


@styled()
def draw_by_score(kind: Kind, panels: Mapping[str, Mapping[str, Panel]]) -> Figure:
    """A row for each score, a column for each OOD set.

    Args:
        kind: of the curves.
        panels: score -> OOD set -> methods that have the score.
    """
    sets = list(next(iter(panels.values())))
    figure = Figure(figsize=(TEXT, 0.75 + 1.19 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), len(sets), squeeze=False, sharex=True, sharey="row")
    digits = 1 if len(sets) > 3 else 2
    for row, (name, by_set) in enumerate(panels.items()):
        for column, (title, panel) in enumerate(by_set.items()):
            _curves(axes[row, column], kind, panel)
            _best(axes[row, column], panel, digits)
            if row == 0:
                axes[row, column].set_title(title, fontsize=8.5, pad=13)
        axes[row, 0].set_ylim(min(_lowest(kind, panel) for panel in by_set.values()), 1.02)
        axes[row, 0].set_ylabel(in_lines(score_label(name)), fontsize=8)
    x, y = _AXES[kind]
    figure.supxlabel(x, fontsize=8.5)
    figure.supylabel(y, fontsize=8.5)
    figure.legend(handles=_handles(panels), loc="outside upper center", ncols=8, **_LEGEND)
    return figure


_LEGEND: Final = {"handlelength": 1.2, "columnspacing": 1.0, "handletextpad": 0.5}


def _curves(axes: Axes, kind: Kind, panel: Panel, part: float = 1.0) -> None:
    """The lines of the methods, that of chance, and limits that leave no empty half."""
    for each in sorted(panel, key=lambda each: each.on_top):
        x, y = points(kind, each)
        axes.plot(
            x, y, label=each.label, color=each.color, linewidth=1.8 if each.on_top else 1.0,
            drawstyle="steps-pre" if kind == "pr" else "default",
        )  # fmt: skip
    if part < 1.0:
        _zoomed(axes, kind, part)
    else:
        ends = [0.0, 1.0] if kind == "roc" else [_chance(panel)] * 2
        axes.plot([0, 1], ends, color=MUTED, linewidth=0.7, linestyle=":")
        axes.set(xlim=(-0.02, 1.02), xticks=[0, 0.5, 1], xticklabels=["0", "½", "1"])
        axes.set_ylim(_lowest(kind, panel), 1.02)
        if kind == "roc":
            axes.set(yticks=[0, 0.5, 1], yticklabels=["0", "½", "1"])
        else:
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
    axes.tick_params(labelsize=SMALL)


def points(kind: Kind, scored: Scored) -> tuple[Floats, Floats]:
    """Of the line of a method; one of precision is level up to the recall of its first ID input.

    Args:
        kind: of the curve.
        scored: the method.
    """
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
    """Of the vertical axis: below chance and below every line, its first few inputs aside."""
    if kind == "roc":
        return -0.02
    lines = [points(kind, each) for each in panel]
    low = min(_chance(panel), *(float(y[x >= 0.1].min()) for x, y in lines))
    return max(-0.02, low - 0.06 * (1.02 - low))


def zoom(kind: Kind, panel: Panel) -> float:
    """The part of both axes that holds the bend of every curve: 1 for all, 0.1 for a corner.

    The bend is where as much is missing to a perfect value on one axis as on the other; twice its
    distance from the corner is shown.

    Args:
        kind: of the curves.
        panel: the methods.
    """
    missing = []
    for each in panel:
        x, y = points(kind, each)
        missing.append(float(np.maximum(x if kind == "roc" else 1 - x, 1 - y).min()))
    return min(part for part in _ZOOMS if part == 1.0 or part >= 2 * max(missing))


def _zoomed(axes: Axes, kind: Kind, part: float) -> None:
    ends = (0.0, part) if kind == "roc" else (1 - part, 1.0)
    room = 0.02 * part
    axes.set(xlim=(ends[0] - room, ends[1] + room), ylim=(1 - part - room, 1 + room))
    for axis, (low, high) in ((axes.xaxis, ends), (axes.yaxis, (1 - part, 1.0))):
        axis.set_major_locator(FixedLocator([low, (low + high) / 2, high]))
        axis.set_major_formatter(lambda value, _: f"{value:.4g}")


_ZOOMS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def _labelled(axes: Axes, kind: Kind) -> None:
    x, y = _AXES[kind]
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _areas(axes: Axes, kind: Kind, by_title: Mapping[str, Panel]) -> None:
    """The legend of a row as a small table: each method with its area in every column."""
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    methods = list(zip(*by_title.values(), strict=True))
    places = np.linspace(1.0, 0.3, len(by_title) + 1)[:-1][::-1]
    heights = 0.9 - 0.105 * np.arange(len(methods) + 1)
    style: dict[str, Any] = {"fontsize": SMALL, "va": "center"}
    axes.text(0.0, heights[0], _AREA[kind], fontweight="bold", **style)
    for x, title in zip(places, by_title, strict=True):
        name = title.partition(":")[0]
        axes.text(x, heights[0], name, ha="right", fontweight="bold", **style)
    for y, each in zip(heights[1:], methods, strict=True):
        first = each[0]
        weight = "bold" if first.on_top else "normal"
        axes.plot([-0.1, -0.03], [y, y], color=first.color, linewidth=1.8, clip_on=False)
        axes.text(0.0, y, first.label, fontweight=weight, **style)
        for x, one in zip(places, each, strict=True):
            axes.text(x, y, one.area.replace(" ", ""), ha="right", **style)


def _best(axes: Axes, panel: Panel, digits: int) -> None:
    """Above a panel the area of the method on top, and the best of the others."""
    ours = [each for each in panel if each.on_top]
    others = sorted((each for each in panel if not each.on_top), key=lambda each: -each.mean)
    for x, side, chosen in ((0.0, "left", ours), (1.0, "right", others[:1])):
        for each in chosen:
            axes.text(
                x, 1.03, f"{each.label} {_short(each.mean, digits)}", transform=axes.transAxes,
                ha=side, va="bottom", fontsize=6.3, color=each.color,
            )  # fmt: skip


def _short(percent: float, digits: int) -> str:
    """A number with few digits: 100 in place of 100.0."""
    text = f"{percent:.{digits}f}"
    return "100" if text.startswith("100") else text


def _handles(panels: Mapping[str, Mapping[str, Panel]]) -> list[Line2D]:
    found: dict[str, Line2D] = {}
    for by_set in panels.values():
        for each in next(iter(by_set.values())):
            width = 1.8 if each.on_top else 1.2
            line = Line2D([], [], color=each.color, linewidth=width, label=each.label)
            found.setdefault(each.label, line)
    return list(found.values())


# -- from results ---------------------------------------------------------------------------------


def overall(results: Results) -> Figure:
    """Every method by its own epistemic score, against all near and all far OOD sets."""
    rows, groups = leading_rows(results), ood_groups(results)
    titles = {group: group_title(results, group, names) for group, names in groups.items()}
    panels: dict[Kind, dict[str, list[Scored]]] = {
        kind: {title: [] for title in titles.values()} for kind in _AREA
    }
    for row in rows:  # outermost, so that the arrays of a run are read once
        for group, names in groups.items():
            pairs = [_epistemic(results, run, names) for run in row.runs]
            for kind, by_title in panels.items():
                by_title[titles[group]].append(_overall(row, pairs, kind))
    return draw_overall(panels)


def _overall(row: Shown, pairs: Sequence[tuple[Floats, Floats]], kind: Kind) -> Scored:
    measure: Callable[[Floats, Floats], float] = metrics.aupr_id if kind == "pr" else metrics.auroc
    areas = [measure(*pair) for pair in pairs]
    mean = float(np.mean(areas))
    return Scored(row.label, row.color, *pairs[0], spread(areas, 2), mean, row.is_ours)


def _epistemic(results: Results, run: RunRecord, names: Sequence[str]) -> tuple[Floats, Floats]:
    key = f"score/{run.scores['epistemic']}"
    return needed(results, run, ["test"], key), needed(results, run, names, key)


def by_score(results: Results, kind: Kind) -> Figure:
    """Each score of each method against each OOD set."""
    rows = leading_rows(results)
    sets = [name for names in ood_groups(results).values() for name in names]
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


def _has(results: Results, row: Shown, score: str, names: Sequence[str]) -> bool:
    """Whether a method has a score that is not one number throughout."""
    values = [pooled(results, row.first, [name], f"score/{score}") for name in ("test", *names)]
    known = [each for each in values if each is not None]
    return len(known) == len(values) and not constant(known)


def _scores(results: Results, row: Shown, score: str, name: str, kind: Kind) -> Scored:
    sets = results.arrays(row.first)
    value = results.value(row.row, of_set(name, score, _METRIC[kind]))
    mean = float("nan") if value is None else value.mean
    inside, outside = sets["test"][f"score/{score}"], sets[name][f"score/{score}"]
    return Scored(row.label, row.color, inside, outside, f"{mean:.1f}", mean, row.is_ours)


_CONVENTIONS: Final = (
    "Lines are of the first seed and are not smoothed; numbers are means over all seeds, in "
    "percent. A dotted line is chance."
)
ENTRIES: Final[Mapping[str, FigureEntry]] = {
    "prroc": FigureEntry(
        "Precision-recall and ROC curves",
        "OOD detection by each method's own epistemic score. Columns: the near-OOD sets and the "
        "far-OOD sets, all images of a group together. Top: precision and recall with ID as the "
        "positive class, the form of the paper's numbers. Bottom: the share of OOD inputs flagged "
        "against the share of ID inputs flagged. The legend has the areas in the order of the "
        "columns, mean ± standard deviation over seeds. Where all curves of a panel bend near the "
        "corner, only that corner is shown. " + _CONVENTIONS,
        overall,
    ),
    "pr-curves": FigureEntry(
        "Precision-recall curves by score",
        "Precision and recall with ID as the positive class. Rows: scores, columns: OOD sets, "
        "lines: the methods that have the score. Above each panel the AUPR of GEM-FI and of the "
        "best other method. The vertical axis of a row begins below its lines and below chance, "
        "the share of ID inputs. " + f"{_CONVENTIONS} {DIFFERENTIAL_ENTROPY_NOTE}",
        lambda results: by_score(results, "pr"),
    ),
    "roc-curves": FigureEntry(
        "ROC curves by score",
        "The share of OOD inputs flagged against the share of ID inputs flagged. Rows: scores, "
        "columns: OOD sets, lines: the methods that have the score. Above each panel the AUROC of "
        "GEM-FI and of the best other method. " + f"{_CONVENTIONS} {DIFFERENTIAL_ENTROPY_NOTE}",
        lambda results: by_score(results, "roc"),
    ),
}
