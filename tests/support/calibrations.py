"""Synthetic calibration data for policies: what would be observed of a model on N inputs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gemfi.decisions import Goal, Policy, Readings
from gemfi.errors import InputError


def drawn(
    count: int,
    rng: np.random.Generator,
    *,
    classes: int = 4,
    error: float = 0.1,
    shift: float = 0.0,
) -> Readings:
    """Inputs whose doubt tells something about their errors, and whose classes differ in score.

    Args:
        count: how many.
        rng: draws them.
        classes: predicted classes, the higher the more unfamiliar they look.
        error: about the share of wrong labels.
        shift: added to the scores, as for unfamiliar inputs.
    """
    label = rng.integers(classes, size=count)
    score = rng.normal(shift, 1 + label / 2, size=count)
    doubt = rng.uniform(size=count)
    wrong = rng.uniform(size=count) < 2 * error * doubt
    return Readings(score, doubt, label, 1 - doubt / 2, wrong)


def fitted_for_risk(observed: Readings, goal: Goal, seed: int) -> Policy:
    """A policy; one that accepts nothing where no threshold could be proven, which is an error."""
    try:
        return Policy.from_readings(observed, goal, seed=seed)
    except InputError as error:
        if "no threshold keeps" not in str(error):
            raise
        bare = Goal(false_alarm=goal.false_alarm)
        return replace(Policy.from_readings(observed, bare, seed=seed), threshold=-math.inf)
