"""A policy in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gemfi.scores import score_label

if TYPE_CHECKING:
    from gemfi.decisions.policy import Policy

_HEAVY = 0.2  # of the level that is lost to ties, from which on the summary says so


def describe(policy: Policy) -> str:
    """What a policy does and what is promised, in a few lines.

    Args:
        policy: a fitted one.
    """
    facts, goal = policy.facts, policy.goal
    lines = [
        f"Policy {goal} ({int(facts['calibration'])} calibration samples in the first stage)",
        f"unfamiliar  {_first(policy)}",
        f"accept      {accepts(policy)}",
    ]
    if "coverage" in facts:
        error = "none accepted" if math.isnan(facts["error"]) else f"{facts['error']:.2%} wrong"
        lines.append(
            f"seen        of {int(facts['judged'])} calibration samples {facts['coverage']:.1%} "
            f"accepted, {error}"
        )
    if "cost" in facts:
        lines.append(f"            expected cost of an input {facts['cost']:.4g}")
    return "\n".join(lines)


def _first(policy: Policy) -> str:
    where = "in each predicted class" if policy.reference.is_conditional else "of known inputs"
    promised = (
        f"{score_label(policy.score)}: p ≤ {policy.level:.4g}, so at most "
        f"{_percent(policy.level)} {where} on average"
    )
    threshold = policy.reference.threshold(policy.level)
    if threshold.lost < _HEAVY:
        low, high = policy.facts["false_alarm_low"], policy.facts["false_alarm_high"]
        return f"{promised}; with these samples {low:.2%} to {high:.2%}"
    tied = f"{threshold.tied:.1%} of the calibration scores are {threshold.value:.4g}"
    if math.isinf(threshold.value):
        return (
            f"{promised}. This holds, but without power: {tied}, and no score is higher, so no "
            "input is ever called unfamiliar"
        )
    return (
        f"{promised}. This holds, but with little power: {tied}, which is the threshold, so with "
        f"these samples about {threshold.above:.2%} are called unfamiliar"
    )


def accepts(policy: Policy) -> str:
    """Which inputs are accepted, and what is promised of them."""
    goal = policy.goal
    if policy.threshold == math.inf and not goal.asks_clarity:
        return (
            "every familiar input, clear or not: the goal does not say how clear (risk=, coverage= "
            "or costs do)"
        )
    if math.isinf(policy.threshold):
        chosen = "every familiar input" if policy.threshold > 0 else "nothing"
    else:
        chosen = f"familiar inputs with {score_label(policy.doubt)} ≤ {policy.threshold:.4g}"
    if goal.risk is not None:
        return (
            f"{chosen}: at most {_percent(goal.risk)} wrong with probability "
            f"{_percent(1 - goal.delta)}"
        )
    if goal.coverage is not None:
        return f"{chosen}: at least {_percent(goal.coverage)} of them on average"
    return chosen


def _percent(share: float) -> str:
    """With the digits that it takes: 99.5 % must not be told as 100 %."""
    return f"{100 * share:.4g}%"
