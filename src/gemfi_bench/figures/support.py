"""What models do as the support of the training data thins out: numbers against distance.

Support is the distance to the tenth nearest training feature, on unit-norm features: the array
`part/distance`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from gemfi.metrics import Floats
from gemfi_bench.figures import common
from gemfi_bench.figures.common import ID, SMALL, TEXT, MethodRuns, Shown
from gemfi_bench.observation import NEIGHBOUR
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

SHOWN_METHODS: Final = ("edl", "daedl", "gem-core", "gem-mix", "gem-fi")
BINS: Final = 10
LINEAR: Final = 2.0
"""Standard deviations up to which the axis of energies is linear."""

_DISTANCE: Final = f"distance to neighbour {NEIGHBOUR} among the training features (unit norm)"

Measure = Callable[[Results, RunRecord, Sequence[str]], "Floats | None"]
"""A number of each input of some sets of a run; None where the run lacks it."""


@dataclass(frozen=True, eq=False)
class Trend(Shown):
    """A number of a method against distance, both (bins,): means over the runs, and their range."""

    distance: Floats
    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class Panel:
    """The trends of a number on some sets; an empty title for none."""

    number: str
    title: str
    trends: Sequence[Trend]


def binned(distance: Floats, values: Floats, bins: int = BINS) -> tuple[Floats, Floats]:
    """Mean distance and mean value in bins of as many inputs each, from the nearest ones on."""
    order = np.argsort(distance, kind="stable")
    groups = np.array_split(order, min(bins, len(order)))
    return (
        np.array([distance[group].mean() for group in groups]),
        np.array([values[group].mean() for group in groups]),
    )


# -- drawing --------------------------------------------------------------------------------------


def draw_trends(rows: Sequence[Sequence[Panel]], *, linear: float | None = None) -> Figure:
    """Panels in rows. Those of several rows, or of one number, share their axes.

    Args:
        rows: all of the same length.
        linear: up to here the vertical axes are linear, and logarithmic beyond; None for all.
    """
    same, columns = len({panel.number for panel in rows[0]}) == 1, len(rows[0])
    height = 0.8 + 1.75 * len(rows) if same else 2.6
    figure = Figure(figsize=(TEXT, height), layout="constrained")
    grid = figure.subplots(
        len(rows), columns, squeeze=False, sharex="col", sharey="row" if same else "none"
    )
    panels = [panel for row in rows for panel in row]
    for index, (panel, axes) in enumerate(zip(panels, grid.ravel(), strict=True)):
        for trend in sorted(panel.trends, key=lambda trend: trend.on_top):
            x = trend.distance
            axes.plot(x, trend.mean, marker="o", markersize=2.4, **trend.style(1.1))
            axes.fill_between(x, trend.low, trend.high, color=trend.color, alpha=0.15, linewidth=0)
        axes.locator_params(axis="x", nbins=5, min_n_ticks=3)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.tick_params(labelsize=SMALL)
        common.panel_title(axes, index, panel.title if index < columns else "")
        if not same or index % columns == 0:
            axes.set_ylabel(panel.number)
    if linear is not None:
        for axes in grid.ravel():
            _make_symlog(axes, linear)
    figure.supxlabel(_DISTANCE, fontsize=8.5)
    trends = [trend for panel in panels for trend in panel.trends]
    handles = common.line_handles(trends, marker="o", markersize=2.4)
    figure.legend(handles=handles, loc="outside upper center", ncols=5, handlelength=2.2)
    return figure


def _make_symlog(axes: Axes, linear: float) -> None:
    low, high = axes.get_ylim()
    axes.set_yscale("symlog", linthresh=linear, linscale=1.0)
    beyond = [sign * factor * linear for factor in (5, 50, 500) for sign in (-1, 1)]
    ticks = [-linear, -linear / 2, 0.0, linear / 2, linear, *beyond]
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(low, high)


# -- measures -------------------------------------------------------------------------------------


def _of_arrays(keys: Sequence[str], number: Callable[..., Floats]) -> Measure:
    """A number of these arrays, where all are kept."""

    def measure(results: Results, run: RunRecord, names: Sequence[str]) -> Floats | None:
        arrays = [common.pooled(results, run, names, key) for key in keys]
        return None if any(array is None for array in arrays) else number(*arrays)

    return measure


def score(name: str) -> Measure:
    """A score as it is kept."""
    return _of_arrays([f"score/{name}"], np.asarray)


confidence = _of_arrays(["score/max_prob"], lambda doubt: 1.0 - doubt)
"""The maximum probability of each input."""

accuracy = _of_arrays(
    ["prediction", "label"], lambda prediction, label: 100.0 * (prediction == label)
)
"""100 where the prediction is right, else 0."""


@partial(_of_arrays, ["log_probs", "label"])
def log_loss(log_probs: Floats, label: Floats) -> Floats:
    """−log p(y) of each input."""
    return np.asarray(-log_probs[np.arange(len(label)), label.astype(int)])


@partial(_of_arrays, ["log_probs", "label"])
def brier(log_probs: Floats, label: Floats) -> Floats:
    """Σ_c (p_c − [c = y])² of each input, ×100."""
    truth = np.eye(log_probs.shape[1])[label.astype(int)]
    return np.asarray(100.0 * ((np.exp(log_probs) - truth) ** 2).sum(axis=1))


def standardised(name: str) -> Measure:
    """A score less its mean on test data, over its standard deviation there."""

    def measure(results: Results, run: RunRecord, names: Sequence[str]) -> Floats | None:
        inside, values = (score(name)(results, run, part) for part in (["test"], names))
        if inside is None or values is None or inside.std() == 0:
            return None
        return np.asarray((values - inside.mean()) / inside.std())

    return measure


# -- from results ---------------------------------------------------------------------------------


def trend(
    results: Results,
    row: MethodRuns,
    names: Sequence[str],
    measure: Measure,
    *,
    dashed: bool = False,
) -> Trend | None:
    """A number of a method against distance, over its runs; None where it has no such number."""
    by_run = []
    for run in row.runs:
        distance = common.pooled(results, run, names, "part/distance")
        values = measure(results, run, names)
        if distance is not None and values is not None:
            by_run.append(binned(distance, values))
    if not by_run:
        return None
    x, y = np.stack(by_run, axis=1)  # (runs, bins) both
    return Trend(
        row.label, row.color, x.mean(axis=0), y.mean(axis=0), y.min(axis=0), y.max(axis=0),
        dashed=dashed, on_top=row.is_ours,
    )  # fmt: skip


Cell = tuple[str, str, Sequence[str], Measure]
"""Of a panel: the number in words, its title, the sets, the measure."""


def _panels(results: Results, cells: Sequence[Cell]) -> list[Panel]:
    """A panel for each cell, with every method that has the number."""
    trends: list[list[Trend]] = [[] for _ in cells]
    for row in common.shown_rows(results, SHOWN_METHODS):  # outermost: arrays are read once
        for column, (_, _, names, measure) in zip(trends, cells, strict=True):
            if line := trend(results, row, names, measure):
                column.append(line)
    return [Panel(*cell[:2], column) for cell, column in zip(cells, trends, strict=True)]


def uncertainty(results: Results) -> Figure:
    """Entropy and 1 − max p on ID, near-OOD and far-OOD data."""
    groups = common.set_groups(results)
    cells = [
        (number, common.group_title(results, group, names), names, score(name))
        for number, name in (("entropy, nats", "entropy"), ("1 − max p", "max_prob"))
        for group, names in groups.items()
    ]
    panels = _panels(results, cells)
    return draw_trends([panels[: len(groups)], panels[len(groups) :]])


def calibration(results: Results) -> Figure:
    """NLL and Brier score on ID data, the only data with labels."""
    cells: list[Cell] = [
        ("NLL, nats", ID, ["test"], log_loss),
        ("Brier score ×100", ID, ["test"], brier),
    ]
    return draw_trends([_panels(results, cells)])


def accuracy_confidence(results: Results) -> Figure:
    """Accuracy on ID data, confidence on OOD data."""
    cells: list[Cell] = [("accuracy, %", ID, ["test"], accuracy)]
    for group, names in common.ood_groups(results).items():
        title = common.group_title(results, group, names)
        cells.append(("confidence (max p)", title, names, confidence))
    return draw_trends([_panels(results, cells)])


def energy(results: Results) -> Figure:
    """The learned energy, and that of the logits where none is learned, in units of ID data."""
    groups = common.set_groups(results)
    columns: dict[str, list[Trend]] = {group: [] for group in groups}
    for row in common.shown_rows(results, SHOWN_METHODS):
        learned = "score/energy" in results.arrays(row.first)["test"]
        measure = standardised("energy" if learned else "logit_energy")
        for group, names in groups.items():
            if line := trend(results, row, names, measure, dashed=not learned):
                columns[group].append(line)
    if not any(columns.values()):
        raise Unavailable("no run of these methods has an energy, learned or of its logits")
    panels = [
        Panel("energy, z-scored", common.group_title(results, group, groups[group]), trends)
        for group, trends in columns.items()
    ]
    return draw_trends([panels], linear=LINEAR)


FIGURES: Final = {
    "supp-uncert": uncertainty,
    "supp-calib": calibration,
    "supp-accconf": accuracy_confidence,
    "supp-energy": energy,
}
