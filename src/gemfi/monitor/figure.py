"""The figure of a stream: the wealth against its limit, and p-values along it; by matplotlib."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemfi._drawing import BLUE, GREY, INK, MUTED, VERMILION, styled
from gemfi.errors import InputError
from gemfi.metrics import Floats
from gemfi.monitor.stream import MonitorState, Stream, mean_p

_POINTS = 64  # of the lower panel, at most
_LEAST = 10  # inputs of a point, so that its mean is about normal
_LIMITS = 3.0  # the wealth is shown up to this power of its limit


def draw(state: MonitorState, stream: Stream, reference: int) -> Figure:
    """The figure of a stream against n = `reference` calibration scores."""
    if state.count == 0:
        raise InputError("there is nothing to draw yet: the stream has no inputs")
    with styled():
        figure = Figure(figsize=(6.8, 4.2), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        _draw_wealth(upper, state, stream)
        _draw_p_values(lower, state, stream, reference)
        for axes in (upper, lower):
            if state.fired_at is not None:
                axes.axvline(state.fired_at + 1, color=VERMILION, lw=0.8)  # when it was counted
        figure.align_ylabels()
    return figure


def _draw_wealth(axes: Axes, state: MonitorState, stream: Stream) -> None:
    used = -(-state.count // stream.stride)
    peaks = stream.peaks[:used] / math.log(10)
    ends = np.minimum(np.arange(1, used + 1) * stream.stride, state.count)
    top, limit = max(float(peaks.max()), 0.0), state.log10_limit
    shown = min(max(top, limit), _LIMITS * limit)
    low = min(float(peaks.min()), 0.0)
    room = 0.08 * (shown - low)
    axes.set_ylim(low - room, shown + 2 * room)
    axes.plot(np.append(0, ends), np.append(0.0, peaks), color=BLUE, lw=1.3)
    axes.axhline(0.0, color=MUTED, lw=0.6, ls=":")
    axes.axhline(limit, color=VERMILION, lw=1.0, ls="--")
    axes.annotate(
        "fires here", (1, limit), xycoords=("axes fraction", "data"), xytext=(-2, 3),
        textcoords="offset points", ha="right", color=VERMILION, fontsize=8,
    )  # fmt: skip
    axes.locator_params(axis="y", nbins=5, integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:.0f}}}$")
    axes.set_ylabel("evidence of drift")
    axes.set_title(_title(state, top, shown), loc="left")


def _title(state: MonitorState, top: float, shown: float) -> str:
    if state.fired_at is None:
        return f"no alarm in {state.count:,} input{'s' if state.count > 1 else ''}"
    word = "rose" if state.direction == "rise" else "fell"
    beyond = f"; later $10^{{{top:.0f}}}$" if top > shown else ""
    return f"alarm at input {state.fired_at:,}: scores {word}{beyond}"


def _draw_p_values(axes: Axes, state: MonitorState, stream: Stream, reference: int) -> None:
    places, p, sizes = _smoothed(state.count, stream, reference)
    spread = 1.96 * np.sqrt((1 / sizes + 1 / reference) / 12)
    unusual = np.abs(p - 0.5) > spread
    axes.axhspan(0.5 - spread[0], 0.5 + spread[0], color=GREY, alpha=0.3, lw=0)
    axes.axhline(0.5, color=MUTED, lw=0.6, ls=":")
    axes.plot(places, p, color=INK, lw=0.8, zorder=2)
    for chosen, color in ((~unusual, INK), (unusual, VERMILION)):
        axes.plot(places[chosen], p[chosen], "o", color=color, ms=3, zorder=3)
    axes.set_ylim(0, 1)
    axes.set_xlim(0, state.count)
    axes.set_ylabel("mean p\n← less familiar")
    axes.set_xlabel("inputs so far")
    axes.set_title(
        f"against calibration data, means of {int(sizes[0]):,}; grey: 95 % of them without drift",
        loc="left", fontsize=8, fontweight="normal", color=MUTED,
    )  # fmt: skip
    axes.locator_params(axis="x", integer=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _smoothed(count: int, stream: Stream, reference: int) -> tuple[Floats, Floats, Floats]:
    """Places, mean p and number of inputs of at most `_POINTS` points; the last may be of fewer."""
    used = -(-count // stream.stride)
    together = max(-(-used // _POINTS), -(-_LEAST // stream.stride))
    starts = np.arange(0, used, together)
    sums = np.add.reduceat(stream.ranks[:used], starts)
    ends = np.minimum((starts + together) * stream.stride, count)
    sizes = np.asarray(ends - starts * stream.stride, np.float64)
    places = np.asarray(starts * stream.stride + sizes / 2)
    return places, mean_p(sums / sizes, reference), sizes
