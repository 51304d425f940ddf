"""How scores are distributed on ID and OOD data: histograms and box plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator

from gemfi import metrics
from gemfi._drawing import MUTED, styled
from gemfi.metrics import Floats
from gemfi.scores import score_label
from gemfi_bench.figures.common import (
    GROUP_COLORS,
    ID,
    SMALL,
    TEXT,
    FigureEntry,
    Shown,
    group_of,
    in_lines,
    needed,
    panel_title,
    pooled,
    quantile_limits,
    set_groups,
    shown_row,
    shown_rows,
)
from gemfi_bench.observation import constant
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

HISTOGRAMS: Final = ("max_prob", "entropy", "mutual_information")
BOXES: Final = ("max_prob", "entropy", "mutual_information", "evidence")
BOX_METHODS: Final = ("edl", "daedl", "re-edl", "gem-core", "gem-mix", "gem-fi")
POSITIVE: Final = frozenset(
    {"max_prob", "entropy", "mutual_information", "disagreement", "expected_entropy", "conflict"}
)
"""Scores from 0 on whose small values matter: they have a logarithmic axis."""

BINS: Final = 36
ON_ONE_LINE: Final = 4
"""So many methods have room for whole names beside each other; of more the long ones are broken."""

LEAST: Final = 1e-12
"""What a logarithmic axis shows of a score of 0."""

_FILL: Final = 0.35


# -- histograms -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pair:
    """A score on ID data and on one OOD set.

    Attributes:
        group: of the OOD set, which decides its colour.
        inside: (n,).
        outside: (m,).
    """

    group: str
    inside: Floats
    outside: Floats


@styled()
def draw_histograms(panels: Mapping[str, Mapping[str, Pair]]) -> Figure:
    """A row a score and a column an OOD set: ID data above the line, OOD data below.

    Each half has its own scale: what counts is where the two lie, and no peak hides the other.

    Args:
        panels: score -> OOD set -> values.
    """
    sets = next(iter(panels.values()))
    figure = Figure(figsize=(TEXT, 0.5 + 1.3 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), len(sets), squeeze=False)
    for row, (name, by_set) in enumerate(panels.items()):
        edges = histogram_edges(name, [v for p in by_set.values() for v in (p.inside, p.outside)])
        for column, (title, pair) in enumerate(by_set.items()):
            _mirrored(axes[row, column], name, pair, edges)
            if row == 0:
                axes[row, column].set_title(title, pad=14, fontsize=8.5)
        axes[row, 0].set_ylabel(in_lines(score_label(name)))
    groups = dict.fromkeys([ID, *(pair.group for pair in sets.values())])
    figure.legend(
        handles=[_patch(group) for group in groups], loc="outside upper center", ncols=len(groups)
    )
    return figure


def histogram_edges(name: str, values: Sequence[Floats]) -> Floats:
    """Bins of a score over its sets, from quantile to quantile; even on the axis of the score.

    Args:
        name: of the score.
        values: of each set.
    """
    if name not in POSITIVE:
        return np.linspace(*quantile_limits(values), BINS + 1)
    logs = [np.log10(np.maximum(each, LEAST)) for each in values]
    return np.asarray(10 ** np.linspace(*quantile_limits(logs), BINS + 1))


def shares(values: Floats, edges: Floats) -> Floats:
    """The share of the values in each bin; what lies beyond the axis is in its last bin."""
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    return np.asarray(counts / len(values))


def _mirrored(axes: Axes, name: str, pair: Pair, edges: Floats) -> None:
    for values, group, side in ((pair.inside, ID, 1), (pair.outside, pair.group, -1)):
        share = shares(values, edges)
        height, color = side * share / share.max(), GROUP_COLORS[group]
        axes.stairs(height, edges, fill=True, color=(color, _FILL))
        axes.stairs(height, edges, color=color, linewidth=1.0)
    if name in POSITIVE:
        log_axis(axes, "x", (float(edges[0]), float(edges[-1])))
    axes.axhline(0, color=MUTED, linewidth=0.7)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(-1.08, 1.08), yticks=[])
    axes.tick_params(labelsize=SMALL)
    axes.spines.left.set_visible(False)
    auroc = f"AUROC {metrics.auroc(pair.inside, pair.outside):.1f}"
    axes.text(0.5, 1.0, auroc, transform=axes.transAxes, ha="center", va="bottom", fontsize=SMALL)


def log_axis(axes: Axes, which: str, limits: tuple[float, float], ticks: int = 5) -> None:
    """A logarithmic axis with plain numbers, few enough for a small panel.

    Args:
        axes: of the panel.
        which: `x` or `y`.
        limits: of the axis.
        ticks: at most so many.
    """
    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(_log_locator(limits[1] / limits[0], ticks))
    axis.set_major_formatter(lambda value, _: power_text(value))
    axis.set_minor_locator(NullLocator())


def _log_locator(length: float, ticks: int) -> Locator:
    """Powers of ten; 3 between them where there are few; even steps on less than a power."""
    if length < 8:
        return MaxNLocator(max(1, ticks - 3))
    return LogLocator(subs=(1, 3) if length < 10**2 else (1,), numticks=ticks)


def power_text(value: float) -> str:
    """A number of a logarithmic axis: plain where it is short, else a power of ten."""
    if value <= 0:
        return ""
    if 1e-3 <= value < 1e4:
        return f"{value:g}"
    exponent = int(np.floor(np.log10(value) + 1e-9))
    factor = value / 10.0**exponent
    front = "" if round(factor) == 1 else f"{factor:.0f}·"
    return f"{front}$10^{{{exponent}}}$"


def _patch(group: str) -> Patch:
    color = GROUP_COLORS[group]
    return Patch(facecolor=(color, _FILL), edgecolor=color, label=group)


# -- box plots ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of a method.

    Attributes:
        label: of the method.
        color: of its label.
        values: group of sets -> the score on them.
    """

    label: str
    color: str
    values: Mapping[str, Floats]


