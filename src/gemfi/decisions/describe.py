"""A policy in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gemfi.style import SCORE_LABELS

if TYPE_CHECKING:
    from gemfi.decisions.policy import Policy


def describe(policy: Policy) -> str:
    """What a policy does and what is promised, in a few lines.

    Args:
        policy: a fitted one.
    """
    facts, goal = policy.facts, policy.goal
    where = "in each predicted class" if policy.reference.is_conditional else "of known inputs"
    low, high = facts["false_alarm_low"], facts["false_alarm_high"]
    first = (
        f"{label(policy.score)}: p ≤ {policy.level:.4g}, so at most {policy.level:.2%} {where} on "
        f"average; with these samples {low:.2%} to {high:.2%}"
    )
    lines = [
        f"Policy {goal} ({int(facts['calibration'])} calibration samples in the first stage)",
        f"unfamiliar  {first}",
        f"accept      {_second(policy)}",
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


def label(score: str) -> str:
    """A score as people call it."""
    return SCORE_LABELS.get(score, score.replace("_", " "))


def _second(policy: Policy) -> str:
    goal, facts = policy.goal, policy.facts
    if math.isinf(policy.threshold):
        chosen = "every familiar input" if policy.threshold > 0 else "nothing"
    else:
        chosen = f"familiar inputs with {label(policy.doubt)} ≤ {policy.threshold:.4g}"
    if goal.risk is not None:
        return (
            f"{chosen}: at most {goal.risk:.2%} wrong with probability {1 - goal.delta:.0%} "
            f"(bound {facts['error_bound']:.2%})"
        )
    if goal.coverage is not None:
        return f"{chosen}: at least {goal.coverage:.0%} of them on average"
    return chosen
