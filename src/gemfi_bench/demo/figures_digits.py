"""The digits: reliability diagrams, and histograms of the scores on ID and OOD data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from gemfi import metrics
from gemfi._drawing import INK, MUTED
from gemfi.belief import Belief
from gemfi.scores import SCORES, score_label
from gemfi_bench.demo.runner import Run
from gemfi_bench.demo.table import GROUPS, columns, shown
from gemfi_bench.style import SET_COLORS, method_color, method_label

Floats = npt.NDArray[np.float64]

BINS = 15  # of the reliability diagrams, as in ECE
_HISTOGRAM_BINS = 40
_LOGARITHMS = {
    "evidence",
    "bare_evidence",
    "max_alpha",
    "logit_energy",
    "energy",
    "density",
}
_FILL = {"ID test": 0.75, "near OOD": 0.25, "far OOD": 0.25}
_GAP_COLOR = "#c0392b"


# -- reliability --------------------------------------------------------------------------------


def reliability(runs: Sequence[Run]) -> Figure:
    """A column a method: accuracy over confidence, and below it how many inputs each bin has."""
    figure = Figure(figsize=(8.0, 3.0), layout="constrained")
    axes = figure.subplots(
        2, len(runs), sharex=True, sharey="row", squeeze=False,
        gridspec_kw={"height_ratios": (3.0, 1.0)},
    )  # fmt: skip
    for (top, bottom), run in zip(axes.T, runs, strict=True):
        diagram = metrics.reliability(run.evaluation.belief.probs(), run.evaluation.labels, BINS)
        _diagram(top, run, diagram)
        _counts(bottom, run, diagram)
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("inputs")
    total = len(runs[0].evaluation.labels)
    figure.supxlabel(f"confidence ({total} test inputs in {BINS} bins)", fontsize=8.5)
    return figure


def _diagram(axes: Axes, run: Run, diagram: metrics.Reliability) -> None:
    full = diagram.count > 0
    left, width = diagram.edges[:-1][full], np.diff(diagram.edges)[full]
    accuracy, confidence = diagram.accuracy[full], diagram.confidence[full]
    count = diagram.count[full]
    strength = 0.3 + 0.7 * np.minimum(1, np.log1p(count) / np.log1p(30))  # few inputs are faint
    bars: dict[str, Any] = {"width": width, "align": "edge", "linewidth": 0.5}
    colors = [(method_color(run.plan.method), value) for value in strength]
    axes.bar(left, accuracy, color=colors, edgecolor="white", **bars)
    gaps = [(_GAP_COLOR, 0.45 * value) for value in strength]
    edges = [(_GAP_COLOR, value) for value in strength]
    axes.bar(left, confidence - accuracy, bottom=accuracy, color=gaps, edgecolor=edges, **bars)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle="--")
    axes.set(xlim=(0, 1), ylim=(0, 1.005), aspect="equal")
    axes.set(xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], yticklabels=["0", "½", "1"])
    axes.set_title(method_label(run.plan.method), pad=18)
    ece = f"ECE {shown(run.evaluation.classification['ece'])}"
    axes.text(0.5, 1.04, ece, transform=axes.transAxes, ha="center")


def _counts(axes: Axes, run: Run, diagram: metrics.Reliability) -> None:
    axes.bar(
        diagram.edges[:-1], diagram.count, np.diff(diagram.edges), align="edge",
        color=method_color(run.plan.method), edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    axes.set_yscale("symlog", linthresh=1)
    axes.set(yticks=[0, 1, 10, 100], yticklabels=["0", "1", "10", "100"])
    axes.minorticks_off()
    axes.set(xticks=[0, 0.5, 1], xticklabels=["0", "½", "1"])


# -- histograms ---------------------------------------------------------------------------------


def histograms(runs: Sequence[Run]) -> Figure:
    """A row a method: its aleatoric and its epistemic score, on ID data above and OOD data below.

    Each half has its own scale: what counts is where the two lie, and peaks hide nothing.
    """
    figure = Figure(figsize=(8.0, 0.65 + 1.25 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), 2, squeeze=False, gridspec_kw={"wspace": 0.06})
    for column, kind in enumerate(("aleatoric", "epistemic")):
        for panel, run in zip(axes[:, column], runs, strict=True):
            _histogram(panel, run, kind)
    for panel, run in zip(axes[:, 0], runs, strict=True):
        panel.set_ylabel(method_label(run.plan.method), fontweight="bold", labelpad=6)
    sizes = {name: sum(map(len, beliefs)) for name, beliefs in _sets(runs[0]).items()}
    handles = [
        Patch(facecolor=(color, _FILL[name]), edgecolor=color, label=f"{name} ({sizes[name]})")
        for name, color in SET_COLORS.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _sets(run: Run) -> dict[str, list[Belief]]:
    """The beliefs behind each colour: ID test, near OOD and far OOD."""
    inside = {"ID test": [run.evaluation.belief]}
    outside = {
        group: [run.evaluation.ood_beliefs[name] for name in names]
        for group, names in GROUPS["digits"].items()
    }
    return inside | outside


def _histogram(axes: Axes, run: Run, kind: str) -> None:
    name = run.model.head.named_scores[kind]
    values = {
        group: torch.cat([SCORES[name](belief) for belief in beliefs]).numpy()
        for group, beliefs in _sets(run).items()
    }
    edges = _edges(np.concatenate([*values.values()]), log=name not in _LOGARITHMS)
    shares = {  # what lies beyond the axis is counted in its last bin
        group: np.histogram(np.clip(found, edges[0], edges[-1]), edges)[0] / len(found)
        for group, found in values.items()
    }
    inside = shares.pop("ID test")
    _stairs(axes, "ID test", inside / inside.max(), edges)
    peak = max(share.max() for share in shares.values())
    for group, share in shares.items():
        _stairs(axes, group, -share / peak, edges)
    if name not in _LOGARITHMS:
        _log_axis(axes, edges)
    axes.axhline(0, color=MUTED, linewidth=0.7)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(-1.05, 1.05), yticks=[])
    axes.spines.left.set_visible(False)
    _headline(axes, run, kind, score_label(name))


def _stairs(axes: Axes, group: str, height: Floats, edges: Floats) -> None:
    axes.stairs(height, edges, fill=True, color=(SET_COLORS[group], _FILL[group]))
    axes.stairs(height, edges, color=SET_COLORS[group], linewidth=1.1)


def _log_axis(axes: Axes, edges: Floats) -> None:
    """Plain numbers at the powers of ten, and at 2 and 5 between where there are few powers."""
    axes.set_xscale("log")
    few = edges[-1] / edges[0] < 10**2.5
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())


def _edges(values: Floats, *, log: bool) -> Floats:
    """Bins from the 0.5 % to the 99.5 % quantile, even on a logarithmic axis or a plain one."""
    shown_values = np.log10(np.maximum(values, 1e-12)) if log else values
    low, high = np.quantile(shown_values[np.isfinite(shown_values)], [0.005, 0.995])
    margin = max(0.02 * (high - low), 1e-3)
    edges = np.linspace(low - margin, high + margin, _HISTOGRAM_BINS + 1)
    return np.asarray(10**edges if log else edges)


def _headline(axes: Axes, run: Run, kind: str, label: str) -> None:
    """The score at the left; at the right its AUROC by set, as in the table."""
    style: dict[str, Any] = {"fontsize": 8, "fontweight": "normal", "pad": 3}
    axes.set_title(f"{kind}: {label}", loc="left", **style)
    found = [
        f"{col.group.removesuffix(' OOD')} {shown(col.value(run))}"
        for col in columns("digits")
        if col.metric == "auroc" and col.score == kind
    ]
    axes.set_title(f"AUROC {', '.join(found)}", loc="right", **style)
