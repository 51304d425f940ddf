"""What there is to choose from: errors and abstentions, false alarms and detection, drawn.

What it shows is not what a policy promises: the promise comes from data that did not choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gemfi import metrics
from gemfi._drawing import (
    BLUE,
    INK,
    MUTED,
    PURPLE,
    VERMILION,
    require_matplotlib,
    styled,
    write_figure,
)
from gemfi.data import AnySplit, require_use
from gemfi.decisions.guarantees import Reference
from gemfi.decisions.policy import Policy, read_model, read_ood_sets
from gemfi.metrics import Floats
from gemfi.model import Model
from gemfi.scores import score_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OOD_COLORS = (VERMILION, PURPLE, "#009e73", "#56b4e9")


@dataclass(frozen=True, eq=False)
class OperatingPoints:
    """Two curves of a model on calibration data."""

    coverage: Floats  # (n,) share of the inputs that are accepted, the most certain first
    risk: Floats  # (n,) error rate among them
    aurc: float  # area under that curve, percent; lower is better
    false_alarm: Floats  # (n + 1,) levels of the first stage
    detection: Mapping[str, Floats]  # OOD-validation set -> its share found at each level
    score: str  # of the first stage


def operating_points(
    model: Model,
    calibration: AnySplit,
    ood_validation: Mapping[str, AnySplit] | None = None,
    *,
    score: str | None = None,
    doubt: str = "max_prob",
) -> OperatingPoints:
    """The curves of a model, to choose a policy by.

    Args:
        model: a trained model.
        calibration: a labelled split of role calibration.
        ood_validation: named sets of role ood-validation.
        score: of the first stage. Defaults to the method's epistemic score.
        doubt: of the second stage.
    """
    require_use(calibration, "policy")
    score = score or model.head.named_scores["epistemic"]
    known = read_model(model, calibration, score, doubt)
    curve = metrics.risk_coverage(known.doubt, known.errors)
    aurc = metrics.aurc(known.doubt, known.errors)
    reference, levels = Reference.of(known.score), np.arange(len(known) + 1) / (len(known) + 1)
    detection = {}
    for name, readings in read_ood_sets(model, ood_validation, score, doubt).items():
        p = np.sort(reference.p_values(readings.score, readings.label))
        detection[name] = np.searchsorted(p, levels + 1e-12, side="right") / len(p)
    return OperatingPoints(curve.x, curve.y, aurc, levels, detection, score)


def plot_operating_points(
    points: OperatingPoints, policy: Policy | None = None, path: Path | str | None = None
) -> Figure:
    """Risk against coverage, and detection against false alarms, with a policy marked.

    With a path the figure is also written there; the ending names the format.
    """
    require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional

    with styled():
        figure = Figure(figsize=(7.2, 3.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_risk(left, points, policy)
        _draw_detection(right, points, policy)
    if path is not None:
        write_figure(figure, Path(path))
    return figure


def _draw_risk(axes: Axes, points: OperatingPoints, policy: Policy | None) -> None:
    coverage, risk = 100 * points.coverage, 100 * points.risk
    axes.plot(coverage, risk, color=BLUE, lw=1.6)
    axes.fill_between(coverage, risk, color=BLUE, alpha=0.12, lw=0)
    axes.set(xlabel="accepted, %", ylabel="wrong among accepted, %", xlim=(0, 100))
    axes.set_ylim(0, max(1e-3, 1.15 * float(risk[len(risk) // 20 :].max())))
    axes.set_title(f"Which labels to use (AURC {points.aurc:.2g} %)", loc="left")
    if policy is not None and "coverage" in policy.facts:
        x, y = 100 * policy.facts["coverage"], 100 * policy.facts["error"]
        axes.plot([x], [y], "o", color=INK, ms=5, zorder=3)
        axes.annotate(
            f"policy: {x:.0f} % accepted\n{y:.2g} % wrong", (x, y), xytext=(-8, 12),
            textcoords="offset points", ha="right",
        )  # fmt: skip


def _draw_detection(axes: Axes, points: OperatingPoints, policy: Policy | None) -> None:
    levels = 100 * points.false_alarm
    for (name, share), color in zip(points.detection.items(), _OOD_COLORS * 9, strict=False):
        axes.step(levels, 100 * share, where="post", color=color, lw=1.6, label=name)
    axes.set(xscale="log", xlim=(100 / len(levels), 100), ylim=(0, 102))
    by = score_label(points.score)
    axes.set(xlabel=f"false alarms by {by}, % of known inputs", ylabel="called unfamiliar, %")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_title("Which inputs are unfamiliar", loc="left")
    if points.detection:
        axes.legend(loc="lower right")
    else:
        axes.text(
            0.5, 0.5, "give ood_validation= to see\nwhat each level detects", ha="center",
            va="center", transform=axes.transAxes, color=MUTED,
        )  # fmt: skip
    if policy is not None and policy.level > 0:
        axes.axvline(100 * policy.level, color=INK, lw=1, ls=(0, (3, 2)))
        place = (100 * policy.level, 4)
        axes.annotate(f"{policy.level:.2g}", place, xytext=(3, 0), textcoords="offset points")
