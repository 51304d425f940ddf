"""Order and weights of rows: how often each is drawn, whatever the method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gemfi import metrics
from gemfi.data import Split, as_split, two_moons
from gemfi.errors import CheckpointError, InputError
from gemfi.methods import METHODS
from gemfi.model import Model, build_model
from gemfi.training import TrainConfig, fit
from gemfi.training.loop import judge
from gemfi.training.run_data import (
    batches_per_epoch,
    drawn_split,
    epoch_rows,
    permutation,
    training_order,
)
from support.runs import Killed, assert_same, kill_at

TASK = two_moons(n=120)
CONFIG = TrainConfig(epochs=3, batch_size=32, learning_rate=5e-3)


def build(name: str = "gem-fi", seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return build_model(name, "mlp", 2, in_features=2, width=8, depth=1, dropout=0.1)


def train(model: Model, config: TrainConfig = CONFIG, **more: Any) -> Any:
    return fit(model, TASK.train, TASK.validation, config, progress=False, **more)


def test_every_sample_is_seen_once_an_epoch_except_a_last_batch_of_one() -> None:
    assert batches_per_epoch(120, 32) == 4
    assert batches_per_epoch(129, 32) == 4
    assert batches_per_epoch(1, 32) == 1
    assert sorted(permutation(50, 3, 7).tolist()) == list(range(50))
    assert not torch.equal(permutation(50, 3, 7), permutation(50, 3, 8))


def test_rows_are_drawn_as_often_as_their_weights_say() -> None:
    labels = torch.arange(60) % 3
    weight = torch.rand(60, generator=torch.Generator().manual_seed(0)).double()
    weight[:6] = 0
    copies = weight * 60 / weight.sum()
    counts = torch.stack(
        [
            torch.bincount(epoch_rows(labels, weight, 1, epoch), minlength=60)
            for epoch in range(2000)
        ]
    ).double()
    assert (counts.sum(dim=1) == 60).all()
    assert (counts[:, :6] == 0).all()
    assert (counts >= copies.floor()).all()
    assert (counts <= copies.ceil()).all()
    assert (counts.mean(dim=0) - copies).abs().max() < 0.06  # five standard errors of a draw
    by_class = torch.stack([counts[:, labels == each].sum(dim=1) for each in range(3)])
    assert (by_class.amax(dim=1) - by_class.amin(dim=1) <= 2).all()


def test_whole_weights_are_copies() -> None:
    weight = torch.tensor([2.0, 0, 1, 1, 2, 0, 0, 2, 0, 2]).double()
    rows = epoch_rows(torch.zeros(10, dtype=torch.int64), weight, 0, 0)
    assert torch.equal(torch.bincount(rows, minlength=10).double(), weight)
    assert not torch.equal(rows, rows.sort().values)


def test_equal_weights_are_none() -> None:
    one, other = build(), build()
    train(one)
    count, held = len(TASK.train), len(TASK.validation)
    train(other, sample_weight=torch.full((count,), 3.0), validation_weight=[0.5] * held)
    assert_same(one, other)
    assert torch.equal(
        next(training_order(TASK.train, None, 5, count, 1, 2)).index, permutation(count, 5, 2)
    )


@pytest.mark.parametrize("name", list(METHODS))
def test_rows_without_weight_leave_no_trace(name: str) -> None:
    weight = (torch.arange(len(TASK.train)) % 4 < 2).double()  # labels alternate
    weight[:10] *= 2.5
    held = (torch.arange(len(TASK.validation)) % 3 > 0).double()
    one, other = build(name), build(name)
    config = TrainConfig(epochs=2, batch_size=32, learning_rate=5e-3, select="best")
    train(one, config, sample_weight=weight, validation_weight=held)
    spoilt = [
        as_split(
            torch.where(w[:, None] > 0, s.x, 50.0), torch.where(w > 0, s.labels, 1), role=s.role
        )
        for s, w in ((TASK.train, weight), (TASK.validation, held))
    ]
    fit(other, *spoilt, config, sample_weight=weight, validation_weight=held, progress=False)
    assert_same(one, other)


def test_the_validation_nll_is_weighted() -> None:
    model = build("softmax")
    train(model)
    split = TASK.validation
    weight = torch.rand(len(split), generator=torch.Generator().manual_seed(3)).double()
    found = judge(model, split, (weight * 4).round())
    copied = split.subset(
        torch.repeat_interleave(torch.arange(len(split)), (weight * 4).round().long())
    )
    log_p = model.predict(copied.x).log_probs()
    assert found["validation_nll"] == pytest.approx(metrics.nll(log_p, copied.labels), rel=1e-6)
    expected = metrics.accuracy(log_p.exp(), copied.labels)
    assert found["validation_accuracy"] == pytest.approx(expected)


def test_statistics_see_every_class() -> None:
    split = Split(torch.randn(40, 2), torch.arange(40) % 4, "train", "x", 4)
    weight = torch.where(split.labels == 3, 1e-9, 1.0).double()
    drawn = drawn_split(split, weight, 0)
    assert (drawn.class_counts > 0).all()
    assert int(drawn.class_counts[3]) == 1
    assert drawn_split(split, None, 0) is split


def test_a_killed_run_with_weights_resumes_bit_for_bit(tmp_path: Path) -> None:
    weight = torch.rand(len(TASK.train), generator=torch.Generator().manual_seed(1))
    whole, first, second = build(), build(), build(seed=4)
    train(whole, sample_weight=weight)
    kill_at(first, 7)
    with pytest.raises(Killed):
        train(first, sample_weight=weight, run_dir=tmp_path)
    with pytest.raises(CheckpointError, match="train_weight"):
        train(build(), sample_weight=2 * weight + 1, run_dir=tmp_path)
    train(second, sample_weight=weight, run_dir=tmp_path)
    assert_same(whole, second)


def test_weights_that_mean_nothing() -> None:
    count = len(TASK.train)
    for weight, message in (
        ([1.0, 2.0], rf"one number for each of the {count} samples of split .* got shape \(2,\)"),
        ([-1.0] * count, "sample_weight must be finite and not negative"),
        ([float("nan")] * count, "sample_weight must be finite and not negative"),
        ([0.0] * count, "not all of them zero"),
    ):
        with pytest.raises(InputError, match=message):
            train(build(), sample_weight=weight)
    with pytest.raises(InputError, match="validation_weight was given, but the split"):
        fit(build(), TASK.train, config=CONFIG, validation_weight=[1.0])
