"""The paper's first two figures, which the demo draws too: two moons, and a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from gemfi import scores
from gemfi._drawing import INK, MUTED
from gemfi.belief import Belief
from gemfi.data import line_probability
from gemfi.data.toys import LINE_GAP, LINE_SUPPORT
from gemfi_bench.figures.common import TEXT, panel_title, point_handle
from gemfi_bench.results import Results
from gemfi_bench.style import KEPT, PART_COLORS, SHOWN, method_color, method_label
from gemfi_bench.toys import LINE, MOONS, Run, aurocs, trained_toys

_X, _Y, _STEPS = (-2.7, 4.4), (-2.45, 2.9), 181
_LINE_X: Final = (-6.0, 6.0)
_LINE_ROWS: Final = ("P(class 1)", "uncertainty, nats", "evidence,\nrelative")
_EMPTY: Final = "#e9ecf0"  # where there are no data
# Perceptually uniform; without its darkest tenth, which would be plain black.
_CMAP: Final = ListedColormap(colormaps["magma"](np.linspace(0.12, 0.98, 256)))
_CLASS_STYLES: Final = (("o", "#ffffff"), ("^", "#7fd0ff"))  # marker and colour, on dark ground
_STROKE: Final = withStroke(linewidth=2.2, foreground=INK)
_OUTSIDE: Final = ("D", "#12d6b0")


def relative_evidence(run: Run, belief: Belief) -> Tensor:
    """How much evidence is missing, in powers of ten, against the method's median test input.

    Evidence has another unit in each method (a prior, a clip, a density scaler), so only its
    ratio to what a method has on familiar inputs can be compared. The ranking does not change.
    """
    typical = scores.evidence(run.evaluation.belief).median()
    return (scores.evidence(belief) - typical) / log(10)


def keeping(percent: int, values: Tensor) -> float:
    """The lowest of the values (N,) that at least `percent` of them do not exceed, as in FPR95."""
    rank = -(-percent * len(values) // 100)  # rounded up, in integers
    return float(values.sort().values[rank - 1])


def _aurocs(run: Run, score: scores.Score) -> str:
    return ", ".join(f"{name} {value}" for name, value in aurocs(run, score).items())


def _power(exponent: float) -> str:
    """A power of ten, for an axis."""
    return "1" if round(exponent) == 0 else f"$10^{{{exponent:.0f}}}$"


# -- two moons ------------------------------------------------------------------------------------


def draw_two_moons(runs: Sequence[Run], width: float = TEXT) -> Figure:
    """A column a method: entropy above, evidence below; brighter is more uncertain."""
    side = (width - 1.1) / len(runs)
    height = 0.62 + 2 * side * (_Y[1] - _Y[0]) / (_X[1] - _X[0])
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(2, len(runs), sharex=True, sharey=True, squeeze=False)
    x, y = np.linspace(*_X, _STEPS), np.linspace(*_Y, _STEPS)
    points = torch.from_numpy(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)).float()
    beliefs = [run.model.predict(points, 8192) for run in runs]
    for panels, view in zip(axes, (_entropy_view(), _evidence_view(runs)), strict=True):
        for panel, run, belief in zip(panels, runs, beliefs, strict=True):
            values = view.score(run, belief).reshape(_STEPS, _STEPS).numpy()
            image = _draw_plane(panel, run, view, (x, y, values))
        bar = figure.colorbar(image, ax=panels, location="right", aspect=18, pad=0.01)
        bar.set_ticks(list(view.ticks), labels=list(view.ticks.values()))
        bar.set_label(view.unit)
        bar.outline.set_visible(False)
        panels[0].set_ylabel(view.title, fontsize=8.5, fontweight="bold")
    for index, run in enumerate(runs):
        panel_title(axes[0, index], index, method_label(run.plan.method))
    names = [*runs[0].task.class_names, f"unseen: {', '.join(runs[0].task.ood_test)}"]
    handles = [
        point_handle(name, color, marker, markersize=5, markeredgecolor=INK, markeredgewidth=0.6)
        for name, (marker, color) in zip(names, (*_CLASS_STYLES, _OUTSIDE), strict=True)
    ]
    edge = Line2D([], [], color="white", linewidth=1.1, label=f"{KEPT} % of test points inside")
    edge.set_path_effects([_STROKE])
    handles.append(edge)
    figure.legend(handles=handles, loc="outside lower center", ncols=4, handletextpad=0.3)
    return figure


class _View(NamedTuple):
    """A row of the figure: the score that ranks, and how it is shown."""

    title: str
    unit: str
    ranking: scores.Score
    score: Callable[[Run, Belief], Tensor]
    limits: tuple[float, float]
    ticks: Mapping[float, str]


def _entropy_view() -> _View:
    ticks = {tick: f"{tick:g}" for tick in (0.0, 0.2, 0.4, 0.6)}
    return _View(
        "Predictive entropy", "nats", scores.entropy, lambda _, belief: scores.entropy(belief),
        (0.0, log(2)), ticks,
    )  # fmt: skip


def _evidence_view(runs: Sequence[Run]) -> _View:
    """Colours from the least to the most that test and OOD data reach, 1 % of them left out."""
    ends = [0.0, 1.0]
    for run in runs:
        for belief in (run.evaluation.belief, *run.evaluation.ood_beliefs.values()):
            values = relative_evidence(run, belief)
            ends += [float(values.quantile(0.01)), float(values.quantile(0.99))]
    low, high = min(ends), max(ends)
    step = 2 if high - low > 4 else 1
    ticks = np.arange(np.ceil(low / step) * step, high + 0.01, step)
    return _View(
        "Total evidence", "relative evidence", scores.evidence, relative_evidence, (low, high),
        {tick: _power(-tick) for tick in ticks},
    )  # fmt: skip


def _draw_plane(axes: Axes, run: Run, view: _View, grid: tuple[npt.NDArray[Any], ...]) -> AxesImage:
    x, y, values = grid
    image = axes.imshow(
        values, cmap=_CMAP, vmin=view.limits[0], vmax=view.limits[1],
        extent=(*_X, *_Y), origin="lower", interpolation="bicubic",
    )  # fmt: skip
    threshold = keeping(KEPT, view.score(run, run.evaluation.belief))
    if values.min() < threshold < values.max():
        edge = axes.contour(x, y, values, levels=[threshold], colors="white", linewidths=1.1)
        edge.set_path_effects([_STROKE])
    _draw_points(axes, run)
    axes.text(
        0.03, 0.04, f"AUROC: {_aurocs(run, view.ranking)}", transform=axes.transAxes,
        bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "alpha": 0.9, "linewidth": 0},
    )  # fmt: skip
    axes.set(xlim=_X, ylim=_Y, aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return image


def _draw_points(axes: Axes, run: Run) -> None:
    x, labels = run.task.train.x[:SHOWN], run.task.train.labels[:SHOWN]
    sets = [(x[labels == label], style) for label, style in enumerate(_CLASS_STYLES)]
    outside = run.task.ood_test.values()
    sets += [(split.x[:: 1 + len(split) // 50], _OUTSIDE) for split in outside]
    for (x, y), (marker, color) in ((points.T, style) for points, style in sets):
        axes.scatter(x, y, s=8, marker=marker, color=color, edgecolors=INK, linewidths=0.4)


# -- the line -------------------------------------------------------------------------------------


def draw_line(runs: Sequence[Run], width: float = TEXT) -> Figure:
    """A column a method: P(class 1) with its heads, the split of uncertainty, the evidence."""
    figure = Figure(figsize=(width, width * 27 / 34), layout="constrained")
    axes = figure.subplots(
        3, len(runs), sharex=True, sharey="row", squeeze=False,
        gridspec_kw={"height_ratios": (1.5, 1.1, 0.9)},
    )  # fmt: skip
    x = torch.linspace(*_LINE_X, 961)
    empty = (_LINE_X[0], LINE_SUPPORT[0]), LINE_GAP, (LINE_SUPPORT[1], _LINE_X[1])
    for index, run in enumerate(runs):
        belief = run.model.predict(x[:, None])
        top, middle, bottom = axes[:, index]
        for panel in (top, middle, bottom):
            for span in empty:
                panel.axvspan(*span, color=_EMPTY, linewidth=0, zorder=0)
        _draw_probability(top, run, x, belief)
        panel_title(top, index, method_label(run.plan.method))
        split = scores.uncertainty(belief)
        parts = [part.numpy() for part in (split.aleatoric, split.within, split.between)]
        middle.stackplot(x.numpy(), parts, colors=[*PART_COLORS.values()], linewidth=0)
        middle.set(ylim=(0, 0.75), yticks=[0, log(2) / 2, log(2)], yticklabels=["0", "", "ln 2"])
        _draw_evidence(bottom, run, x, belief)
    for panel, label in zip(axes[:, 0], _LINE_ROWS, strict=True):
        panel.set_ylabel(label)
    figure.legend(
        handles=_line_legend(), loc="outside upper center", ncols=4, handlelength=1.8,
        columnspacing=2.0,
    )  # fmt: skip
    return figure


def _line_legend() -> list[Line2D | Patch]:
    """In pairs, one above the other: the upper row is of the curves, the lower of the areas."""
    colors = PART_COLORS
    return [
        Line2D([], [], color=INK, linestyle="--", linewidth=1.1, label="truth"),
        Patch(color=_EMPTY, linewidth=0, label="no data"),
        Line2D([], [], color=MUTED, linewidth=2.2, label="predicted"),
        Patch(color=colors["aleatoric"], linewidth=0, label="aleatoric"),
        Line2D([], [], color=MUTED, linewidth=0.9, label="each head, by weight"),
        Patch(color=colors["within"], linewidth=0, label="within heads"),
        Line2D([], [], color=MUTED, linestyle="", marker="|", markersize=6, label="training data"),
        Patch(color=colors["between"], linewidth=0, label="between heads"),
    ]


def _draw_probability(axes: Axes, run: Run, x: Tensor, belief: Belief) -> None:
    """The true and the predicted curve, each head's own one, and the training points."""
    color = method_color(run.plan.method)
    axes.plot(x, line_probability(x), "--", color=INK, linewidth=1.1)
    axes.plot(x, belief.probs()[:, 1], color=color, linewidth=2.2)
    heads = belief.gated()  # its weighted components sum to the predicted curve
    p, weight = heads.log_p[..., 1].exp(), heads.log_weight.exp()  # (B, K) both
    for k in range(p.shape[1] if p.shape[1] > 1 else 0):
        points = np.stack([x.numpy(), p[:, k].numpy()], axis=1)
        segments = np.stack([points[:-1], points[1:]], axis=1)  # (B - 1, 2, 2)
        colors = np.tile(np.array(to_rgba(color)), (len(segments), 1))
        colors[:, 3] = 0.1 + 0.9 * weight[:-1, k].numpy()  # as faint as its weight is small
        axes.add_collection(LineCollection(list(segments), colors=colors, linewidths=1.0))
    position, label = run.task.train.x[:SHOWN, 0], run.task.train.labels[:SHOWN]
    axes.plot(position, 1.12 * label - 0.06, "|", color=MUTED, markersize=5, markeredgewidth=0.5)
    axes.set(ylim=(-0.12, 1.12), yticks=[0, 0.5, 1], yticklabels=["0", "½", "1"])


def _draw_evidence(axes: Axes, run: Run, x: Tensor, belief: Belief) -> None:
    axes.axhline(0, color=MUTED, linewidth=0.7, linestyle=":")
    axes.plot(x, -relative_evidence(run, belief), color=method_color(run.plan.method))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 4, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: _power(value))
    axes.set(xlabel="x", xlim=_LINE_X)
    title = f"AUROC by evidence\n{_aurocs(run, scores.evidence)}"
    axes.set_title(title, fontsize=8, fontweight="normal")


def two_moons(results: Results) -> Figure:
    """The two moons of the demo, seed 0."""
    return draw_two_moons(trained_toys(results.folder, MOONS))


def line(results: Results) -> Figure:
    """The line of the demo, seed 0."""
    return draw_line(trained_toys(results.folder, LINE))


FIGURES: Final = {"moons-2d": two_moons, "moons-toy-1d": line}
