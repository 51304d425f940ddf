"""The conflict score over its mixing coefficient λ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gemfi import metrics
from gemfi.metrics import Floats
from gemfi_bench.figures import common
from gemfi_bench.figures.common import GROUP_COLORS, ID, LEAST, SMALL, TEXT
from gemfi_bench.observation import constant
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

SHOWN_MIXES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Those of the paper's panels."""

MIXES: Final = tuple(np.linspace(0.0, 1.0, 41).tolist())
MOST: Final = 150
"""Points of a group in each panel."""

_CMAP: Final = ListedColormap(colormaps["Greens"](np.linspace(0.0, 0.55, 64)))
"""Pale, so that the points stand out."""


@dataclass(frozen=True, eq=False)
class Parts:
    """On a group of sets: Σ_c variance between the heads, Σ_c mean variance within them, (n,)."""

    between: Floats
    within: Floats

    def mixed(self, mix: float) -> Floats:
        """(1 − λ)·between + λ·within, as `scores.conflict`."""
        return np.asarray((1 - mix) * self.between + mix * self.within)


Run = Mapping[str, Parts]
"""Group of sets -> its parts, the ID data first."""

Limits = tuple[float, float]


def areas(runs: Sequence[Run], group: str) -> Floats:
    """AUROC of the conflict score against a group of OOD sets, (runs, mixes)."""
    rows = [
        [metrics.auroc(run[ID].mixed(mix), run[group].mixed(mix)) for mix in MIXES] for run in runs
    ]
    return np.array(rows)


# -- drawing --------------------------------------------------------------------------------------


def draw_conflict(runs: Sequence[Run]) -> Figure:
    """The score over the plane of its parts with the inputs in it, and what λ changes.

    The first of the runs gives the points and the medians.
    """
    figure = Figure(figsize=(TEXT, 4.3), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.0, 1.15])[:, 0]
    planes = upper.subplots(1, len(SHOWN_MIXES), sharex=True, sharey=True)
    first = runs[0]
    x_limits = common.quantile_limits([parts.between for parts in first.values()], 0.01, log=True)
    y_limits = common.quantile_limits([parts.within for parts in first.values()], 0.01, log=True)
    for index, (axes, mix) in enumerate(zip(planes, SHOWN_MIXES, strict=True)):
        contours = _draw_plane(axes, mix, x_limits, y_limits)
        for group, parts in first.items():
            rows = common.even_choice(len(parts.between), MOST)
            x, y = np.clip(parts.between[rows], *x_limits), np.clip(parts.within[rows], *y_limits)
            axes.scatter(x, y, s=6, color=GROUP_COLORS[group], alpha=0.75, linewidths=0)
        common.panel_title(axes, index, f"λ = {mix:g}")
    planes[0].set_ylabel("variance within heads", fontsize=8)
    upper.supxlabel("variance between heads", fontsize=8)
    bar = upper.colorbar(contours, ax=list(planes), aspect=14, pad=0.01)
    bar.set_label("conflict score")
    bar.locator = MaxNLocator(6, integer=True)
    bar.formatter = FuncFormatter(lambda value, _: common.power_text(10**value))
    bar.update_ticks()
    bar.ax.tick_params(labelsize=SMALL)
    medians, areas_by_mix = lower.subplots(1, 2)
    for group, parts in first.items():
        mixed = [np.maximum(parts.mixed(mix), LEAST) for mix in MIXES]
        _draw_band(medians, group, *np.quantile(mixed, [0.25, 0.5, 0.75], axis=1))
        if group != ID:
            found = areas(runs, group)
            low, middle, high = found.min(axis=0), found.mean(axis=0), found.max(axis=0)
            _draw_band(areas_by_mix, group, low, middle, high)
    medians.set(xlabel="λ", ylabel="conflict score", xlim=(0, 1), yscale="log")
    common.panel_title(medians, len(SHOWN_MIXES), "median and middle half", 40)
    areas_by_mix.set(xlabel="λ", ylabel="AUROC, %", xlim=(0, 1))
    common.panel_title(
        areas_by_mix, len(SHOWN_MIXES) + 1, "OOD detection by the conflict score", 40
    )
    handles = [
        common.point_handle(group, GROUP_COLORS[group], linestyle="-", linewidth=1.6)
        for group in first
    ]
    lower.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _draw_plane(axes: Axes, mix: float, x_limits: Limits, y_limits: Limits) -> QuadContourSet:
    """log10 of the score as colour, over both parts."""
    x, y = np.geomspace(*x_limits, 61), np.geomspace(*y_limits, 61)
    low, high = np.log10([min(x[0], y[0]), max(x[-1], y[-1])])
    score = np.log10(Parts(*np.meshgrid(x, y)).mixed(mix))
    contours = axes.contourf(x, y, score, levels=np.linspace(low, high, 15), cmap=_CMAP)
    common.log_axis(axes, "x", x_limits, 3)
    common.log_axis(axes, "y", y_limits, 4)
    axes.set(xlim=x_limits, ylim=y_limits)
    axes.tick_params(labelsize=SMALL)
    return contours


def _draw_band(axes: Axes, group: str, low: Floats, middle: Floats, high: Floats) -> None:
    color = GROUP_COLORS[group]
    axes.fill_between(MIXES, low, high, color=color, alpha=0.18, linewidth=0)
    axes.plot(MIXES, middle, color=color, linewidth=1.6)


# -- from results ---------------------------------------------------------------------------------


def conflict(results: Results) -> Figure:
    """GEM-FI: points and medians by the first seed, AUROC over all seeds."""
    row = common.shown_row(results)
    runs = [
        {
            group: Parts(
                *(
                    common.needed(results, run, names, f"part/{part}")
                    for part in ("between", "within")
                )
            )
            for group, names in common.set_groups(results).items()
        }
        for run in row.runs
    ]
    if constant(parts.between for parts in runs[0].values()):
        raise Unavailable(f"{row.label} has one head here, so that nothing varies between heads")
    return draw_conflict(runs)


FIGURES: Final = {"app:lambda": conflict}
