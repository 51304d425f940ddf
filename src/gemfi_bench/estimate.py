"""How long a grid will take: from the records where they know, else by timing a few real steps."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import torch
from tqdm import tqdm

from gemfi._config import to_plain
from gemfi.data import Task
from gemfi.detectors import DETECTORS, detector_names
from gemfi.detectors.base import BATCH
from gemfi.methods.base import DataFacts
from gemfi.runs import RunSpec
from gemfi.training.run_data import batches_per_epoch
from gemfi_bench.grid import Cell
from gemfi_bench.observation import BANK, observed_arrays
from gemfi_bench.overhead import Subject
from gemfi_bench.record_file import RunRecord
from gemfi_bench.runner import Bench

_STEPS: Final = 3  # timed at most, after one that warms up
_ENOUGH: Final = 2.0  # seconds after which nothing is timed again
_GRADIENT: Final = 3  # passes that a detector's gradient through the model is worth
_ANY: Final = "any method"

Kind = tuple[bool, bool, bool, int]
"""What an evaluation consists of: brief, on corrupted data, with detectors, members."""


@dataclass(frozen=True)
class Estimate:
    """What is to be done, and how long it takes.

    Attributes:
        cells: each with its seconds.
    """

    cells: tuple[tuple[Cell, float], ...]

    @property
    def total_seconds(self) -> float:
        """Of all the cells, one after the other."""
        return sum(seconds for _, seconds in self.cells)


def estimate(
    bench: Bench, cells: Sequence[Cell] | None = None, *, progress: bool | None = False
) -> Estimate:
    """The time that a bench needs in this process; nothing is written.

    Args:
        bench: whose data are at hand.
        cells: to be done, each run once; by default all that are missing.
        progress: a bar while steps are timed: yes, no, or (None) if standard error is a terminal.
    """
    jobs = jobs_of(bench, bench.missing() if cells is None else cells)
    recorded, timed = Recorded(bench.file.read().values()), _Timed(bench)
    known = [(recorded.train(job), recorded.evaluate(job)) for job in jobs]
    timed.time(
        [job.cell.spec for job, each in zip(jobs, known, strict=True) if None in each], progress
    )
    found = []
    for job, (train, evaluation) in zip(jobs, known, strict=True):
        seconds = timed.train(job) if train is None else train
        seconds += timed.evaluate(job) if evaluation is None else evaluation
        found.append((job.cell, seconds))
    return Estimate(tuple(found))


class Countdown:
    """What is left of some cells, from the records alone: quick enough to ask after every run.

    Args:
        jobs: of the cells of a grid, done or not.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = {job.cell.key: job for job in jobs}

    def left(self, records: Mapping[str, RunRecord]) -> float | None:
        """Seconds; a method without a record is taken to be as quick as the others are.

        Args:
            records: by key, as `RecordFile.read` returns them; None is returned without any.
        """
        recorded = Recorded(records.values())
        found = [recorded.guess(job) for key, job in self.jobs.items() if key not in records]
        known = [each for each in found if each is not None]
        return sum(known) if len(known) == len(found) else None


@dataclass(frozen=True)
class Job:
    """A cell with what its time depends on.

    Attributes:
        cell: what is run.
        names: of all runs with its configuration, and of all runs of its method and network.
        kind: of its evaluation.
        steps: of its training.
        trainings: 1; of an assembled ensemble, the members that are to be trained again.
    """

    cell: Cell
    names: tuple[str, str]
    kind: Kind
    steps: int
    trainings: int

    @classmethod
    def of(cls, cell: Cell, samples: int, lost: int = 0) -> Job:
        """The job of a cell on so many training samples, with so many members lost."""
        shift = cell.evaluation.get("shift")
        kind = (
            bool(cell.evaluation.get("brief")),
            bool(shift and shift["corruptions"]),
            bool(cell.detectors),
            len(cell.members),
        )
        names, steps = _names(cell.spec.to_plain()), steps_of(cell.spec, samples)
        return cls(cell, names, kind, steps, lost if cell.members else 1)


def jobs_of(bench: Bench, cells: Iterable[Cell]) -> list[Job]:
    """The jobs of cells of a bench."""
    samples, done = len(bench.task.train), bench.done().keys()
    return [Job.of(cell, samples, len(done & bench.untrained(cell).keys())) for cell in cells]


def steps_of(spec: RunSpec, samples: int) -> int:
    """Optimiser steps of a run on so many samples; of an ensemble those of one member."""
    return batches_per_epoch(samples, spec.train.batch_size) * spec.train.epochs


def _names(spec: Mapping[str, Any]) -> tuple[str, str]:
    """A spec by what its speed depends on: with its configuration, and by its method alone."""
    network = [spec["method"], spec["backbone"], spec["backbone_options"]]
    training = [spec["train"][name] for name in ("batch_size", "augmentation", "bf16")]
    method = json.dumps([*network, *training], sort_keys=True)
    return json.dumps([method, spec["head"]], sort_keys=True), method


# -- from the records -----------------------------------------------------------------------------