@styled()
def draw_boxes(panels: Mapping[str, Sequence[Boxes]]) -> Figure:
    """A panel a score: a box for each method and group of sets.

    Args:
        panels: score -> methods that have it.
    """
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(TEXT, 0.4 + 2.1 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for index, (name, methods) in enumerate(panels.items()):
        _boxes(axes[index], name, methods)
        panel_title(axes[index], index, score_label(name))
    for empty in axes[len(panels) :]:
        empty.set_axis_off()
    groups = list(next(iter(panels.values()))[0].values)
    figure.legend(
        handles=[_patch(group) for group in groups], loc="outside upper center", ncols=len(groups)
    )
    return figure


def _boxes(axes: Axes, name: str, methods: Sequence[Boxes]) -> None:
    groups = list(methods[0].values)
    offsets = (np.arange(len(groups)) - (len(groups) - 1) / 2) * 0.26
    low, high = finite_range(name, methods)
    for offset, group in zip(offsets, groups, strict=True):
        values = [np.clip(each.values[group], low, high) for each in methods]
        color = GROUP_COLORS[group]
        style: dict[str, Any] = {"color": color, "linewidth": 0.9}
        axes.boxplot(
            values, positions=np.arange(len(methods)) + offset, widths=0.2, whis=(5, 95),
            showfliers=False, patch_artist=True, manage_ticks=False, capprops=style,
            boxprops={"facecolor": (color, _FILL), "edgecolor": color, "linewidth": 0.9},
            whiskerprops=style, medianprops=style | {"linewidth": 1.8},
        )  # fmt: skip
    if name in POSITIVE:
        log_axis(axes, "y", _extent(methods, (low, high)))
    names = [each.label for each in methods]
    if len(methods) > ON_ONE_LINE:
        names = [each.replace("GEM-", "GEM-\n") for each in names]
    axes.set_xticks(range(len(methods)), names, fontsize=SMALL)
    for tick, method in zip(axes.get_xticklabels(), methods, strict=True):
        tick.set_color(method.color)
        tick.set_fontweight("bold")
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.5, len(methods) - 0.5)


def finite_range(name: str, methods: Sequence[Boxes]) -> tuple[float, float]:
    """The least and the greatest number in a panel: infinite ones are drawn there.

    Args:
        name: of the score; the least is above 0 for one with a logarithmic axis.
        methods: of the panel.
    """
    values = np.concatenate([part for each in methods for part in each.values.values()])
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    return (max(low, LEAST), max(high, LEAST)) if name in POSITIVE else (low, high)


def _extent(methods: Sequence[Boxes], limits: tuple[float, float]) -> tuple[float, float]:
    """From the lowest whisker to the highest."""
    ends = [
        np.quantile(np.clip(values, *limits), [0.05, 0.95])
        for each in methods
        for values in each.values.values()
    ]
    return float(min(each[0] for each in ends)), float(max(each[1] for each in ends))


# -- from results ---------------------------------------------------------------------------------


def histograms(results: Results) -> Figure:
    """Three scores of GEM-FI against each OOD set, by the first seed."""
    run = shown_row(results).first
    panels = {
        score: {
            results.title(name): Pair(
                group,
                needed(results, run, ["test"], f"score/{score}"),
                needed(results, run, [name], f"score/{score}"),
            )
            for name, group in group_of(results).items()
        }
        for score in HISTOGRAMS
    }
    return draw_histograms(panels)


def boxes(results: Results) -> Figure:
    """Four scores of evidential methods on ID, near-OOD and far-OOD data, by the first seed."""
    rows = shown_rows(results, BOX_METHODS)
    groups = set_groups(results)
    panels: dict[str, list[Boxes]] = {}
    for score in BOXES:
        found = [each for row in rows if (each := _score_boxes(results, row, score, groups))]
        if found:
            panels[score] = found
    if not panels:
        raise Unavailable(f"no run has one of the scores {', '.join(BOXES)}")
    return draw_boxes(panels)


def _score_boxes(
    results: Results, row: Shown, score: str, groups: Mapping[str, Sequence[str]]
) -> Boxes | None:
    """The boxes of a method; None if it has no such score, or one number throughout."""
    found: dict[str, Floats] = {}
    for group, names in groups.items():
        values = pooled(results, row.first, names, f"score/{score}")
        if values is None:
            return None
        found[group] = values
    return None if constant(found.values()) else Boxes(row.label, row.color, found)


ENTRIES: Final[Mapping[str, FigureEntry]] = {
    "hist-ood": FigureEntry(
        "Scores on ID and OOD data",
        "Three scores of GEM-FI (first seed), higher is more uncertain: rows are scores, columns "
        "OOD sets. ID test data above the line, the OOD set below it, each half on its own "
        "scale. The axes are logarithmic and reach from the 0.5 % to the 99.5 % quantile of "
        "each set; what lies beyond is counted in the last bin.",
        histograms,
    ),
    "boxplots": FigureEntry(
        "Scores by group of sets",
        "Four scores of the evidential methods (first seed of each) on ID test data, near-OOD and "
        "far-OOD sets, the sets of a group together. Boxes hold the middle half, lines in them "
        "are medians, whiskers reach from the 5 % to the 95 % quantile; what lies beyond is not "
        "shown. Higher is more uncertain everywhere: the evidence score is minus the logarithm "
        "of the total evidence. Axes are logarithmic for the other three.",
        boxes,
    ),
}
