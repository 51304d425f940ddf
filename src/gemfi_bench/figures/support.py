"""What models do as the support of the training data thins out: numbers against distance.

Support is the distance to the tenth nearest training feature, on unit-norm features: the array
`part/distance`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from gemfi._drawing import styled
from gemfi.metrics import Floats
from gemfi_bench.figures.common import (
    ID,
    SMALL,
    TEXT,
    FigureEntry,
    Shown,
    group_title,
    ood_groups,
    panel_title,
    pooled,
    set_groups,
    shown_rows,
)
from gemfi_bench.observation import NEIGHBOUR
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.unavailable import Unavailable

SHOWN_METHODS: Final = ("edl", "daedl", "gem-core", "gem-mix", "gem-fi")
BINS: Final = 10
LINEAR: Final = 2.0
"""Standard deviations up to which the axis of energies is linear."""

Measure = Callable[[Results, RunRecord, Sequence[str]], "Floats | None"]
"""A number of each input of some sets of a run; None where the run lacks it."""

Cell = tuple[Sequence[str], Measure]
"""Sets, and the number to show of them."""


@dataclass(frozen=True, eq=False)
class Trend:
    """A number of a method against distance.

    Attributes:
        label: of the method.
        color: of its line.
        distance: mean of each bin, (bins,), over the runs.
        mean: of the number in each bin, (bins,), over the runs.
        low: the least of any run, (bins,).
        high: the greatest of any run, (bins,).
        dashed: not of the same kind as the others.
        on_top: draw it thicker and last.
    """

    label: str
    color: str
    distance: Floats
    mean: Floats
    low: Floats
    high: Floats
    dashed: bool = False
    on_top: bool = False


Panels = Mapping[str, Mapping[str, Sequence[Trend]]]
"""Vertical axis -> title of a column -> trends."""


def binned(distance: Floats, values: Floats, bins: int = BINS) -> tuple[Floats, Floats]:
    """Mean distance and mean value in bins of as many inputs each, from the nearest ones on.

    Args:
        distance: (n,).
        values: (n,).
        bins: how many; fewer where there are fewer inputs.
    """
    order = np.argsort(distance, kind="stable")
    groups = np.array_split(order, min(bins, len(order)))
    means = [[float(each[group].mean()) for group in groups] for each in (distance, values)]
    return np.array(means[0]), np.array(means[1])


# -- drawing --------------------------------------------------------------------------------------


@styled()
def draw_trends(panels: Panels, *, linear: float | None = None) -> Figure:
    """A row for each number, a column for each group of sets.

    Args:
        panels: every row has the same columns.
        linear: up to here the vertical axes are linear, and logarithmic beyond; None for all.
    """
    columns = len(next(iter(panels.values())))
    figure = Figure(figsize=(TEXT, 0.8 + 1.75 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), columns, squeeze=False, sharex="col", sharey="row")
    _filled(axes, panels)
    if linear is not None:
        for each in axes.ravel():
            _symlog(each, linear)
    figure.supxlabel(_DISTANCE, fontsize=8.5)
    figure.legend(handles=_handles(panels), loc="outside upper center", ncols=5, handlelength=2.2)
    return figure


@styled()
def draw_beside(panels: Sequence[tuple[str, str, Sequence[Trend]]]) -> Figure:
    """Panels of different numbers beside each other, each with its own vertical axis.

    Args:
        panels: vertical axis, title and trends of each.
    """
    figure = Figure(figsize=(TEXT, 2.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for index, (name, title, trends) in enumerate(panels):
        _lines(axes[index], trends)
        axes[index].set_ylabel(name)
        panel_title(axes[index], index, title)
    figure.supxlabel(_DISTANCE, fontsize=8.5)
    rows = {name: {title: trends} for name, title, trends in panels}
    figure.legend(handles=_handles(rows), loc="outside upper center", ncols=5, handlelength=2.2)
    return figure


_DISTANCE: Final = f"distance to neighbour {NEIGHBOUR} among the training features (unit norm)"


def _filled(axes: npt.NDArray[Any], panels: Panels) -> None:
    for row, (name, by_title) in enumerate(panels.items()):
        for column, (title, trends) in enumerate(by_title.items()):
            _lines(axes[row, column], trends)
            panel_title(axes[row, column], row * len(by_title) + column, title if row == 0 else "")
        axes[row, 0].set_ylabel(name)


def _lines(axes: Axes, trends: Sequence[Trend]) -> None:
    for each in sorted(trends, key=lambda each: each.on_top):
        axes.plot(
            each.distance, each.mean, color=each.color, marker="o", markersize=2.4,
            linewidth=1.8 if each.on_top else 1.1, linestyle="--" if each.dashed else "-",
        )  # fmt: skip
        axes.fill_between(
            each.distance, each.low, each.high, color=each.color, alpha=0.15, linewidth=0
        )
    axes.locator_params(axis="x", nbins=5, min_n_ticks=3)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(labelsize=SMALL)


def _symlog(axes: Axes, linear: float) -> None:
    low, high = axes.get_ylim()
    axes.set_yscale("symlog", linthresh=linear, linscale=1.0)
    beyond = [sign * factor * linear for factor in (5, 50, 500) for sign in (-1, 1)]
    ticks = [-linear, -linear / 2, 0.0, linear / 2, linear, *beyond]
    axes.set_yticks([each for each in ticks if low <= each <= high])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(low, high)


def _handles(panels: Panels) -> list[Line2D]:
    found: dict[str, Line2D] = {}
    for by_title in panels.values():
        for trends in by_title.values():
            for each in trends:
                line = Line2D(
                    [], [], color=each.color, linestyle="--" if each.dashed else "-", marker="o",
                    markersize=2.4, linewidth=1.8 if each.on_top else 1.2, label=each.label,
                )  # fmt: skip
                found.setdefault(each.label, line)
    return list(found.values())


# -- from results ---------------------------------------------------------------------------------


def trend(
    results: Results, row: Shown, names: Sequence[str], measure: Measure, *, dashed: bool = False
) -> Trend | None:
    """A number of a method against distance, over its runs; None where it has no such number.

    Args:
        results: of a bench.
        row: of a method.
        names: of the sets.
        measure: the number of each input.
        dashed: not of the same kind as the others.
    """
    found = []
    for run in row.runs:
        distance, values = (
            pooled(results, run, names, "part/distance"),
            measure(results, run, names),
        )
        if distance is not None and values is not None:
            found.append(binned(distance, values))
    if not found:
        return None
    x, y = (np.stack([each[axis] for each in found]) for axis in (0, 1))  # (runs, bins)
    return Trend(
        row.label, row.color, x.mean(axis=0), y.mean(axis=0), y.min(axis=0), y.max(axis=0),
        dashed, row.is_ours,
    )  # fmt: skip


def _trends(results: Results, cells: Sequence[Cell]) -> list[list[Trend]]:
    """For each cell the trends of every method that has the number."""
    found: list[list[Trend]] = [[] for _ in cells]
    for row in shown_rows(results, SHOWN_METHODS):  # outermost: arrays are read once
        for trends, (names, measure) in zip(found, cells, strict=True):
            each = trend(results, row, names, measure)
            if each is not None:
                trends.append(each)
    return found


def _score(name: str) -> Measure:
    return lambda results, run, names: pooled(results, run, names, f"score/{name}")


def uncertainty(results: Results) -> Figure:
    """Entropy and 1 − max p on ID, near-OOD and far-OOD data."""
    groups = set_groups(results)
    titles = [group_title(results, *each) for each in groups.items()]
    scores = {"entropy, nats": "entropy", "1 − max p": "max_prob"}
    cells = [(names, _score(score)) for score in scores.values() for names in groups.values()]
    found = iter(_trends(results, cells))
    return draw_trends({label: {title: next(found) for title in titles} for label in scores})


def log_loss(results: Results, run: RunRecord, names: Sequence[str]) -> Floats | None:
    """−log p(y) of each input."""
    found = _labelled(results, run, names)
    return None if found is None else -found[0][np.arange(len(found[1])), found[1].astype(int)]


def brier(results: Results, run: RunRecord, names: Sequence[str]) -> Floats | None:
    """Σ_c (p_c − [c = y])² of each input, ×100."""
    found = _labelled(results, run, names)
    if found is None:
        return None
    residual = np.exp(found[0])
    residual[np.arange(len(residual)), found[1].astype(int)] -= 1.0
    return np.asarray(100.0 * (residual**2).sum(axis=1))


def accuracy(results: Results, run: RunRecord, names: Sequence[str]) -> Floats | None:
    """100 where the prediction is right, else 0."""
    prediction, label = (pooled(results, run, names, key) for key in ("prediction", "label"))
    return None if prediction is None or label is None else 100.0 * (prediction == label)


def _labelled(
    results: Results, run: RunRecord, names: Sequence[str]
) -> tuple[Floats, Floats] | None:
    log_probs, label = (pooled(results, run, names, key) for key in ("log_probs", "label"))
    return None if log_probs is None or label is None else (log_probs, label)


def calibration(results: Results) -> Figure:
    """NLL and Brier score on ID data, the only data with labels."""
    losses, briers = _trends(results, [(["test"], log_loss), (["test"], brier)])
    return draw_beside([("NLL, nats", ID, losses), ("Brier score ×100", ID, briers)])


def accuracy_confidence(results: Results) -> Figure:
    """Accuracy on ID data, confidence on OOD data."""
    groups = ood_groups(results)
    sure = [(names, _sure) for names in groups.values()]
    right, *found = _trends(results, [(["test"], accuracy), *sure])
    panels = [("accuracy, %", ID, right)]
    for (group, names), trends in zip(groups.items(), found, strict=True):
        panels.append(("confidence (max p)", group_title(results, group, names), trends))
    return draw_beside(panels)


def _sure(results: Results, run: RunRecord, names: Sequence[str]) -> Floats | None:
    doubt = pooled(results, run, names, "score/max_prob")
    return None if doubt is None else 1.0 - doubt


def energy(results: Results) -> Figure:
    """The learned energy, and that of the logits where none is learned, in units of ID data."""
    groups = set_groups(results)
    columns: dict[str, list[Trend]] = {group_title(results, *group): [] for group in groups.items()}
    for row in shown_rows(results, SHOWN_METHODS):
        learned = "score/energy" in results.arrays(row.first)["test"]
        measure = standardised("energy" if learned else "logit_energy")
        for trends, names in zip(columns.values(), groups.values(), strict=True):
            each = trend(results, row, names, measure, dashed=not learned)
            if each is not None:
                trends.append(each)
    if not any(columns.values()):
        raise Unavailable("no run of these methods has an energy, learned or of its logits")
    return draw_trends({"energy, z-scored": columns}, linear=LINEAR)


def standardised(score: str) -> Measure:
    """A score less its mean on test data, over its standard deviation there.

    Args:
        score: its name.
    """

    def measure(results: Results, run: RunRecord, names: Sequence[str]) -> Floats | None:
        inside = pooled(results, run, ["test"], f"score/{score}")
        values = pooled(results, run, names, f"score/{score}")
        if inside is None or values is None or inside.std() == 0:
            return None
        return np.asarray((values - inside.mean()) / inside.std())

    return measure


_CONVENTIONS: Final = (
    f"Distance to neighbour {NEIGHBOUR} among the training features of the same model, on "
    "unit-norm features; every model has its own features, so that lines differ in extent. "
    f"Inputs are put into {BINS} bins of equal number by distance; points are at the means of the "
    "bins, averaged over seeds, and bands reach from the least seed to the greatest."
)
ENTRIES: Final[Mapping[str, FigureEntry]] = {
    "supp-uncert": FigureEntry(
        "Uncertainty against support",
        "Predictive entropy (top) and 1 − max p (bottom) on ID test data, near-OOD and far-OOD "
        "sets. " + _CONVENTIONS,
        uncertainty,
    ),
    "supp-calib": FigureEntry(
        "Calibration against support",
        "NLL and Brier score (sum over the classes, ×100) on ID test data, the only data with "
        "labels; lower is better. " + _CONVENTIONS,
        calibration,
    ),
    "supp-accconf": FigureEntry(
        "Accuracy and confidence against support",
        "Accuracy on ID test data (higher is better), and the maximum probability on near-OOD and "
        "far-OOD sets (lower is better). " + _CONVENTIONS,
        accuracy_confidence,
    ),
    "supp-energy": FigureEntry(
        "Energy against support",
        "Energy less its mean on ID test data, over its standard deviation there. Solid: the "
        "learned energy of the GEM methods; dashed: the energy of the logits, −log Σ exp, of those "
        f"that learn none. The axis is linear up to {LINEAR:g} and logarithmic beyond. "
        + _CONVENTIONS,
        energy,
    ),
}
