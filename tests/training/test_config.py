"""TrainConfig: the learning rate against torch's schedulers, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

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
        ({"schedule": "linear"}, "schedule must be one of cosine, one-cycle, got 'linear'"),
        ({"select": "first"}, "select must be one of last, best, got 'first'"),
    ],
)
def test_choices(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainConfig(**options)
