"""Small runs that several tests look at."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gemfi.data import Split, Task, two_moons
from gemfi.runs import Run, RunSpec, evaluate_run, train_run
from gemfi.runs.folder import RECORD
from gemfi.training import TrainConfig
from gemfi.training.run_dir import CHECKPOINT

STEPS = 24  # 3 epochs of 1,000 samples by 128

TOY = {"backbone": "mlp", "backbone_options": {"in_features": 2, "width": 16, "depth": 1}}


def toy_spec(method: str = "gem-fi", **train: object) -> RunSpec:
    """A run on two moons that takes a tenth of a second."""
    config = TrainConfig(**{"epochs": 3, "batch_size": 128, **train})  # type: ignore[arg-type]
    return RunSpec(task="two-moons", method=method, train=config, **TOY)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was trained and evaluated; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train_run(toy_spec(), folder, progress=False)
    evaluate_run(folder)
    return folder


@pytest.fixture(scope="session")
def five(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """EDL with seeds 0 to 2 and GEM-FI with seeds 0 and 1, evaluated."""
    root = tmp_path_factory.mktemp("five")
    wanted = [("edl", 0), ("edl", 1), ("edl", 2), ("gem-fi", 0), ("gem-fi", 1)]
    for method, seed in wanted:
        spec = toy_spec(method, seed=seed, epochs=1)
        train_run(spec, root / f"{method}-{seed}", progress=False)
    return [evaluate_run(root / f"{method}-{seed}") for method, seed in wanted]


def untouchable(name: str) -> Callable[[], Split]:
    def source() -> Split:
        raise AssertionError(f"{name} was read")

    return source


def task_with(**sources: Any) -> Task:
    """Two moons with some sources replaced."""
    moons = two_moons()
    given: dict[str, Any] = {
        "train": moons.train,
        "validation": moons.validation,
        "calibration": moons.calibration,
        "test": moons.test,
        "ood_validation": dict(moons.ood_validation),
        "ood_test": dict(moons.ood_test),
    }
    return Task("two-moons", moons.class_names, **(given | sources))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same_checkpoint(one: Path, two: Path) -> None:
    first, second = load_file(one / CHECKPOINT), load_file(two / CHECKPOINT)
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change run.json."""
    record = json.loads((folder / RECORD).read_text())
    change(record)
    (folder / RECORD).write_text(json.dumps(record))


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to spoil."""
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"
