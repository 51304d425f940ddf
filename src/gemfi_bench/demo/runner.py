"""What `gemfi demo` trains and measures."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from gemfi._config import to_plain
from gemfi.data import TASKS, Task
from gemfi.evaluation import Evaluation, evaluate
from gemfi.methods import PRESETS
from gemfi.model import Model
from gemfi.runs.spec import RunSpec
from gemfi.spectral import SOFT
from gemfi.training import TrainConfig, fit

# On toys the features of the perceptron grow with the distance from the data; unit norm would
# forget that distance, so the density looks at the raw features, and the evidence of linear heads
# would grow with it, so they look at unit ones. Chosen on ood-validation.
TOY_GEM = replace(PRESETS["gem-fi"], feature_space="unit", density_space="raw", rho_floor=1e-6)


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
    *(Plan(task, name) for name in ("edl", "daedl") for task in ("two-moons", "line")),
    *(Plan(task, "gem-fi", TOY_GEM) for task in ("two-moons", "line")),
)

# On the line the rate rises first (one-cycle). At its largest from the first step on, EDL and
# GEM-FI settle before they have seen the narrow interval of class 1 on the left, and never learn
# it: 73 % in place of 91 %, EDL with some seeds even after 60 epochs.
_TRAINING = {  # (data set, quick) -> how to train every method on it
    ("digits", False): TrainConfig(epochs=20, batch_size=32, learning_rate=5e-3),
    ("digits", True): TrainConfig(epochs=7, batch_size=64, learning_rate=1e-2),
    ("two-moons", False): TrainConfig(epochs=40, batch_size=64, learning_rate=2e-3),
    ("two-moons", True): TrainConfig(epochs=4, batch_size=64, learning_rate=1e-2),
    ("line", False): TrainConfig(
        epochs=60, batch_size=64, learning_rate=2e-3, schedule="one-cycle"
    ),
    ("line", True): TrainConfig(epochs=18, batch_size=64, learning_rate=5e-3, schedule="one-cycle"),
}


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
        workers: processes that train at the same time; the numbers do not depend on it.
        finished: called when a plan is done.
    """
    TrainConfig(seed=seed)  # says what is wrong with a seed that is out of range
    jobs = [(plan, seed, quick) for plan in PLANS]
    if workers == 1:
        with _one_thread():
            return [_announced(_run(*job), finished) for job in jobs]
    method = "fork" if sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(method)
    runs = {}
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,)) as pool:
        # the heaviest come last in PLANS: begin with them, so that the processes end together
        waiting = {pool.submit(_run_packed, *job): job[0] for job in reversed(jobs)}
        try:
            for future in as_completed(waiting):
                run = pickle.loads(future.result())  # noqa: S301 - from our own process
                runs[waiting[future]] = _announced(run, finished)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C: do not begin the rest
            raise
    return [runs[plan] for plan in PLANS]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tensors this small lose more to threads than they gain, and sums depend on their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _announced(run: Run, finished: Callable[[Plan], None]) -> Run:
    finished(run.plan)
    return run


def _run_packed(plan: Plan, seed: int, quick: bool) -> bytes:
    """As bytes, so that tensors come back by value and not through shared memory."""
    return pickle.dumps(_run(plan, seed, quick))


def _run(plan: Plan, seed: int, quick: bool) -> Run:
    task = _task(plan.task)
    begin = time.perf_counter()
    spec = spec_of(plan, seed, quick=quick)
    model = spec.build(task.num_classes, None)
    fit(model, task.train, task.validation, spec.train, progress=False)
    return judged(plan, model, begin)


def judged(plan: Plan, model: Model, begin: float | None = None) -> Run:
    """A trained model with its numbers on test and OOD data.

    Args:
        plan: what it is.
        model: trained.
        begin: on the clock of `time.perf_counter`, when its training began; None for now.
    """
    task = _task(plan.task)
    begin = time.perf_counter() if begin is None else begin
    evaluation = evaluate(model, task.test, task.ood_test)
    return Run(plan, task, model, evaluation, time.perf_counter() - begin)


def spec_of(plan: Plan, seed: int, *, quick: bool) -> RunSpec:
    """Everything that decides what a plan computes.

    Args:
        plan: what to train.
        seed: of initial weights and training.
        quick: fewer epochs.
    """
    if plan.task == "digits":
        backbone: str = "convnet"
        options: dict[str, Any] = {"size": 8, "channels": 24 if quick else 32}
    else:
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


@cache
def _task(name: str) -> Task:
    return TASKS[name]()
