"""TrainConfig: the learning rate against torch's schedulers, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
)

from gemfi.errors import InputError
from gemfi.training import TrainConfig

PEAK = 0.02


def rates(scheduler: LRScheduler, steps: int) -> list[float]:
    """The learning rate of each step, as torch sets it."""
    found = []
    for _ in range(steps):
        found.append(scheduler.get_last_lr()[0])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def optimizer() -> SGD:
    return SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)


def test_cosine_is_torchs() -> None:
    config = TrainConfig(learning_rate=PEAK, schedule="cosine")
    expected = rates(CosineAnnealingLR(optimizer(), T_max=40), 41)
    found = [config.rate(step / 40) for step in range(41)]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("steps", [10, 40, 200])
def test_one_cycle_is_torchs(steps: int) -> None:
    """Torch counts the peak at step 0.3·N − 1 and the end at N − 1."""
    config = TrainConfig(learning_rate=PEAK, schedule="one-cycle")
    cycle = OneCycleLR(
        optimizer(),
        PEAK,
        total_steps=steps,
        pct_start=0.3,
        div_factor=25,
        final_div_factor=math.inf,
        cycle_momentum=False,
    )
    peak, last = 0.3 * steps - 1, steps - 1
    fractions = [
        0.3 * step / peak if step <= peak else 0.3 + 0.7 * (step - peak) / (last - peak)
        for step in range(steps)
    ]
    found = [config.rate(fraction) for fraction in fractions]
    assert found == pytest.approx(rates(cycle, steps)[:steps], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("fraction", "rate"),
    [
        (0.0, 1 / 25),
        (0.15, (1 + 1 / 25) / 2),
        (0.3 - 1e-12, 1.0),
        (0.3, 1.0),
        (0.65, 0.5),
        (1.0, 0.0),
    ],
)
def test_one_cycle_at_its_corners(fraction: float, rate: float) -> None:
    config = TrainConfig(learning_rate=PEAK, schedule="one-cycle")
    assert config.rate(fraction) == pytest.approx(PEAK * rate, abs=1e-12)


@pytest.mark.parametrize(
    ("epochs", "milestones", "decay"),
    [(350, (150, 250), 0.1), (60, (15, 30, 45), 0.2), (7, (3,), 1)],
)
@pytest.mark.parametrize("batches", [1, 3, 391])
def test_step_is_torchs(
    epochs: int, milestones: tuple[int, ...], decay: float, batches: int
) -> None:
    """Torch counts epochs; a fraction of training is the same moment, to the step."""
    config = TrainConfig(
        learning_rate=PEAK,
        schedule="step",
        milestones=tuple(epoch / epochs for epoch in milestones),
        decay=decay,
    )
    expected = rates(MultiStepLR(optimizer(), list(milestones), gamma=decay), epochs)
    steps = epochs * batches
    found = [config.rate(step / steps) for step in range(steps)]
    np.testing.assert_allclose(found, np.repeat(expected, batches), rtol=1e-9)


def test_exponential_is_torchs() -> None:
    config = TrainConfig(learning_rate=PEAK, schedule="exponential", decay=0.95**100)
    expected = rates(ExponentialLR(optimizer(), gamma=0.95), 101)
    found = [config.rate(epoch / 100) for epoch in range(101)]
    assert found == pytest.approx(expected, rel=1e-9)


def test_constant_stays() -> None:
    config = TrainConfig(learning_rate=PEAK, schedule="constant")
    assert {config.rate(step / 10) for step in range(11)} == {PEAK}


def test_step_and_exponential_have_defaults_that_work() -> None:
    step = TrainConfig(learning_rate=1.0, schedule="step")
    assert [step.rate(f) for f in (0, 0.49, 0.5, 0.75, 1)] == pytest.approx([1, 1, 0.1, 0.01, 0.01])
    assert TrainConfig(learning_rate=1.0, schedule="exponential").rate(1.0) == pytest.approx(0.1)


@pytest.mark.parametrize("schedule", ["cosine", "one-cycle"])
def test_never_above_the_peak_nor_below_zero(schedule: Any) -> None:
    config = TrainConfig(learning_rate=PEAK, schedule=schedule)
    found = [config.rate(step / 1000) for step in range(1001)]
    assert max(found) == pytest.approx(PEAK, rel=1e-9)
    assert min(found) >= 0
    assert found[-1] == pytest.approx(0, abs=1e-12)


def test_the_default_falls_from_the_start() -> None:
    assert TrainConfig().schedule == "cosine"
    assert TrainConfig(learning_rate=PEAK).rate(0.0) == PEAK


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "linear"}, "schedule must be one of cosine, one-cycle, constant, step, exp"),
        ({"optimizer": "lion"}, "optimizer must be one of adamw, adam, sgd, got 'lion'"),
        ({"decay": 0.0}, "decay must be at most 1 and above 0, got 0"),
        ({"decay": 1.1}, "decay must be at most 1 and above 0, got 1.1"),
        ({"milestones": ()}, r"milestones must be a tuple of fractions, .* got \(\)"),
        ({"milestones": [0.5]}, r"milestones must be a tuple of fractions, .* got \[0.5\]"),
        ({"milestones": (0.5, 150)}, "milestones must be above 0 and below 1, got 150"),
        ({"milestones": (0.5, 0.5)}, r"milestones must rise, got \(0.5, 0.5\)"),
        ({"milestones": (0.6, 0.5)}, "milestones must rise"),
        ({"select": "first"}, "select must be one of last, best, got 'first'"),
    ],
)
def test_choices(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainConfig(**options)
