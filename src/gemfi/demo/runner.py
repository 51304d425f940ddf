"""What `gemfi demo` trains and measures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from gemfi.data import TASKS, Task
from gemfi.errors import InputError
from gemfi.evaluation import Evaluation, evaluate
from gemfi.methods import PRESETS
from gemfi.model import Model, build_model
from gemfi.spectral import Spectral
from gemfi.training import TrainConfig, fit

# On toys the features of the perceptron grow with the distance from the data; unit norm would
# forget that distance, so the density looks at the raw features. Chosen on ood-validation.
TOY_GEM = replace(PRESETS["gem-fi"], density_space="raw", rho_floor=1e-6)


@dataclass(frozen=True)
class Plan:
    """One model of the demo.

    Attributes:
        task: a name in `TASKS`.
        method: a name in `METHODS`.
        config: the method's configuration, None for its default.
    """

    task: str
    method: str
    config: Any = None


@dataclass(frozen=True)
class Run:
    """A trained model of the demo with its numbers."""

    plan: Plan
    task: Task
    model: Model
    evaluation: Evaluation
    seconds: float

    def rows(self) -> list[dict[str, Any]]:
        """A record for each OOD set."""
        common = {"dataset": self.plan.task, "seconds": round(self.seconds, 3)}
        return [self.evaluation.row(ood) | common for ood in self.task.ood_test]


PLANS = (
    *(Plan("digits", name) for name in ("softmax", "edl", "gem-core", "gem-mix", "gem-fi")),
    *(Plan(task, "edl") for task in ("two-moons", "line")),
    *(Plan(task, "gem-fi", TOY_GEM) for task in ("two-moons", "line")),
)


def run_demo(
    seed: int, *, quick: bool, progress: bool | None = None, started: Callable[[Plan], None]
) -> list[Run]:
    """Train and evaluate every plan.

    Args:
        seed: of initial weights and training.
        quick: smaller networks and fewer epochs, for a look within seconds.
        progress: as in `fit`.
        started: called before each plan.
    """
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}")
    tasks = {name: TASKS[name]() for name in dict.fromkeys(plan.task for plan in PLANS)}
    runs = []
    for plan in PLANS:
        started(plan)
        runs.append(_run(plan, tasks[plan.task], seed, quick=quick, progress=progress))
    return runs


def _run(plan: Plan, task: Task, seed: int, *, quick: bool, progress: bool | None) -> Run:
    begin = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _build(plan, task, quick=quick)
    epochs = {"digits": (20, 8), "two-moons": (40, 10), "line": (60, 15)}[plan.task][quick]
    rate, size = (5e-3, 32) if plan.task == "digits" else (2e-3, 64)
    config = TrainConfig(epochs=epochs, batch_size=size, learning_rate=rate, seed=seed)
    label = f"{plan.method} on {plan.task}"
    fit(model, task.train, task.validation, config, progress=progress, label=label)
    evaluation = evaluate(model, task.test, task.ood_test)
    return Run(plan, task, model, evaluation, time.perf_counter() - begin)


def _build(plan: Plan, task: Task, *, quick: bool) -> Model:
    spectral = Spectral(bound=3.0)
    if plan.task == "digits":
        options: dict[str, Any] = {"size": 8, "channels": 16 if quick else 32}
        backbone = "convnet"
    else:
        options = {"in_features": task.train.x.shape[1], "width": 64}
        backbone = "mlp"
    return build_model(
        plan.method,
        backbone,
        task.num_classes,
        config=plan.config,
        spectral=spectral,
        **options,
    )
