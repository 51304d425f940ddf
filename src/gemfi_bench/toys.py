"""The small models of `gemfi demo`: digits, and the toys of the paper's first figures."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch

from gemfi import metrics
from gemfi._config import to_plain
from gemfi._files import hold_lock
from gemfi.data import TASKS, Task
from gemfi.evaluation import Evaluation, evaluate
from gemfi.methods import PRESETS
from gemfi.model import Model
from gemfi.runs import Run as TrainedRun
from gemfi.runs import RunSpec, train_run
from gemfi.runs.folder import is_finished
from gemfi.scores import Score
from gemfi.spectral import SOFT
from gemfi.training import TrainConfig, fit
from gemfi_bench.runner import RUNS
from gemfi_bench.unavailable import Unavailable

DIGITS, MOONS, LINE = "digits", "two-moons", "line"

# On toys the features of the perceptron grow with the distance from the data; unit norm would
# forget that distance, so the density looks at the raw features, and the evidence of linear heads
# would grow with it, so they look at unit ones. Chosen on ood-validation.
TOY_GEM: Final = replace(
    PRESETS["gem-fi"], feature_space="unit", density_space="raw", rho_floor=1e-6
)

# On the line the rate rises first (one-cycle). At its largest from the first step on, EDL and
# GEM-FI settle before they have seen the narrow interval of class 1 on the left, and never learn
# it: 73 % in place of 91 %, EDL with some seeds even after 60 epochs.
_TRAINING: Final = {  # (data set, quick) -> how to train every method on it
    (DIGITS, False): TrainConfig(epochs=20, batch_size=32, learning_rate=5e-3),
    (DIGITS, True): TrainConfig(epochs=7, batch_size=64, learning_rate=1e-2),
    (MOONS, False): TrainConfig(epochs=40, batch_size=64, learning_rate=2e-3),
    (MOONS, True): TrainConfig(epochs=4, batch_size=64, learning_rate=1e-2),
    (LINE, False): TrainConfig(epochs=60, batch_size=64, learning_rate=2e-3, schedule="one-cycle"),
    (LINE, True): TrainConfig(epochs=18, batch_size=64, learning_rate=5e-3, schedule="one-cycle"),
}
_LOCK: Final = ".toys.lock"


@dataclass(frozen=True)
class Plan:
    """A model to train: a task, a method, and its configuration (None for the default)."""

    task: str
    method: str
    config: Any = None


@dataclass(frozen=True)
class Run:
    """A trained model with its numbers."""

    plan: Plan
    task: Task
    model: Model
    evaluation: Evaluation
    seconds: float

    def rows(self) -> list[dict[str, Any]]:
        """A record for each OOD set."""
        common = {"dataset": self.plan.task, "seconds": round(self.seconds, 3)}
        return [self.evaluation.row(ood) | common for ood in self.task.ood_test]


PLANS: Final = (
    *(Plan(DIGITS, method) for method in ("softmax", "edl", "gem-core", "gem-mix", "gem-fi")),
    *(Plan(task, method) for method in ("edl", "daedl") for task in (MOONS, LINE)),
    *(Plan(task, "gem-fi", TOY_GEM) for task in (MOONS, LINE)),
)
PANELS: Final = {MOONS: ("edl", "daedl", "gem-fi"), LINE: ("daedl", "gem-fi")}
"""Task -> methods of the panels of the paper, in its order."""


def spec_of(plan: Plan, seed: int = 0, *, quick: bool = False) -> RunSpec:
    """Everything that decides what a plan computes."""
    backbone, options = "convnet", {"size": 8, "channels": 24 if quick else 32}
    if plan.task != DIGITS:
        backbone = "mlp"
        options = {
            "in_features": _task(plan.task).train.x.shape[1],
            "width": 128 if quick else 64,
            "spectral": to_plain(SOFT),
        }
    return RunSpec(
        task=plan.task,
        method=plan.method,
        backbone=backbone,
        backbone_options=options,
        head=plan.config,
        train=replace(_TRAINING[plan.task, quick], seed=seed),
    )


def evaluated(plan: Plan, model: Model, seconds: float = 0.0) -> Run:
    """A trained model with its numbers on test and OOD data; `seconds` are those of training."""
    begin, task = time.perf_counter(), _task(plan.task)
    evaluation = evaluate(model, task.test, task.ood_test)
    return Run(plan, task, model, evaluation, seconds + time.perf_counter() - begin)


def aurocs(run: Run, score: Score) -> dict[str, str]:
    """The AUROC of each OOD set of a run by any score, with one decimal."""
    inside = score(run.evaluation.belief)
    return {
        name.replace("-", " "): f"{metrics.auroc(inside, score(outside)):.1f}"
        for name, outside in run.evaluation.ood_beliefs.items()
    }


@cache
def _task(name: str) -> Task:
    return TASKS[name]()


# -- the models of the demo -----------------------------------------------------------------------


def run_demo(
    seed: int,
    *,
    quick: bool,
    workers: int = 1,
    finished: Callable[[Plan], None] = lambda _plan: None,
) -> list[Run]:
    """Train and evaluate every plan, in the order of `PLANS`.

    Args:
        seed: of initial weights and training.
        quick: fewer epochs, for a look within seconds.
        workers: processes that train at once; the numbers do not depend on it.
        finished: called when a plan is done.
    """
    TrainConfig(seed=seed)  # says what is wrong with a seed that is out of range
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    runs: dict[Plan, Run] = {}
    # one thread each: tensors this small lose more to threads than they gain, and sums depend on
    # the number of threads
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,)) as pool:
        # the heaviest come last in PLANS: begin with them, so that the processes end together
        plans = {pool.submit(_train, plan, seed, quick): plan for plan in reversed(PLANS)}
        try:
            for future in as_completed(plans):
                plan = plans[future]
                runs[plan] = pickle.loads(future.result())  # noqa: S301 - from our own process
                finished(plan)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C: do not begin the rest
            raise
    return [runs[plan] for plan in PLANS]


def _train(plan: Plan, seed: int, quick: bool) -> bytes:
    """A run as bytes, so that tensors come back by value and not through shared memory."""
    begin, task = time.perf_counter(), _task(plan.task)
    spec = spec_of(plan, seed, quick=quick)
    model = spec.build(task.num_classes, None)
    fit(model, task.train, task.validation, spec.train, progress=False)
    return pickle.dumps(evaluated(plan, model, time.perf_counter() - begin))


# -- the toys of a bench --------------------------------------------------------------------------


def toy_plans(task: str | None = None) -> list[Plan]:
    """The plans of the paper's panels, as the demo has them; of one task, or of all."""
    plans = {(plan.task, plan.method): plan for plan in PLANS}
    tasks = PANELS if task is None else (task,)
    return [plans[name, method] for name in tasks for method in PANELS[name]]


def toy_folder(folder: Path | str, plan: Plan) -> Path:
    """Where a toy of a bench is trained: beside the runs of the bench."""
    return Path(folder) / RUNS / spec_of(plan).name


def train_toys(folder: Path | str, *, progress: bool | None = None) -> None:
    """Train the toys of a bench that are not trained yet; other processes wait meanwhile."""
    with hold_lock(Path(folder) / _LOCK):
        for plan in toy_plans():
            train_run(spec_of(plan), toy_folder(folder, plan), progress=progress)


def trained_toys(folder: Path | str, task: str) -> list[Run]:
    """The toys of a task in a bench's folder; `Unavailable` if one is not trained to its end."""
    plans = toy_plans(task)
    missing = [plan.method for plan in plans if not is_finished(toy_folder(folder, plan))]
    if missing:
        raise Unavailable(f"not trained on {task}: {', '.join(missing)}; gemfi bench trains them")
    models = [TrainedRun.open(toy_folder(folder, plan)).model for plan in plans]
    return [evaluated(plan, model) for plan, model in zip(plans, models, strict=True)]
