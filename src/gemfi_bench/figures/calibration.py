"""Calibration on the test data: reliability diagrams, confidence on right and wrong predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gemfi import metrics
from gemfi._drawing import INK, MUTED
from gemfi.metrics import Bools, Floats
from gemfi_bench.figures import common
from gemfi_bench.figures.common import COLUMN, TEXT, Ints, MethodRuns, Shown
from gemfi_bench.results import Results

BINS: Final = 15
"""Of the diagrams, as in the ECE of the tables."""

_GAP_COLOR: Final = "#c0392b"
_TINT: Final = 0.4
_RIGHT_COLOR: Final = "#4b7f52"


# -- reliability ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Calibrated(Shown):
    """A method's probabilities (n, C) and labels (n,) of the first seed, its ECE over all seeds."""

    probs: Floats
    labels: Ints
    ece: str


def draw_reliability(
    methods: Sequence[Calibrated], width: float = TEXT, most_across: int = 4
) -> Figure:
    """Accuracy over confidence for each method, and below it how many inputs each bin has.

    At most `most_across` diagrams stand beside each other.
    """
    lines = -(-len(methods) // most_across)
    across = min(len(methods), most_across)
    figure = Figure(figsize=(width, 0.3 + 2.75 * lines), layout="constrained")
    grid = figure.add_gridspec(2 * lines, across, height_ratios=[3.0, 1.0] * lines)
    for index, method in enumerate(methods):
        row, column = divmod(index, across)
        top = figure.add_subplot(grid[2 * row, column])
        bottom = figure.add_subplot(grid[2 * row + 1, column], sharex=top)
        diagram = metrics.reliability(method.probs, method.labels, BINS)
        _draw_diagram(top, method, diagram)
        _draw_counts(bottom, method, diagram)
        for axes, label in ((top, "accuracy"), (bottom, "inputs")):
            axes.set_ylabel(label if column == 0 else "")
            axes.tick_params(labelleft=column == 0)
    figure.supxlabel(f"confidence, in {BINS} bins", fontsize=8.5)
    handles = [
        Line2D([], [], color=INK, linewidth=1.1, label="accuracy"),
        Patch(facecolor=(_GAP_COLOR, _TINT), label="over-confident by"),
        Patch(facecolor=(MUTED, _TINT), label="under-confident by"),
        Line2D([], [], color=INK, linewidth=0.8, linestyle="--", label="perfect calibration"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    return figure


def _draw_diagram(axes: Axes, method: Calibrated, diagram: metrics.Reliability) -> None:
    full = diagram.count > 0
    left, width = diagram.edges[:-1][full], np.diff(diagram.edges)[full]
    accuracy, confidence = diagram.accuracy[full], diagram.confidence[full]
    strength = 0.35 + 0.65 * np.minimum(1, np.log1p(diagram.count[full]) / np.log1p(30))
    solid = [(method.color, value) for value in strength]  # few inputs are faint
    gaps = [
        (MUTED if is_under else _GAP_COLOR, _TINT * value)
        for value, is_under in zip(strength, accuracy >= confidence, strict=True)
    ]
    common: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.5}
    lower = np.minimum(accuracy, confidence)
    axes.bar(left, lower, width, color=solid, **common)
    axes.bar(left, np.abs(accuracy - confidence), width, bottom=lower, color=gaps, **common)
    axes.hlines(accuracy, left, left + width, color=INK, linewidth=1.1)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle="--")
    axes.set(xlim=(0, 1), ylim=(0, 1.005), yticks=[0, 0.5, 1], yticklabels=["0", "½", "1"])
    axes.tick_params(labelbottom=False)
    axes.set_title(method.label, pad=16, fontsize=9)
    axes.text(0.5, 1.04, f"ECE {method.ece}", transform=axes.transAxes, ha="center", fontsize=8)


def _draw_counts(axes: Axes, method: Calibrated, diagram: metrics.Reliability) -> None:
    axes.bar(
        diagram.edges[:-1], diagram.count, np.diff(diagram.edges), align="edge",
        color=method.color, edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    axes.set_yscale("symlog", linthresh=1)
    powers = [10**power for power in range(len(str(len(method.labels))))]
    ticks = [0, *(powers if len(powers) < 4 else powers[1::2])]
    axes.set_ylim(0, 1.5 * len(method.labels))
    axes.set(yticks=ticks, yticklabels=[f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xticks=[0, 0.5, 1], xticklabels=["0", "½", "1"])


# -- confidence on right and wrong predictions ----------------------------------------------------


@dataclass(frozen=True, eq=False)
class Confidence(Shown):
    """How sure each run of a method is of its inputs, and of which it is right."""

    confidence: Sequence[Floats]
    correct: Sequence[Bools]

    def by_run(self, correct: bool) -> list[Floats]:
        """The confidence of each run on its right (or wrong) predictions."""
        pairs = zip(self.confidence, self.correct, strict=True)
        return [values[right == correct] for values, right in pairs]


def draw_confidence(methods: Sequence[Confidence]) -> Figure:
    """Two lanes a method: its confidence on right predictions, and below on wrong ones."""
    figure = Figure(figsize=(COLUMN, 0.75 + 0.36 * len(methods)), layout="constrained")
    axes = figure.subplots()
    for place, method in enumerate(methods):
        _draw_lane(axes, place - 0.17, method.by_run(True), _RIGHT_COLOR)
        _draw_lane(axes, place + 0.17, method.by_run(False), _GAP_COLOR)
    common.name_ticks(axes.yaxis, methods)
    axes.set_ylim(len(methods) - 0.45, -0.55)
    axes.set_xlim(0, 1.01)
    axes.set_xlabel("confidence (max p) on test data")
    axes.grid(axis="x", color="#e3e7ec", linewidth=0.6)
    axes.set_axisbelow(True)
    handles = [
        Line2D([], [], color=_RIGHT_COLOR, linewidth=5, alpha=0.6, label="right"),
        Line2D([], [], color=_GAP_COLOR, linewidth=5, alpha=0.6, label="wrong"),
        common.point_handle("mean", INK, "D", markersize=3.6),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, handlelength=1.4)
    return figure


def _draw_lane(axes: Axes, y: float, by_run: Sequence[Floats], color: str) -> None:
    """Quantiles of all runs together, the mean over the runs that have any, and the number."""
    values, means = np.concatenate(by_run), [run.mean() for run in by_run if len(run)]
    style: dict[str, Any] = {"fontsize": 6.5, "va": "center", "color": color}
    axes.text(1.02, y, f"{len(values):,}", transform=axes.get_yaxis_transform(), **style)
    if not means:
        return
    low, first, last, high = np.quantile(values, [0.05, 0.25, 0.75, 0.95])
    axes.plot([low, high], [y, y], color=color, linewidth=1.0, solid_capstyle="butt")
    axes.plot([first, last], [y, y], color=color, linewidth=5.0, alpha=0.45, solid_capstyle="butt")
    axes.plot(
        np.mean(means), y, "D", color=color, markersize=3.6, markeredgecolor="white",
        markeredgewidth=0.6, zorder=3,
    )  # fmt: skip


# -- from results ---------------------------------------------------------------------------------


def _tests(results: Results, row: MethodRuns) -> list[tuple[Floats, Ints]]:
    """Probabilities and labels of the test data, of each run."""
    keys = ("log_probs", "label")
    tests = [[common.needed(results, run, ["test"], key) for key in keys] for run in row.runs]
    return [(np.exp(log_probs), labels.astype(np.int64)) for log_probs, labels in tests]


def reliability(results: Results) -> Figure:
    """The leading methods, by the first seed of each."""
    methods = []
    for row in common.leading_rows(results):
        tests = _tests(results, row)
        ece = common.spread([metrics.ece(*test, BINS) for test in tests])
        methods.append(Calibrated(row.label, row.color, *tests[0], ece))
    return draw_reliability(methods)


def confidence(results: Results) -> Figure:
    """The leading methods, all seeds of each."""
    methods = []
    for row in common.leading_rows(results):
        tests = _tests(results, row)
        sure = [probs.max(axis=1) for probs, _ in tests]
        correct = [probs.argmax(axis=1) == labels for probs, labels in tests]
        methods.append(Confidence(row.label, row.color, sure, correct))
    return draw_confidence(methods)


FIGURES: Final = {"reliability_id": reliability, "conf_correct_wrong": confidence}
