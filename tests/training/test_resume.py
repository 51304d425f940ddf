"""Resuming elsewhere: with other threads, saved more often, after a full disk."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gemfi.data import two_moons
from gemfi.errors import WriteError
from gemfi.model import Model, build_model
from gemfi.training import TrainConfig, fit
from gemfi.training.checkpoint import Checkpoint
from gemfi.training.run_dir import CHECKPOINT, LOCK, LOG, RunLog
from support.disks import full_disk
from support.runs import Killed, kill_at

TASK = two_moons(n=120)
CONFIG = TrainConfig(epochs=3, batch_size=32, checkpoint_steps=1)  # of 4 steps each


def build(method: str = "gem-fi") -> Model:
    torch.manual_seed(0)
    return build_model(method, "mlp", 2, in_features=2, width=8, depth=1, dropout=0.1)


def train(
    folder: Path, until: int | None = None, config: TrainConfig = CONFIG, method: str = "gem-fi"
) -> Any:
    """Train, and die at a step."""
    model = build(method)
    for part in model.members() or [model]:
        kill_at(part, until)
    return fit(model, TASK.train, TASK.validation, config, run_dir=folder, progress=False)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def kill(folder: Path, until: int, count: int, **more: Any) -> None:
    with threads(count), pytest.raises(Killed):
        train(folder, until, **more)


def test_other_threads_are_warned_about_and_noted(tmp_path: Path) -> None:
    kill(tmp_path, 5, 1)
    with pytest.warns(UserWarning, match="saved by a run with 1 thread, and it goes on with 2 thr"):
        kill(tmp_path, 7, 2)
    assert Checkpoint.load_state(tmp_path / CHECKPOINT).threads == 2
    with pytest.warns(UserWarning, match=r"2 threads, and .* 1 thread: .* OMP_NUM_THREADS=2"):
        kill(tmp_path, 9, 1)
    with threads(1):
        result = train(tmp_path)
        again = train(tmp_path)
    neither = "the weights are not bit for bit those of a run with either"
    assert result.notes[:2] == [
        f"1 thread up to step 5 and 2 threads from there: {neither}",
        f"2 threads up to step 7 and 1 thread from there: {neither}",
    ]
    assert len(set(result.notes)) == len(result.notes)
    assert again.notes == result.notes


def test_the_same_threads_and_a_finished_run_are_not(tmp_path: Path) -> None:
    kill(tmp_path, 5, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with threads(1):
            train(tmp_path)
        with threads(2):
            result = train(tmp_path)
    assert not [note for note in result.notes if "thread" in note]


def test_a_run_that_had_done_nothing_is_not(tmp_path: Path) -> None:
    kill(tmp_path, 0, 1)
    with threads(2), warnings.catch_warnings():
        warnings.simplefilter("error")
        train(tmp_path)
    assert Checkpoint.load_state(tmp_path / CHECKPOINT).threads == 2


def test_an_ensemble_whose_members_have_begun_is(tmp_path: Path) -> None:
    kill(tmp_path, 5, 1, method="ensemble")
    with threads(2), pytest.warns(UserWarning, match="saved by a run with 1 thread") as warned:
        result = train(tmp_path, method="ensemble")
    assert {str(each.message).split()[0] for each in warned} == {
        str(tmp_path / CHECKPOINT),
        str(tmp_path / "member-0" / CHECKPOINT),
    }
    assert result.notes[0].startswith("1 thread up to step 0 and 2 threads from there")


def test_how_often_a_run_is_saved_is_no_part_of_it(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    train(whole)
    folder = tmp_path / "other"
    with pytest.raises(Killed):
        train(folder, 7, replace(CONFIG, checkpoint_steps=None))
    assert Checkpoint.load_state(folder / CHECKPOINT).step == 4
    with pytest.raises(Killed):
        train(folder, 11, replace(CONFIG, checkpoint_steps=3))
    assert Checkpoint.load_state(folder / CHECKPOINT).step == 9
    train(folder)
    expected, found = (load_tensors(each) for each in (whole, folder))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    model = build()
    fit(model, TASK.train, TASK.validation, CONFIG, run_dir=folder, progress=False)
    return model.state_dict()


def test_a_full_disk_names_the_checkpoint_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    kill(tmp_path, 5, 1)
    size = (tmp_path / CHECKPOINT).stat().st_size
    with threads(1):
        with (
            full_disk(size // 2),
            pytest.raises(WriteError, match=rf"cannot write .*/{CHECKPOINT}: .*; make room there"),
        ):
            train(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([CHECKPOINT, LOCK, LOG])
        assert train(tmp_path).resumed_at == 5


def test_a_full_disk_names_the_log_and_costs_one_line(tmp_path: Path) -> None:
    kill(tmp_path, 5, 1)
    path = tmp_path / LOG
    whole = path.read_bytes()
    log = RunLog(path)
    log.rewind(5, finished=False)
    with full_disk(len(whole) + 9), pytest.raises(WriteError, match=f"cannot write {path}: "):
        log.write(**log.records[0])
    assert path.read_bytes() == whole + whole[:9]
    log.rewind(5, finished=False)
    assert path.read_bytes() == whole
