"""Small runs that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemfi.runs import Run, RunSpec, evaluate_run, train_run
from gemfi.training import TrainConfig

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
