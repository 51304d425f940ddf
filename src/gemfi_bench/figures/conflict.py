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
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gemfi import metrics
from gemfi._drawing import styled
from gemfi.metrics import Floats
from gemfi_bench.figures.common import (
    GROUP_COLORS,
    ID,
    SMALL,
    TEXT,
    FigureEntry,
    even_choice,
    needed,
    panel_title,
    quantile_limits,
    set_groups,
    shown_row,
)
from gemfi_bench.figures.distributions import LEAST, log_axis, power_text
from gemfi_bench.observation import constant
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

SHOWN_MIXES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Those of the paper's panels."""

MIXES: Final = tuple(np.linspace(0.0, 1.0, 41).tolist())
MOST: Final = 150
"""Points of a group in each panel."""


@dataclass(frozen=True, eq=False)
class Parts:
    """The two parts of the conflict score on a group of sets.

    Attributes:
        between: Σ_c variance between the heads, (n,).
        within: Σ_c mean variance within the heads, (n,).
    """

    between: Floats
    within: Floats

    def mixed(self, mix: float) -> Floats:
        """(1 − λ)·between + λ·within, as `scores.conflict`."""
        return np.asarray((1 - mix) * self.between + mix * self.within)


Run = Mapping[str, Parts]
"""Group of sets -> its parts, the ID data first."""


def areas(runs: Sequence[Run], group: str) -> Floats:
    """AUROC of the conflict score against a group of OOD sets, (runs, mixes).

    Args:
        runs: of one method.
        group: of OOD sets.
    """
    return np.array(
        [
            [metrics.auroc(run[ID].mixed(mix), run[group].mixed(mix)) for mix in MIXES]
            for run in runs
        ]
    )


# -- drawing --------------------------------------------------------------------------------------


@styled()
def draw_conflict(runs: Sequence[Run]) -> Figure:
    """The score over the plane of its parts with the inputs in it, and what λ changes.

    Args:
        runs: of one method; the first gives the points and the medians.
    """
    figure = Figure(figsize=(TEXT, 4.3), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.0, 1.15])[:, 0]
    planes = upper.subplots(1, len(SHOWN_MIXES), sharex=True, sharey=True)
    limits = tuple(_limits([getattr(each, name) for each in runs[0].values()]) for name in _AXES)
    for index, (axes, mix) in enumerate(zip(planes, SHOWN_MIXES, strict=True)):
        drawn = _plane(axes, mix, limits)
        _points(axes, runs[0], limits)
        panel_title(axes, index, f"λ = {mix:g}")
    planes[0].set_ylabel("variance within heads", fontsize=8)
    upper.supxlabel("variance between heads", fontsize=8)
    bar = upper.colorbar(drawn, ax=list(planes), aspect=14, pad=0.01)
    bar.set_label("conflict score")
    bar.locator = MaxNLocator(6, integer=True)
    bar.formatter = FuncFormatter(lambda value, _: power_text(10**value))
    bar.update_ticks()
    bar.ax.tick_params(labelsize=SMALL)
    left, right = lower.subplots(1, 2)
    _medians(left, runs[0])
    _aurocs(right, runs)
    lower.legend(handles=_handles(runs[0]), loc="outside lower center", ncols=4)
    return figure


_AXES: Final = ("between", "within")
_CMAP: Final = ListedColormap(colormaps["Greens"](np.linspace(0.0, 0.55, 64)))
"""Pale, so that the points stand out."""


def _limits(values: Sequence[Floats]) -> tuple[float, float]:
    """Of a logarithmic axis, from the 1 % to the 99 % quantile of each group."""
    low, high = quantile_limits([np.log10(np.maximum(each, LEAST)) for each in values], 0.01)
    return 10**low, 10**high


