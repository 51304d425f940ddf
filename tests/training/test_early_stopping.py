"""The best epoch is the one that is kept, patience ends a run, and both survive a kill."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gemfi._config import from_plain, to_plain, with_settings
from gemfi.data import Split, as_split, two_moons
from gemfi.errors import InputError
from gemfi.model import Model, build_model
from gemfi.runs import RunSpec
from gemfi.training import FitResult, TrainConfig, fit
from gemfi.training.run_dir import LOG
from support.runs import Killed, assert_same, kill_at, timeless

TASK = two_moons(n=120)
STEPS = 4  # of an epoch
CONFIG = TrainConfig(
    epochs=9, batch_size=32, learning_rate=0.015, schedule="constant", select="best", patience=2
)


def build(name: str = "softmax", seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return build_model(name, "mlp", 2, in_features=2, width=8, depth=1, dropout=0.1)


def noisy() -> Split:
    """Validation data whose NLL falls and rises again: a third of the labels are flipped."""
    labels = TASK.validation.labels.clone()
    labels[::3] = 1 - labels[::3]
    return as_split(TASK.validation.x, labels, role="validation")


def train(model: Model, config: TrainConfig = CONFIG, **more: Any) -> FitResult:
    return fit(model, TASK.train, noisy(), config, progress=False, **more)


def test_the_weights_are_those_of_the_best_epoch() -> None:
    model, shorter = build(), build()
    result = train(model)
    nlls = [record["validation_nll"] for record in result.history]
    assert result.best_epoch == min(range(len(nlls)), key=nlls.__getitem__)
    assert 0 < result.best_epoch < len(nlls) - 1
    train(shorter, replace(CONFIG, epochs=result.best_epoch + 1, select="last", patience=None))
    assert_same(model, shorter)


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_patience_counts_epochs_since_the_best(patience: int) -> None:
    result = train(build(), replace(CONFIG, patience=patience, epochs=40))
    assert result.best_epoch is not None
    assert len(result.history) == result.best_epoch + 1 + patience < 40
    assert result.steps == STEPS * len(result.history)
    (note,) = (each for each in result.notes if "stopped" in each)
    assert note == (
        f"training stopped after {len(result.history)} of 40 epochs: validation NLL was best after "
        f"{result.best_epoch + 1}, and that epoch is kept"
    )


def test_patience_that_is_never_lost_changes_nothing() -> None:
    one, other = build(), build()
    with_it = train(one, replace(CONFIG, patience=9))
    without = train(other, replace(CONFIG, patience=None))
    assert_same(one, other)
    assert timeless(with_it.history) == timeless(without.history)
    assert with_it.notes == without.notes


@pytest.mark.parametrize("every", [None, 3])
def test_a_killed_run_stops_where_the_whole_one_does(tmp_path: Path, every: int | None) -> None:
    config = replace(CONFIG, checkpoint_steps=every)
    whole = build("gem-fi")
    expected = train(whole, config, run_dir=tmp_path / "whole")
    assert 2 < len(expected.history) < CONFIG.epochs
    for step in range(0, expected.steps, 3):
        first, second = build("gem-fi"), build("gem-fi", seed=7)
        kill_at(first, step)
        with pytest.raises(Killed):
            train(first, config, run_dir=tmp_path / str(step))
        result = train(second, config, run_dir=tmp_path / str(step))
        assert_same(whole, second)
        assert (result.steps, result.best_epoch) == (expected.steps, expected.best_epoch)
        assert timeless(result.history) == timeless(expected.history)
        assert result.notes == expected.notes


def test_a_run_that_stopped_early_is_returned_at_once(tmp_path: Path) -> None:
    one, other = build(), build(seed=5)
    first = train(one, run_dir=tmp_path)
    kill_at(other, 0)
    second = train(other, run_dir=tmp_path)
    assert_same(one, other)
    assert second.steps == first.steps < STEPS * CONFIG.epochs
    assert second.resumed_at == first.steps


def test_members_of_an_ensemble_stop_each_for_itself(tmp_path: Path) -> None:
    config = replace(CONFIG, epochs=12, patience=1)
    model, again = build("ensemble"), build("ensemble", seed=3)
    result = train(model, config, run_dir=tmp_path)
    folders = sorted(tmp_path.glob("member-*"))
    lengths = [
        sum("loss" in json.loads(line) for line in (folder / LOG).read_text().splitlines())
        for folder in folders
    ]
    assert len(set(lengths)) > 1
    assert len(result.history) == max(lengths) < 12
    repeated = train(again, config, run_dir=tmp_path)
    assert_same(model, again)
    assert timeless(repeated.history) == timeless(result.history)


def test_an_epoch_has_its_own_seconds(tmp_path: Path) -> None:
    config = TrainConfig(epochs=6, batch_size=32)
    first = build()
    kill_at(first, 9)
    with pytest.raises(Killed):
        train(first, config, run_dir=tmp_path)
    result = train(build(), config, run_dir=tmp_path)
    seconds = [record["seconds"] for record in result.history]
    assert min(seconds) > 0
    assert sum(seconds) < result.seconds + 0.001 * len(seconds)  # cumulated ones would be more


def test_patience_needs_the_best_epoch() -> None:
    with pytest.raises(
        InputError, match='patience counts epochs since the best: set select="best"'
    ):
        TrainConfig(patience=3)
    with pytest.raises(InputError, match="patience must be an integer of at least 1, got 0"):
        TrainConfig(select="best", patience=0)
    with pytest.raises(InputError, match='select="best" needs validation data'):
        fit(build(), TASK.train, config=CONFIG)


def test_records_without_patience_keep_their_keys() -> None:
    plain = to_plain(TrainConfig())
    assert "patience" not in plain  # so that kept records of the benchmark are found by their keys
    assert from_plain(TrainConfig, plain, "train") == TrainConfig()
    assert to_plain(CONFIG)["patience"] == 2
    spec = RunSpec("digits", "softmax", "mlp", {"in_features": 64}, train=CONFIG)
    assert RunSpec.from_plain(spec.to_plain()) == spec
    assert with_settings(CONFIG, ["patience=none"], "--train").patience is None
