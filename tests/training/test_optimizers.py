"""Optimisers: each against its rule written out by hand, and each resumes exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gemfi.data import two_moons
from gemfi.model import Model, build_model
from gemfi.training import TrainConfig, fit
from gemfi.training.objective import make_optimizer
from gemfi.training.run_data import permutation

TASK = two_moons(n=120)
OPTIMIZERS = ["adamw", "adam", "sgd"]
DECAYED = {"backbone.first.weight", "backbone.blocks.0.weight", "head.linear.weight"}
RATE, DECAY = 0.02, 0.3


def build(method: str = "softmax", dropout: float = 0.0) -> Model:
    torch.manual_seed(0)
    return build_model(method, "mlp", 2, in_features=2, width=8, depth=1, dropout=dropout)


class ByHand:
    """One optimiser a parameter, as the books have it."""

    def __init__(self, kind: str, parameter: nn.Parameter, decay: float) -> None:
        self.kind, self.parameter, self.decay = kind, parameter, decay
        self.first, self.second = torch.zeros_like(parameter), torch.zeros_like(parameter)
        self.steps = 0

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float) -> None:
        weight = self.parameter
        if self.kind == "adamw":
            weight -= rate * self.decay * weight
        else:
            gradient = gradient + self.decay * weight
        if self.kind == "sgd":
            self.first = 0.9 * self.first + gradient
            weight -= rate * self.first
            return
        self.steps += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        mean = self.first / (1 - 0.9**self.steps)
        spread = (self.second / (1 - 0.999**self.steps)).sqrt()
        weight -= rate * mean / (spread + 1e-8)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_run_is_the_rule_written_out(kind: Any) -> None:
    model, oracle = build().double(), build().double()
    x = TASK.train.x.double()
    config = TrainConfig(
        epochs=2, batch_size=30, learning_rate=RATE, optimizer=kind, schedule="step",
        milestones=(0.5,), decay=0.5, weight_decay=DECAY, clip_norm=1e9,
    )  # fmt: skip
    optimizer = make_optimizer(model, config)
    rules = {
        name: ByHand(kind, parameter, DECAY if name in DECAYED else 0.0)
        for name, parameter in oracle.named_parameters()
    }
    for step in range(8):
        rows = permutation(120, 0, step // 4)[30 * (step % 4) : 30 * (step % 4 + 1)]
        for each in (model, oracle):
            each.zero_grad()
            log_p = each(x[rows]).log_probs()
            nn.functional.nll_loss(log_p, TASK.train.labels[rows]).backward()
        for group in optimizer.param_groups:
            group["lr"] = config.rate(step / 8)
        optimizer.step()
        for name, parameter in oracle.named_parameters():
            assert parameter.grad is not None
            rules[name].step(parameter.grad, RATE * (0.5 if step >= 4 else 1.0))
    for mine, theirs in zip(model.parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)

    trained = build()  # and the loop uses it so, in float32
    fit(trained, TASK.train, config=config, progress=False)
    for mine, theirs in zip(trained.parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=2e-3, atol=2e-4)


def test_the_rules_differ() -> None:
    """Otherwise the test above would say little."""
    found = []
    for kind in OPTIMIZERS:
        model = build()
        config = TrainConfig(epochs=1, batch_size=30, optimizer=kind, weight_decay=DECAY)  # type: ignore[arg-type]
        fit(model, TASK.train, config=config, progress=False)
        found.append(model.head.linear.weight)
    assert (found[0] - found[1]).abs().max() > 1e-4
    assert (found[1] - found[2]).abs().max() > 1e-4


class Killed(BaseException):
    pass


@pytest.mark.parametrize("method", ["softmax", "gem-fi"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_killed_run_resumes_bit_for_bit(kind: Any, method: str, tmp_path: Path) -> None:
    config = TrainConfig(
        epochs=3, batch_size=32, learning_rate=5e-3, optimizer=kind, schedule="exponential",
        checkpoint_steps=1,
    )  # fmt: skip

    def train(model: Model, folder: Path | None) -> Any:
        return fit(model, TASK.train, TASK.validation, config, run_dir=folder, progress=False)

    whole = build(method, dropout=0.1)
    train(whole, None)
    for step in (1, 6):
        first, second = build(method, dropout=0.1), build(method, dropout=0.1)
        original = first.head.objective

        def dying(batch: Any, at: Any, step: int = step, go: Any = original) -> Any:
            if at.step == step:
                raise Killed
            return go(batch, at)

        first.head.objective = dying  # type: ignore[method-assign]
        folder = tmp_path / str(step)
        with pytest.raises(Killed):
            train(first, folder)
        result = train(second, folder)
        assert result.resumed_at == step
        expected, found = whole.state_dict(), second.state_dict()
        assert [name for name in found if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_parameter_that_meets_a_loss_late_is_updated_then(kind: Any) -> None:
    """As where outliers begin in the middle of training."""
    model = build()
    optimizer = make_optimizer(model, TrainConfig(optimizer=kind))
    late, early = model.head.linear.weight, model.backbone.first.weight
    before = late.detach().clone()
    early.square().sum().backward()
    optimizer.step()
    assert torch.equal(late, before)
    optimizer.zero_grad(set_to_none=True)
    (early.square().sum() + late.square().sum()).backward()
    optimizer.step()
    assert torch.isfinite(late).all()
    assert (late - before).abs().max() > 0