def _plane(axes: Axes, mix: float, limits: Sequence[tuple[float, float]]) -> QuadContourSet:
    """log10 of the score as colour, over both parts."""
    x, y = (np.geomspace(*each, 61) for each in limits)
    score = Parts(*np.meshgrid(x, y)).mixed(mix)
    low = np.log10(min(limits[0][0], limits[1][0]))
    high = np.log10(max(limits[0][1], limits[1][1]))
    drawn = axes.contourf(x, y, np.log10(score), levels=np.linspace(low, high, 15), cmap=_CMAP)
    log_axis(axes, "x", limits[0], 3)
    log_axis(axes, "y", limits[1], 4)
    axes.set(xlim=limits[0], ylim=limits[1])
    axes.tick_params(labelsize=SMALL)
    return drawn


def _points(axes: Axes, run: Run, limits: Sequence[tuple[float, float]]) -> None:
    for group, parts in run.items():
        rows = even_choice(len(parts.between), MOST)
        x, y = np.clip(parts.between[rows], *limits[0]), np.clip(parts.within[rows], *limits[1])
        axes.scatter(x, y, s=6, color=_color(group), alpha=0.75, linewidths=0)


def _medians(axes: Axes, run: Run) -> None:
    for group, parts in run.items():
        low, middle, high = np.quantile(
            [np.maximum(parts.mixed(mix), LEAST) for mix in MIXES], [0.25, 0.5, 0.75], axis=1
        )
        axes.fill_between(MIXES, low, high, color=_color(group), alpha=0.18, linewidth=0)
        axes.plot(MIXES, middle, color=_color(group), linewidth=1.6)
    axes.set_yscale("log")
    axes.set(xlabel="λ", ylabel="conflict score", xlim=(0, 1))
    panel_title(axes, len(SHOWN_MIXES), "median and middle half", 40)


def _aurocs(axes: Axes, runs: Sequence[Run]) -> None:
    for group in runs[0]:
        if group == ID:
            continue
        values = areas(runs, group)
        low, high = values.min(axis=0), values.max(axis=0)
        axes.fill_between(MIXES, low, high, color=_color(group), alpha=0.18, linewidth=0)
        axes.plot(MIXES, values.mean(axis=0), color=_color(group), linewidth=1.6)
    axes.set(xlabel="λ", ylabel="AUROC, %", xlim=(0, 1))
    panel_title(axes, len(SHOWN_MIXES) + 1, "OOD detection by the conflict score", 40)


def _color(group: str) -> str:
    return GROUP_COLORS[group]


def _handles(run: Run) -> list[Line2D]:
    return [
        Line2D([], [], color=_color(group), marker="o", markersize=4, linewidth=1.6, label=group)
        for group in run
    ]


# -- from results ---------------------------------------------------------------------------------


def conflict(results: Results) -> Figure:
    """GEM-FI: points and medians by the first seed, AUROC over all seeds."""
    row = shown_row(results)
    runs = [_parts(results, run) for run in row.runs]
    if constant(parts.between for parts in runs[0].values()):
        raise Unavailable(f"{row.label} has one head here, so that nothing varies between heads")
    return draw_conflict(runs)


def _parts(results: Results, run: RunRecord) -> dict[str, Parts]:
    return {
        group: Parts(*(needed(results, run, names, f"part/{part}") for part in _AXES))
        for group, names in set_groups(results).items()
    }


ENTRIES: Final[Mapping[str, FigureEntry]] = {
    "app:lambda": FigureEntry(
        "Conflict score over λ",
        "The conflict score (1 − λ)·B + λ·W of GEM-FI, where B is the variance of the class "
        "probabilities between the heads and W the mean variance within them, both summed over "
        "the classes. Top: the score (darker is higher) over the plane of both, which have "
        "logarithmic axes from the 1 % to the 99 % quantile of each group, and at most "
        f"{MOST} inputs of each group of sets, first seed. Bottom left: medians and middle halves "
        "of the score, first seed. Bottom right: AUROC against the near-OOD and the far-OOD sets, "
        "mean over all seeds, and from the least seed to the greatest.",
        conflict,
    ),
}
