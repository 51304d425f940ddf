"""Entropy against mutual information, for each shift and for right and wrong predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gemfi import metrics
from gemfi.metrics import Floats
from gemfi_bench.figures.common import (
    GROUP_COLORS,
    ID,
    SMALL,
    TEXT,
    FigureEntry,
    even_choice,
    group_of,
    log_axis,
    needed,
    panel_title,
    quantile_limits,
    shown_row,
)
from gemfi_bench.results import Results

MOST: Final = 400
"""Points of a set that are drawn."""

CORRUPTED: Final = "corrupted"
WRONG: Final = "wrong"
_COLORS: Final[Mapping[str, str]] = GROUP_COLORS | {CORRUPTED: "#b8860b", WRONG: "#c0392b"}


@dataclass(frozen=True, eq=False)
class Cloud:
    """The points of a set.

    Attributes:
        kind: which decides the colour.
        entropy: (n,).
        information: mutual information, (n,).
    """

    kind: str
    entropy: Floats
    information: Floats


def draw_scatter(panels: Mapping[str, tuple[Cloud, Cloud]]) -> Figure:
    """A panel a comparison, on common logarithmic axes.

    Args:
        panels: title -> the familiar inputs and the others.
    """
    across = 4 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // across)
    height = 2.0 if across < 4 else 1.75
    figure = Figure(figsize=(TEXT, 0.65 + height * rows), layout="constrained")
    axes = figure.subplots(rows, across, squeeze=False, sharex=True, sharey=True).ravel()
    clouds = [cloud for pair in panels.values() for cloud in pair]
    limits = [
        quantile_limits([values for values in axis if len(values)], 0.01, log=True)
        for axis in ([c.entropy for c in clouds], [c.information for c in clouds])
    ]
    for index, (title, pair) in enumerate(panels.items()):
        for cloud in pair:
            _draw_points(axes[index], cloud, limits)
        _finish(axes[index], pair, limits)
        panel_title(axes[index], index, title, pad=13)
    for empty in axes[len(panels) :]:
        empty.set_axis_off()
    figure.supxlabel("entropy, nats", fontsize=8.5)
    figure.supylabel("mutual information, nats", fontsize=8.5)
    handles = [
        Line2D(
            [], [], linestyle="", marker="x" if kind == WRONG else "o", markersize=4,
            color=_COLORS[kind], label=kind,
        )
        for kind in dict.fromkeys(cloud.kind for cloud in clouds)
    ]  # fmt: skip
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), handletextpad=0.1,
        columnspacing=1.2,
    )  # fmt: skip
    return figure


def _draw_points(axes: Axes, cloud: Cloud, limits: Sequence[tuple[float, float]]) -> None:
    """An even choice of the points; those beyond the axes are drawn on their edge."""
    rows = even_choice(len(cloud.entropy), MOST)
    x = np.clip(cloud.entropy[rows], *limits[0])
    y = np.clip(cloud.information[rows], *limits[1])
    few = len(rows) < 40
    cross = {"marker": "x", "linewidths": 1.0} if cloud.kind == WRONG else {"linewidths": 0.0}
    axes.scatter(
        x, y, s=16 if few else 7, color=_COLORS[cloud.kind], alpha=0.9 if few else 0.5,
        clip_on=False, **cross,
    )  # fmt: skip


def _finish(axes: Axes, pair: tuple[Cloud, Cloud], limits: Sequence[tuple[float, float]]) -> None:
    log_axis(axes, "x", limits[0])
    log_axis(axes, "y", limits[1])
    axes.set(xlim=limits[0], ylim=limits[1])
    axes.tick_params(labelsize=SMALL)
    inside, outside = pair
    if len(inside.entropy) and len(outside.entropy):
        entropy = metrics.auroc(inside.entropy, outside.entropy)
        information = metrics.auroc(inside.information, outside.information)
        text = f"AUROC: entropy {entropy:.1f}, MI {information:.1f}"
        axes.text(0.0, 1.03, text, va="bottom", transform=axes.transAxes, fontsize=6.5)


def scatter(results: Results) -> Figure:
    """GEM-FI by its first seed: each OOD set, all corruptions together, right and wrong."""
    run = shown_row(results).first
    sets = results.arrays(run)

    def cloud(kind: str, names: Sequence[str]) -> Cloud:
        keys = ("score/entropy", "score/mutual_information")
        return Cloud(kind, *(needed(results, run, names, key) for key in keys))

    inside = cloud(ID, ["test"])
    panels = {
        f"ID and {results.title(name)}": (inside, cloud(group, [name]))
        for name, group in group_of(results).items()
    }
    shifted = [name for name in sets if name.startswith("shift/")]
    if shifted:
        panels["ID and corrupted"] = inside, cloud(CORRUPTED, shifted)
    right = sets["test"]["prediction"] == sets["test"]["label"]
    panels["ID: right and wrong"] = (
        Cloud(ID, inside.entropy[right], inside.information[right]),
        Cloud(WRONG, inside.entropy[~right], inside.information[~right]),
    )
    return draw_scatter(panels)


FIGURES: Final[Mapping[str, FigureEntry]] = {
    "entropy-mi-scatter": FigureEntry(
        "Entropy and mutual information",
        "Entropy of the predictive distribution against the total mutual information (between "
        "the heads and within them, without the gate) of GEM-FI, first seed: ID test data against "
        "each OOD set and against all corrupted copies together, and right against wrong "
        f"predictions on test data. At most {MOST} evenly chosen points of a set are drawn, the "
        "AUROC is that of all. Axes are logarithmic, from the 1 % to the 99 % quantile of each "
        "set; points beyond lie on the edge.",
        scatter,
    ),
}
