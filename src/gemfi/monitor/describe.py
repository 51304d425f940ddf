"""A stream in words."""

from __future__ import annotations

import math

import numpy as np

from gemfi.metrics import Floats
from gemfi.monitor.state import MonitorState
from gemfi.scores import score_label

_DEVIATIONS = 3  # from one half, beyond which a median is called different


def describe(
    state: MonitorState, recent: Floats, reference: int, false_alarm: float, score: str | None
) -> str:
    """What is known of a stream, in a few lines.

    Args:
        state: of the monitor.
        recent: p-values of the last inputs against calibration data.
        reference: how many calibration scores there are.
        false_alarm: the rate that was asked for.
        score: the name of the score, if it is known.
    """
    of = "" if score is None else f" by {score_label(score)}"
    lines = [
        f"Monitor of {state.count:,} inputs against {reference:,} calibration scores{of}",
        f"wealth  {_wealth(state)}",
        f"alarm   {_alarm(state, false_alarm)}",
    ]
    if len(recent):
        median = float(np.median(recent))
        lines.append(
            f"recent  median p {median:.2f} in the last {len(recent)} inputs (0.50 is expected): "
            f"{_meaning(median, len(recent), reference)}"
        )
    return "\n".join(lines)


def _power(log10: float) -> str:
    return f"10^{log10:.2f}".removesuffix("0").removesuffix(".0")


def _wealth(state: MonitorState) -> str:
    largest = "never above its beginning"
    if state.largest_at is not None:
        largest = f"at most {_power(state.log10_largest)} at input {state.largest_at:,}"
    return f"{_power(state.log10_wealth)} now, {largest}; fires at {_power(state.log10_limit)}"


def _alarm(state: MonitorState, false_alarm: float) -> str:
    chance = f"{100 * false_alarm:g} %"
    if state.fired_at is None:
        return f"none (a stream like the calibration data ever fires with at most {chance})"
    change = "less" if state.direction == "rise" else "more"
    word = "rose" if state.direction == "rise" else "fell"
    return (
        f"FIRED at input {state.fired_at:,}: scores {word}, inputs look {change} familiar "
        f"(by chance: at most {chance})"
    )


def _meaning(median: float, recent: int, reference: int) -> str:
    """What a median of p says, beyond what chance does to this many inputs and scores."""
    chance = 0.5 * math.sqrt(1 / recent + 1 / reference)
    if abs(median - 0.5) <= _DEVIATIONS * chance:
        return "as the calibration data"
    return f"{'less' if median < 0.5 else 'more'} familiar than the calibration data"
