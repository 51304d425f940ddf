"""How long heads take on the features of a frozen network: seconds a phase, and what dominates.

The features are the real ones of `cifar10-frozen`: 45,000 training and 2,500 validation images
through a pretrained EfficientNet-Lite0, 1280 numbers each. They are read from the data folder, or
extracted once. One epoch of the backbone's forward pass, which every epoch would cost if the
features were not kept, is timed on a few hundred images and scaled up. Wall time and the time of
all processors are both shown: on a busy machine only the second says what an idle one would need.

    GEMFI_DATA=... python benchmarks/frozen_speed.py --epochs 5 --json frozen-speed.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from gemfi._environment import environment
from gemfi.data import TASKS, Split, Task, registered_task
from gemfi.model import Model, build_model
from gemfi.outliers import OutlierConfig
from gemfi.training import TrainConfig, fit
from gemfi_bench.frozen import frozen_features

IMAGES = 512  # through the backbone, to time it
PROFILED = 50  # steps


@dataclass(frozen=True)
class Phase:
    """What a part of the work took.

    Attributes:
        name: of the part.
        wall: seconds on the clock.
        processor: seconds of all cores together.
    """

    name: str
    wall: float
    processor: float


class Timer:
    """Phases in the order in which they were run."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block."""
        wall, processor = time.perf_counter(), time.process_time()
        yield
        spent = time.perf_counter() - wall, time.process_time() - processor
        self.phases.append(Phase(name, *spent))


def heads(train: Split, method: str) -> Model:
    """A head directly on features; its scrambled inputs are left out, as of a frozen backbone."""
    torch.manual_seed(0)
    return build_model(method, "identity", train.num_classes or 0, in_features=train.x.shape[1])


def outliers(model: Model) -> OutlierConfig | None:
    """As `fit` chooses them for a frozen backbone."""
    wanted = model.head.outliers
    return None if wanted.is_none else OutlierConfig(**{**asdict(wanted), "scrambled": 0.0})


def train_timed(timer: Timer, task: Task, method: str, config: TrainConfig) -> Model:
    """`fit`, with the end of training and the statistics apart."""
    model = heads(task.train, method)
    whole = model.head.fit_statistics

    def statistics(*given: Any) -> list[str]:
        with timer.phase("statistics: density, ranges"):
            return whole(*given)

    model.head.fit_statistics = statistics  # type: ignore[method-assign,assignment]
    with timer.phase("fit, all of it"):
        fit(model, task.train, task.validation, config, outliers=outliers(model), progress=False)
    model.head.fit_statistics = whole  # type: ignore[method-assign]
    inner, outer = timer.phases[-2:]
    name = f"training, {config.epochs} epochs with validation"
    apart = Phase(name, outer.wall - inner.wall, outer.processor - inner.processor)
    timer.phases.insert(-2, apart)
    return model


def time_backbone(timer: Timer, count: int, threads: int) -> Phase:
    """One epoch of the network's forward pass, from a few hundred images."""
    images = registered_task("cifar10").train.x[:IMAGES]
    frozen_features(images[:32], keep=False, progress=False)  # what is loaded lazily is loaded
    before = Timer()
    with before.phase("sample"):
        frozen_features(images, keep=False, progress=False)
    (sample,) = before.phases
    scale = count / len(images)
    name = f"the backbone's forward, {count:,} images (from {len(images)}, {threads} threads)"
    found = Phase(name, scale * sample.wall, scale * sample.processor)
    timer.phases.append(found)
    return found


def profiled(task: Task, method: str, config: TrainConfig) -> list[tuple[str, float]]:
    """The operations of a few steps that take most, with their share of the processor time."""
    part = task.train.subset(range(min(len(task.train), PROFILED * config.samples_a_step)))
    model = heads(part, method)
    model.head.fit_statistics = lambda *_: []  # type: ignore[method-assign]
    once = TrainConfig(epochs=1, batch_size=config.batch_size)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        fit(model, part, None, once, outliers=outliers(model), progress=False)
    rows = recorded.key_averages()
    total = sum(row.self_cpu_time_total for row in rows)
    largest = sorted(rows, key=lambda row: -row.self_cpu_time_total)[:10]
    return [(row.key, row.self_cpu_time_total / total) for row in largest]


def show(timer: Timer, backbone: Phase) -> None:
    """Print the phases as Markdown."""
    print("| phase | seconds | processor seconds | of an epoch of the backbone |")
    print("|---|---|---|---|")
    for phase in timer.phases:
        share = phase.processor / backbone.processor
        print(f"| {phase.name} | {phase.wall:.1f} | {phase.processor:.1f} | {share:.3f} |")


def timed(timer: Timer, name: str, work: Callable[[], Any]) -> None:
    """One phase that is one call."""
    with timer.phase(name):
        work()


def main() -> int:
    """Run all phases and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--method", default="gem-fi")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = TrainConfig(epochs=arguments.epochs, batch_size=arguments.batch_size)
    timer, task = Timer(), TASKS["cifar10-frozen"]()
    timed(
        timer, "reading the features of train and validation", lambda: (task.train, task.validation)
    )
    model = train_timed(timer, task, arguments.method, config)
    timed(timer, "prediction of 2,500 features", lambda: model.predict(task.validation))
    backbone = time_backbone(timer, len(task.train), arguments.threads)
    print(f"{arguments.method} on {tuple(task.train.x.shape)}, {arguments.threads} threads\n")
    show(timer, backbone)
    print("\nof the processor time of training steps:")
    largest = profiled(task, arguments.method, config)
    for name, share in largest:
        print(f"  {share:6.1%}  {name}")
    if arguments.json is not None:
        record = {
            "method": arguments.method,
            "epochs": arguments.epochs,
            "batch_size": arguments.batch_size,
            "environment": asdict(environment()),
            "phases": [asdict(phase) for phase in timer.phases],
            "profile": largest,
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
