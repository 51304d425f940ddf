"""What a policy promises, over thousands of calibration sets."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gemfi.decisions import Goal, Policy, Verdict
from support.calibrations import drawn, fitted_for_risk

pytestmark = pytest.mark.slow

DRAWS = 5000


@pytest.mark.parametrize(
    ("count", "level", "conditional"),
    [(19, 0.05, False), (99, 0.05, False), (500, 0.01, False), (60, 0.05, True), (250, 0.1, True)],
)
def test_false_alarms(count: int, level: float, conditional: bool) -> None:
    """One fresh input for each calibration set: alarms are independent, and their share exact."""
    rng = np.random.default_rng(count)
    classes = 2 if conditional else None
    alarms = 0
    for seed in range(DRAWS):
        data = drawn(count, rng, classes=2)
        if conditional:  # both classes with enough samples, whatever was drawn
            data.label[:] = np.arange(count) % 2
        policy = Policy.from_readings(data, Goal(false_alarm=level), num_classes=classes, seed=seed)
        alarms += int(policy.decide(drawn(1, rng, classes=2)).verdict[0] == Verdict.UNFAMILIAR)
    assert stats.binomtest(alarms, DRAWS, level, "greater").pvalue > 0.01
    assert conditional or alarms > 0.6 * level * DRAWS


@pytest.mark.parametrize(
    ("count", "risk", "delta"), [(600, 0.05, 0.1), (2000, 0.06, 0.1), (2000, 0.07, 0.3)]
)
def test_risk(count: int, risk: float, delta: float) -> None:
    """The share of calibration sets whose policy errs more often than it may, known exactly.

    Doubt d is uniform and P(wrong | d) = 0.2·d whatever the score, so that accepting d ≤ t has
    the error rate 0.1·t.
    """
    rng = np.random.default_rng(count)
    failures = accepted = 0
    draws = 1500
    for seed in range(draws):
        policy = fitted_for_risk(
            drawn(count, rng), Goal(false_alarm=0.05, risk=risk, delta=delta), seed
        )
        threshold = min(1.0, max(0.0, policy.threshold))
        failures += 0.1 * threshold > risk
        accepted += threshold
    assert stats.binomtest(failures, draws, delta, "greater").pvalue > 0.01
    assert failures > 0.1 * delta * draws
    assert count < 1000 or accepted / draws > 0.5 * risk / 0.1
