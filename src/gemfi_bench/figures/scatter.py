"""Entropy against mutual information, for each shift and for right and wrong predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemfi import metrics
from gemfi.metrics import Floats
from gemfi_bench.figures import common
from gemfi_bench.figures.common import GROUP_COLORS, ID, SMALL, TEXT
from gemfi_bench.results import Results

MOST: Final = 400
"""Points of a set that are drawn."""

CORRUPTED: Final = "corrupted"
WRONG: Final = "wrong"
_COLORS: Final[Mapping[str, str]] = GROUP_COLORS | {CORRUPTED: "#b8860b", WRONG: "#c0392b"}


@dataclass(frozen=True, eq=False)
class Cloud:
    """The points of a set: entropy and mutual information, (n,) each; the kind gives the colour."""

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
    grid = figure.subplots(rows, across, squeeze=False, sharex=True, sharey=True).ravel()
    clouds = [cloud for pair in panels.values() for cloud in pair if len(cloud.entropy)]
    x_limits = common.quantile_limits([cloud.entropy for cloud in clouds], 0.01, log=True)
    y_limits = common.quantile_limits([cloud.information for cloud in clouds], 0.01, log=True)
    for index, (axes, (title, pair)) in enumerate(zip(grid, panels.items(), strict=False)):
        common.log_axis(axes, "x", x_limits)
        common.log_axis(axes, "y", y_limits)
        axes.set(xlim=x_limits, ylim=y_limits)
        axes.tick_params(labelsize=SMALL)
        for cloud in pair:
            _draw_points(axes, cloud)
        _tell_areas(axes, *pair)
        common.panel_title(axes, index, title, pad=13)
    for empty in grid[len(panels) :]:
        empty.set_axis_off()
    figure.supxlabel("entropy, nats", fontsize=8.5)
    figure.supylabel("mutual information, nats", fontsize=8.5)
    kinds = dict.fromkeys(cloud.kind for pair in panels.values() for cloud in pair)
    handles = [
        common.point_handle(kind, _COLORS[kind], "x" if kind == WRONG else "o") for kind in kinds
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), handletextpad=0.1,
        columnspacing=1.2,
    )  # fmt: skip
    return figure


def _draw_points(axes: Axes, cloud: Cloud) -> None:
    """An even choice of the points; those beyond the axes are drawn on their edge."""
    rows = common.even_choice(len(cloud.entropy), MOST)
    x = np.clip(cloud.entropy[rows], *axes.get_xlim())
    y = np.clip(cloud.information[rows], *axes.get_ylim())
    few = len(rows) < 40
    cross = {"marker": "x", "linewidths": 1.0} if cloud.kind == WRONG else {"linewidths": 0.0}
    axes.scatter(
        x, y, s=16 if few else 7, color=_COLORS[cloud.kind], alpha=0.9 if few else 0.5,
        clip_on=False, **cross,
    )  # fmt: skip


def _tell_areas(axes: Axes, inside: Cloud, outside: Cloud) -> None:
    if len(inside.entropy) and len(outside.entropy):
        entropy = metrics.auroc(inside.entropy, outside.entropy)
        information = metrics.auroc(inside.information, outside.information)
        text = f"AUROC: entropy {entropy:.1f}, MI {information:.1f}"
        axes.text(0.0, 1.03, text, va="bottom", transform=axes.transAxes, fontsize=6.5)


def scatter(results: Results) -> Figure:
    """GEM-FI by its first seed: each OOD set, all corruptions together, right and wrong."""
    run = common.shown_row(results).first
    sets = results.arrays(run)

    def cloud(kind: str, names: Sequence[str]) -> Cloud:
        keys = ("score/entropy", "score/mutual_information")
        return Cloud(kind, *(common.needed(results, run, names, key) for key in keys))

    inside = cloud(ID, ["test"])
    panels = {
        f"ID and {results.title(name)}": (inside, cloud(group, [name]))
        for name, group in common.group_of(results).items()
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


FIGURES: Final = {"entropy-mi-scatter": scatter}
