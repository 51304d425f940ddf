"""How scores are distributed on ID and OOD data: histograms and box plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gemfi import metrics
from gemfi._drawing import MUTED
from gemfi.metrics import Floats
from gemfi.scores import score_label
from gemfi_bench.figures import common
from gemfi_bench.figures.common import GROUP_COLORS, ID, LEAST, SMALL, TEXT, Shown
from gemfi_bench.observation import constant
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

HISTOGRAMS: Final = ("max_prob", "entropy", "mutual_information")
BOXES: Final = ("max_prob", "entropy", "mutual_information", "evidence")
BOX_METHODS: Final = ("edl", "daedl", "re-edl", "gem-core", "gem-mix", "gem-fi")
POSITIVE: Final = frozenset(
    {
        "max_prob", "entropy", "mutual_information", "disagreement", "expected_entropy", "conflict",
        "unfamiliarity",
    }
)  # fmt: skip
"""Scores from 0 on whose small values matter: they have a logarithmic axis."""

BINS: Final = 36
ON_ONE_LINE: Final = 4
"""So many methods have room for whole names beside each other; of more the long ones are broken."""

_FILL: Final = 0.35


def _group_legend(figure: Figure, groups: Sequence[str]) -> None:
    colors = {group: GROUP_COLORS[group] for group in groups}
    handles = [
        Patch(facecolor=(color, _FILL), edgecolor=color, label=group)
        for group, color in colors.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))


# -- histograms -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mirrored:
    """A panel: a score by group of sets, ID data above the line, OOD data below it; and a note."""

    score: str
    values: Mapping[str, Floats]
    note: str


def draw_histograms(
    rows: Mapping[str, Sequence[Mirrored]], columns: Sequence[str] = (), width: float = TEXT
) -> Figure:
    """Rows of panels by their labels; those of a row that show the same score share its bins.

    Each half of a panel has its own scale: what counts is where the two lie, and no peak hides
    the other.
    """
    count = len(next(iter(rows.values())))
    figure = Figure(figsize=(width, 0.5 + 1.3 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), count, squeeze=False)
    for row, (label, panels) in enumerate(rows.items()):
        for column, panel in enumerate(panels):
            alike = [other for other in panels if other.score == panel.score]
            values = [part for other in alike for part in other.values.values()]
            _draw_mirrored(axes[row, column], panel, histogram_edges(panel.score, values))
        axes[row, 0].set_ylabel(common.in_lines(label))
    for column, title in enumerate(columns):
        axes[0, column].set_title(title, pad=14, fontsize=8.5)
    groups = [group for panels in rows.values() for panel in panels for group in panel.values]
    _group_legend(figure, groups)
    return figure


def histogram_edges(score: str, values: Sequence[Floats]) -> Floats:
    """Bins of a score over its sets, from quantile to quantile; even on the axis of the score."""
    if score not in POSITIVE:
        return np.linspace(*common.quantile_limits(values), BINS + 1)
    return np.asarray(np.geomspace(*common.quantile_limits(values, log=True), BINS + 1))


def shares(values: Floats, edges: Floats) -> Floats:
    """The share of the values in each bin; what lies beyond the axis is in its last bin."""
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    return np.asarray(counts / len(values))


def _draw_mirrored(axes: Axes, panel: Mirrored, edges: Floats) -> None:
    heights = {group: shares(values, edges) for group, values in panel.values.items()}
    peak = max((height.max() for group, height in heights.items() if group != ID), default=1.0)
    for group, height in heights.items():
        scaled = height / height.max() if group == ID else -height / peak
        axes.stairs(scaled, edges, fill=True, color=(GROUP_COLORS[group], _FILL))
        axes.stairs(scaled, edges, color=GROUP_COLORS[group], linewidth=1.0)
    if panel.score in POSITIVE:
        common.log_axis(axes, "x", (float(edges[0]), float(edges[-1])))
    axes.axhline(0, color=MUTED, linewidth=0.7)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(-1.08, 1.08), yticks=[])
    axes.tick_params(labelsize=SMALL)
    axes.spines.left.set_visible(False)
    axes.text(
        0.5, 1.0, panel.note, transform=axes.transAxes, ha="center", va="bottom", fontsize=SMALL
    )


# -- box plots ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Boxes(Shown):
    """The boxes of a method: group of sets -> the score on them."""

    values: Mapping[str, Floats]


def draw_boxes(panels: Mapping[str, Sequence[Boxes]]) -> Figure:
    """A panel a score: a box for each group of sets and method that has the score."""
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(TEXT, 0.4 + 2.1 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for index, (score, methods) in enumerate(panels.items()):
        _draw_boxes(axes[index], score, methods)
        common.panel_title(axes[index], index, score_label(score))
    for empty in axes[len(panels) :]:
        empty.set_axis_off()
    _group_legend(figure, list(next(iter(panels.values()))[0].values))
    return figure


def _draw_boxes(axes: Axes, score: str, methods: Sequence[Boxes]) -> None:
    groups = list(methods[0].values)
    offsets = (np.arange(len(groups)) - (len(groups) - 1) / 2) * 0.26
    limits = finite_range(score, methods)
    ends = []
    for offset, group in zip(offsets, groups, strict=True):
        values = [np.clip(method.values[group], *limits) for method in methods]
        ends += [np.quantile(part, [0.05, 0.95]) for part in values]
        color = GROUP_COLORS[group]
        style: dict[str, Any] = {"color": color, "linewidth": 0.9}
        axes.boxplot(
            values, positions=np.arange(len(methods)) + offset, widths=0.2, whis=(5, 95),
            showfliers=False, patch_artist=True, manage_ticks=False, capprops=style,
            boxprops={"facecolor": (color, _FILL), "edgecolor": color, "linewidth": 0.9},
            whiskerprops=style, medianprops=style | {"linewidth": 1.8},
        )  # fmt: skip
    if score in POSITIVE:
        common.log_axis(axes, "y", (float(np.min(ends)), float(np.max(ends))))
    names = [method.label for method in methods]
    if len(methods) > ON_ONE_LINE:
        names = [name.replace("GEM-", "GEM-\n") for name in names]
    common.name_ticks(axes.xaxis, methods, names)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.set_xlim(-0.5, len(methods) - 0.5)


def finite_range(score: str, methods: Sequence[Boxes]) -> tuple[float, float]:
    """The least and the greatest number in a panel: infinite ones are drawn there.

    Both are above 0 for a score with a logarithmic axis.
    """
    values = np.concatenate([part for method in methods for part in method.values.values()])
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    return (max(low, LEAST), max(high, LEAST)) if score in POSITIVE else (low, high)


# -- from results ---------------------------------------------------------------------------------


def histograms(results: Results) -> Figure:
    """Three scores of GEM-FI against each OOD set, by the first seed."""
    run = common.shown_row(results).first
    sets = common.group_of(results)

    def panel(score: str, name: str) -> Mirrored:
        key = f"score/{score}"
        inside, outside = (
            common.needed(results, run, ["test"], key),
            common.needed(results, run, [name], key),
        )
        auroc = f"AUROC {metrics.auroc(inside, outside):.1f}"
        return Mirrored(score, {ID: inside, sets[name]: outside}, auroc)

    rows = {score_label(score): [panel(score, name) for name in sets] for score in HISTOGRAMS}
    return draw_histograms(rows, [results.title(name) for name in sets])


def boxes(results: Results) -> Figure:
    """Four scores of evidential methods on ID, near-OOD and far-OOD data, by the first seed."""
    groups = common.set_groups(results)
    panels: dict[str, list[Boxes]] = {}
    for row in common.shown_rows(results, BOX_METHODS):
        for score in BOXES:
            arrays = {
                group: common.pooled(results, row.first, names, f"score/{score}")
                for group, names in groups.items()
            }
            values = {group: array for group, array in arrays.items() if array is not None}
            if len(values) == len(groups) and not constant(values.values()):
                panels.setdefault(score, []).append(Boxes(row.label, row.color, values))
    if not panels:
        raise Unavailable(f"no run has one of the scores {', '.join(BOXES)}")
    return draw_boxes({score: panels[score] for score in BOXES if score in panels})


FIGURES: Final = {"hist-ood": histograms, "boxplots": boxes}
