"""Runs for the demo's tests: barely trained models, and records with known numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gemfi.data import TASKS, Role, Split, Task
from gemfi.evaluation import Evaluation, ScoredSplit, evaluate
from gemfi.model import build_model
from gemfi.training import TrainConfig, fit
from gemfi_bench.demo import draw_figures
from gemfi_bench.toys import PLANS, Plan, Run


def train(plan: Plan, task: Task) -> Run:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        options: dict[str, Any] = {"in_features": task.train.x[0].numel(), "width": 16}
        if plan.task == "digits":
            options = {"size": 8, "channels": 4}
        backbone = "convnet" if plan.task == "digits" else "mlp"
        model = build_model(plan.method, backbone, task.num_classes, config=plan.config, **options)
    config = TrainConfig(epochs=1, batch_size=128, learning_rate=5e-3)
    fit(model, task.train, task.validation, config, progress=False)
    return Run(plan, task, model, evaluate(model, task.test, task.ood_test), 1.25)


@pytest.fixture(scope="session")
def runs() -> list[Run]:
    """Every plan of the demo, small."""
    tasks = {
        "digits": TASKS["digits"](),
        "two-moons": TASKS["two-moons"](n=200),
        "line": TASKS["line"](n=200),
    }
    return [train(plan, tasks[plan.task]) for plan in PLANS]


@pytest.fixture(scope="session")
def figures(runs: list[Run]) -> dict[str, bytes]:
    """The figures of `runs`."""
    return draw_figures(runs)


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """A run with given numbers and no model.

    `ood` maps a set to its aleatoric AUROC, epistemic AUROC and epistemic AUPR (ID positive); the
    aleatoric AUPR is 1 below the last.
    """

    def make(
        task: str,
        method: str,
        classification: tuple[float, float, float],
        ood: dict[str, tuple[float, float, float]],
        seconds: float = 1.0,
    ) -> Run:
        names = ("accuracy", "ece", "brier")
        evaluation = Evaluation(
            method=method,
            scores={},
            classification=dict(zip(names, classification, strict=True)),
            ood={
                name: {
                    "aleatoric": {"auroc": first, "aupr_id": third - 1},
                    "epistemic": {"auroc": second, "aupr_id": third},
                }
                for name, (first, second, third) in ood.items()
            },
            detectors={},
            split=Split(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), Role.TEST, "none"),
            ood_splits={},
            scored=ScoredSplit({}, {}, None, None),
            ood_scored={},
        )
        nothing: Any = None
        return Run(Plan(task, method), nothing, nothing, evaluation, seconds)

    return make
