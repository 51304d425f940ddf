"""Training on streams: the same as in memory, exact resume, memory that does not grow."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gemfi.backbones import Frozen
from gemfi.data import as_split, two_moons
from gemfi.errors import CheckpointError, InputError
from gemfi.methods import METHODS
from gemfi.model import Model, build_model
from gemfi.randomness import forked_generator
from gemfi.training import FitResult, TrainConfig, fit
from gemfi.training.objective import Objective
from support.runs import Killed, assert_same, kill_at, timeless

TASK = two_moons(n=120)
CONFIG = TrainConfig(epochs=3, batch_size=32, learning_rate=5e-3)


class Moons(Dataset[Any]):
    """The training data of the moons, item by item, with or without noise."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return len(TASK.train)

    def __getitem__(self, index: int) -> Any:
        draw = torch.randn(2) + np.random.rand() + random.random()  # noqa: NPY002, S311
        return TASK.train.x[index] + self.noise * draw, int(TASK.train.labels[index])


class Walk(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        noisy = Moons(noise=0.1)
        return (noisy[index] for index in range(len(noisy)))


def build(method: str = "gem-fi", seed: int = 0) -> Model:
    with forked_generator(seed):
        return build_model(method, "mlp", 2, in_features=2, width=8, depth=1, dropout=0.1)


def train(model: Model, data: Any, config: TrainConfig = CONFIG, **more: Any) -> FitResult:
    validation = as_split(TASK.validation.x, TASK.validation.labels, role="validation")
    split = as_split(data, role="train", length=len(TASK.train))
    return fit(model, split, validation, config, progress=False, **more)


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_trains_what_the_same_data_in_memory_train(method: str) -> None:
    one, other = build(method), build(method)
    fit(one, TASK.train, TASK.validation, CONFIG, progress=False)
    loader = DataLoader(Moons(), batch_size=32, shuffle=True)
    train(other, loader)
    assert_same(one, other)


def test_the_batch_size_is_the_loaders_unless_one_is_given() -> None:
    loader = DataLoader(Moons(), batch_size=20)
    epochs = TrainConfig(epochs=1)
    assert train(build(), loader, epochs).steps == 6
    assert train(build(), Moons(), epochs).steps == 1  # 128 by default
    assert train(build(), loader, TrainConfig(epochs=1, batch_size=60)).steps == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_resumes_exactly_within_an_epoch(tmp_path: Path, workers: int) -> None:
    """With random transforms, and with another number of workers than before."""
    config = TrainConfig(epochs=2, batch_size=32, checkpoint_steps=1)
    noisy = Moons(noise=0.2)
    whole = build()
    expected = train(whole, DataLoader(noisy, batch_size=32, num_workers=workers), config)
    for step in (1, 2, 5):
        first, folder = build(), tmp_path / str(step)
        kill_at(first, step)
        with pytest.raises(Killed):
            train(first, DataLoader(noisy, num_workers=workers), config, run_dir=folder)
        second = build(seed=3)
        result = train(second, noisy, config, run_dir=folder)
        assert result.resumed_at == step
        assert_same(whole, second)
        assert timeless(result.history) == timeless(expected.history)


def test_other_data_are_refused_on_resume(tmp_path: Path) -> None:
    train(build(), Moons(), run_dir=tmp_path)
    renamed = as_split(Moons(), role="train", version="2026-11")
    with pytest.raises(CheckpointError, match=r"belongs to another run \(data.train"):
        fit(build(), renamed, TASK.validation, CONFIG, run_dir=tmp_path)


def test_an_order_of_its_own_resumes_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    config = TrainConfig(epochs=3, batch_size=32, checkpoint_steps=1)
    loader = DataLoader(Walk(), batch_size=32)
    whole = build()
    expected = train(whole, loader, config, run_dir=tmp_path / "whole")
    assert any("resumes at the end of an epoch" in note for note in expected.notes)
    first = build()
    kill_at(first, 6)
    with pytest.raises(Killed):
        train(first, loader, config, run_dir=tmp_path / "killed")
    second = build(seed=3)
    result = train(second, loader, config, run_dir=tmp_path / "killed")
    assert result.resumed_at == 4
    assert_same(whole, second)
    with pytest.raises(InputError, match=r"as_split\(..., length=N\)"):
        fit(build(), as_split(Walk(), role="train"))


def test_labels_that_no_class_has() -> None:
    class Bad(Moons):
        def __getitem__(self, index: int) -> Any:
            return TASK.train.x[index], 7 if index > 100 else index % 2

    with pytest.raises(InputError, match="has label 7, but the model has classes 0 to 1"):
        train(build(), Bad())


def test_weights_draw_rows_of_a_stream() -> None:
    weight = torch.arange(len(TASK.train)).double()
    one, other = build(), build()
    fit(one, TASK.train, TASK.validation, CONFIG, sample_weight=weight, progress=False)
    train(other, Moons(), sample_weight=weight)
    assert_same(one, other)


def test_features_of_a_frozen_backbone_are_cached_once(tmp_path: Path) -> None:
    class Counted(torch.nn.Linear):
        rows = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Counted.rows += len(x)
            return super().forward(x)

    def frozen() -> Model:
        with forked_generator(0):
            return build_model("gem-fi", Frozen(Counted(2, 8), 8), 2)

    one, other = frozen(), frozen()
    fit(one, TASK.train, TASK.validation, CONFIG, progress=False)
    train(other, Moons(), cache=tmp_path)
    assert_same(one, other)
    Counted.rows = 0
    train(frozen(), Moons(), cache=tmp_path)
    held = len(TASK.validation)
    assert Counted.rows == 2 + 64 + held  # the trial pass, and a batch of each to see that it fits
    notes = train(frozen(), Moons(noise=0.1)).notes
    assert any("the frozen backbone ran in every step" in note for note in notes)


def test_a_model_can_be_asked_about_data_sets_and_loaders() -> None:
    model = build()
    train(model, Moons())
    expected = model.predict(TASK.train.x).probs()
    for data in (Moons(), DataLoader(Moons(), batch_size=50), as_split(Moons(), role="test")):
        torch.testing.assert_close(model.predict(data).probs(), expected)
    assert model.embed(Moons()).shape == (len(TASK.train), 8)


def test_a_loop_of_ones_own() -> None:
    """The ten lines of the docs; what they end in is what `fit` ends in."""
    loader = DataLoader(Moons(), batch_size=32, shuffle=True)
    model = build()
    objective = Objective(model, total_steps=3 * len(loader))
    optimizer = torch.optim.AdamW(objective.parameters(), lr=5e-3)
    model.train()
    losses = []
    for x, y in itertools.chain(*itertools.repeat(loader, 3)):
        loss = objective(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        assert float(loss.detach()) == pytest.approx(sum(map(float, objective.terms.values())))
    assert objective.step == len(losses) == 12
    model.finish(loader, as_split(TASK.validation.x, TASK.validation.labels, role="validation"))
    belief = model.predict(TASK.test)
    assert belief.log_density is not None
    assert not model.training
    assert losses[-1] < losses[0]
