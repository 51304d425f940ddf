"""Several processes over gloo: the gradients, statistics and answers of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, multiprocessing

from gemfi.data import two_moons
from gemfi.methods import METHODS
from gemfi.model import Model, build_model
from gemfi.randomness import forked_generator
from gemfi.training import TrainConfig, fit

TASK = two_moons(n=120)
# SGD: Adam blows rounding up where a gradient is zero, as that of a bias before batch norm is;
# a seed with which no hidden unit stands so near the kink of its ReLU that rounding decides
CONFIG = TrainConfig(
    epochs=2, batch_size=30, learning_rate=0.05, optimizer="sgd", select="best", seed=1
)


def build(method: str) -> Model:
    with forked_generator(0):
        backbone = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8))
        return build_model(method, backbone, 2, num_features=8)


def train(method: str, run_dir: Path | None = None) -> tuple[Model, Any]:
    model = build(method)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    result = fit(model, TASK.train, TASK.validation, CONFIG, progress=False, run_dir=run_dir)
    return model, result


def work(rank: int, folder: str, methods: list[str]) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    for method in methods:
        model, result = train(method, Path(folder) / "runs" / method)
        saved = {
            "weights": model.state_dict(),
            "history": result.history,
            "probs": model.predict(TASK.test).probs(),
        }
        torch.save(saved, Path(folder) / f"{method}-{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every method, trained in two processes."""
    folder = tmp_path_factory.mktemp("processes")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    multiprocessing.spawn(work, (str(folder), EXACT), nprocs=2)
    return folder


EXACT = [name for name in METHODS if name != "mc-dropout"]  # its processes draw masks of their own


@pytest.mark.parametrize("method", EXACT)
def test_two_processes_train_what_one_trains(outcome: Path, method: str) -> None:
    model, result = train(method)
    expected = model.state_dict()
    for rank in range(2):
        saved = torch.load(outcome / f"{method}-{rank}.pt")
        for name, value in saved["weights"].items():
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
        for mine, theirs in zip(result.history, saved["history"], strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
            assert mine["validation_nll"] == pytest.approx(theirs["validation_nll"], rel=1e-4)
        torch.testing.assert_close(
            saved["probs"], model.predict(TASK.test).probs(), rtol=1e-3, atol=1e-5
        )


def test_one_process_writes(outcome: Path) -> None:
    folder = outcome / "runs" / "gem-fi"
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock",
        "checkpoint.safetensors",
        "log.jsonl",
    ]
