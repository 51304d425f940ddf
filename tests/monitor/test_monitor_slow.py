"""The monitor on long streams, and on a trained GEM-FI."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from gemfi.data import Task, digits
from gemfi.model import Model
from gemfi.monitor import Monitor
from support.digit_models import trained_on

LONG = 100_000
STREAMS = 200


@pytest.mark.slow
def test_false_alarms_in_long_streams() -> None:
    """200 streams of 10^5 without drift, of scores with some ties.

    At every level the share of streams that ever fire is at most the level, up to what chance does
    to 200 of them once in a thousand times. One run judges all levels: that of a monitor only says
    where its limit is.
    """
    largest = []
    for seed in range(STREAMS):
        scores = np.random.default_rng(seed).normal(size=1000 + LONG).round(3)
        state = Monitor(scores[:1000], seed=seed).update(scores[1000:])
        assert state.fired == (state.log10_largest >= 2)
        largest.append(state.log10_largest)
    for level in (0.5, 0.2, 0.1, 0.05, 0.01):
        fired = sum(each >= -math.log10(level) for each in largest)
        assert fired <= stats.binom.ppf(0.999, STREAMS, level), level
    assert sum(each >= 1 for each in largest) <= 0.1 * STREAMS
    assert max(largest) > 0.5  # it is not that it never bets


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "within"), [(0.25, 2500), (0.5, 500), (1.0, 150), (-2.0, 40)])
def test_a_late_shift_is_found_quickly(shift: float, within: int) -> None:
    """After 10^5 inputs without drift, in batches of another size each time."""
    for seed in range(3):
        rng = np.random.default_rng([7, seed])
        scores = rng.normal(size=LONG + within)
        scores[LONG:] += shift
        monitor = Monitor(rng.normal(size=500), seed=seed)
        for part in np.array_split(scores, 10 ** (1 + seed)):
            monitor.update(part)
        assert monitor.fired_at is not None
        assert monitor.fired_at >= LONG


@pytest.mark.slow
def test_batches_change_nothing_in_a_long_stream() -> None:
    scores = np.random.default_rng(0).normal(size=LONG).round(3)
    known = np.random.default_rng(1).normal(size=300)
    one, other = Monitor(known), Monitor(known)
    one.update(scores)
    for start in range(0, LONG, 777):
        other.update(scores[start : start + 777])
    mine, theirs = one.state_dict(), other.state_dict()
    assert all(np.array_equal(mine[key], theirs[key]) for key in mine)


@pytest.fixture(scope="module")
def task() -> Task:
    return digits()


@pytest.fixture(scope="module")
def model(task: Task) -> Model:
    return trained_on(task, "gem-fi", epochs=20, channels=32)


@pytest.mark.slow
def test_a_trained_model_on_test_images_and_then_on_others(task: Task, model: Model) -> None:
    """Ten orders of the test images; then held-out sevens, or test images that grow noisy."""
    rng = np.random.default_rng(0)
    sevens = task.ood_validation["digits-7"].x
    for seed in range(10):
        known = task.test.x[torch.from_numpy(rng.permutation(len(task.test)))]
        noise = torch.from_numpy(rng.normal(size=known.shape)).float()
        noisy = (known + torch.linspace(0, 1, len(known))[:, None, None, None] * noise).clamp(0, 1)
        for strange, within in ((sevens, 30), (noisy, 253)):
            monitor = Monitor.fit(model, task.calibration, seed=seed)
            assert monitor.score == "unfamiliarity"
            assert not monitor.update(model.predict(known)).fired
            state = monitor.update(model.predict(strange))
            assert state.fired_at is not None
            assert state.fired_at < len(known) + within
            assert state.direction == "rise"