class Recorded:
    """Seconds of runs that were done: medians over those of the same method and network.

    Training is taken for each step, so that a run of other epochs is of use too. Of the runs of a
    method, those with its very configuration come first.

    Args:
        records: of the bench.
    """

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self.steps: dict[str, list[float]] = {}  # seconds a step
        self.evaluations: dict[tuple[str, Kind], list[float]] = {}
        for record in records:
            self._learn(record)

    def _learn(self, record: RunRecord) -> None:
        kind = (
            record.brief,
            bool(record.numbers.get("shift")),
            bool(record.detectors),
            len(record.members),
        )
        for name in (*_names(record.spec), _ANY):
            self.evaluations.setdefault((name, kind), []).append(record.seconds["evaluate"])
            if not record.members:  # the training of an assembled one is that of its members
                pace = record.seconds["train"] / record.training["steps"]
                self.steps.setdefault(name, []).append(pace)

    def train(self, job: Job, *others: str) -> float | None:
        """Of a job, of an assembled one that of lost members; None where no run is like it."""
        if not job.trainings:
            return 0.0
        members = job.cell.members
        names = _names(members[0].to_plain()) if members else job.names
        pace = _median(self.steps.get(name) for name in (*names, *others))
        return None if pace is None else pace * job.steps * job.trainings

    def evaluate(self, job: Job, *others: str) -> float | None:
        """Of a job; None where no run like it was evaluated on the same sets."""
        return _median(self.evaluations.get((name, job.kind)) for name in (*job.names, *others))

    def guess(self, job: Job) -> float | None:
        """Of a job, by other methods and evaluations if need be; None without any record."""
        train, evaluation = self.train(job, _ANY), self.evaluate(job, _ANY)
        if evaluation is None:
            everything = [each for (name, _), each in self.evaluations.items() if name == _ANY]
            evaluation = _median([[seconds for each in everything for seconds in each]])
        return None if train is None or evaluation is None else train + evaluation


def _median(groups: Iterable[list[float] | None]) -> float | None:
    """Of the first group that there is."""
    for group in groups:
        if group:
            return statistics.median(group)
    return None


# -- by the clock ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pace:
    """What was timed of a spec.

    Attributes:
        step: seconds of a training step.
        observed: seconds an input of an evaluation.
    """

    step: float
    observed: float


class _Timed:
    """Times each distinct spec once, whatever its seed and its learning rate."""

    def __init__(self, bench: Bench) -> None:
        self.task, self.shift = bench.task, bench.protocol.shift
        self.paces: dict[str, Pace] = {}

    def time(self, specs: Iterable[RunSpec], progress: bool | None) -> None:
        distinct = {_identity(spec): spec for spec in specs}
        if not distinct:
            return
        hidden = None if progress is None else not progress
        bar = tqdm(distinct.items(), desc="timing", unit="spec", disable=hidden, leave=False)
        with torch.random.fork_rng(devices=[]):  # dropout draws from torch's own generator
            for identity, spec in bar:
                bar.set_postfix_str(spec.method)
                self.paces[identity] = paced(spec, self.task)

    def train(self, job: Job) -> float:
        share = job.trainings / max(1, len(job.cell.members))  # an ensemble is timed as a whole
        return self.paces[_identity(job.cell.spec)].step * job.steps * share

    def evaluate(self, job: Job) -> float:
        return self.paces[_identity(job.cell.spec)].observed * self._inputs(job)

    def _inputs(self, job: Job) -> int:
        """Inputs that pass through the model; a gradient counts as some passes."""
        brief, shifted, detected, assembled = job.kind
        samples, validation = len(self.task.train), len(self.task.validation)
        bank = min(BANK, samples)
        judged = validation if brief else validation + len(self.task.test) + self._outside
        passed = bank + judged + (self._shifted if shifted else 0)
        if not assembled:  # validation data after each epoch, statistics, and the run's own numbers
            passed += (job.cell.spec.train.epochs + 2) * validation + self._tuned + samples + bank
        if detected:
            wanted = [DETECTORS[name].info for name in detector_names(job.cell.detectors)]
            gradients = sum(info.needs == "inputs" for info in wanted)
            passed += samples + validation + _GRADIENT * gradients * judged
        return passed

    @cached_property
    def _tuned(self) -> int:
        return sum(map(len, self.task.ood_validation.values()))

    @cached_property
    def _outside(self) -> int:
        return self._tuned + sum(map(len, self.task.ood_test.values()))

    @cached_property
    def _shifted(self) -> int:
        copies = len(self.shift.corruptions) * max(1, len(self.shift.severities))
        return copies * min(self.shift.images, len(self.task.test))


def paced(spec: RunSpec, task: Task) -> Pace:
    """Time a few real training steps, and the evaluation of one batch of validation data.

    Args:
        spec: of a run; an ensemble is timed as a whole, all members in one step.
        task: its data.
    """
    model = spec.build(task.num_classes, task.normalisation)
    rows = slice(spec.train.batch_size)
    facts = DataFacts(task.train.class_counts, steps_of(spec, len(task.train)))
    subject = Subject(model, spec, task.train.x[rows], task.train.labels[rows], facts)
    step = _clocked(subject.train)
    batch = task.validation.subset(range(min(BATCH, len(task.validation))))
    bank = torch.randn(min(BANK, len(task.train)), model.head.num_features)
    observed = _clocked(lambda: observed_arrays(model, batch, bank, log_probs=True))
    return Pace(step, observed / len(batch))


def _clocked(act: Callable[[], object]) -> float:
    """Median seconds of an act, warmed up; of a slow one, few are enough."""
    act()
    found: list[float] = []
    while len(found) < _STEPS and sum(found) < _ENOUGH:
        begin = time.perf_counter()
        act()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def _identity(spec: RunSpec) -> str:
    plain: dict[str, Any] = to_plain(spec)
    plain["train"] |= {"seed": None, "learning_rate": None}
    return json.dumps(plain, sort_keys=True)
