"""Roughly how long a grid will take: by the runs on record, else by timing a few real steps.

A method on a network has one pace: seconds of a training step, and seconds of an evaluated input.
Details of its configuration, such as the number of heads, are left aside.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from tqdm import tqdm

from gemfi.data import Task
from gemfi.methods.base import DataFacts
from gemfi.runs import RunSpec
from gemfi.training.run_data import batches_per_epoch
from gemfi_bench.grid import Cell
from gemfi_bench.observation import BANK, observed_arrays
from gemfi_bench.overhead import Subject
from gemfi_bench.record_file import RunRecord
from gemfi_bench.runner import Bench

_REPEATS: Final = 3
_BATCH: Final = 256  # inputs whose evaluation is timed


class Pace(NamedTuple):
    """Seconds of a training step, and of an input in the evaluation."""

    step: float
    input: float


class Job(NamedTuple):
    """A cell with what its time depends on."""

    cell: Cell
    method: str  # its method, its network and its batches
    steps: float  # of training; of an assembled ensemble the share of the members that were lost
    inputs: int  # of all sets that are evaluated

    def seconds(self, pace: Pace) -> float:
        """How long it takes at a pace."""
        return pace.step * self.steps + pace.input * self.inputs


def estimate(
    bench: Bench, cells: Sequence[Cell] | None = None, *, progress: bool | None = False
) -> dict[str, float]:
    """Key of a cell -> the seconds that it needs in this process; nothing is written.

    Args:
        bench: whose data are at hand.
        cells: to be done, each run once; by default all that are missing.
        progress: a bar while steps are timed: yes, no, or (None) if standard error is a terminal.
    """
    jobs = jobs_of(bench, bench.missing() if cells is None else cells)
    paces = recorded_paces(bench.file.read().values())
    unknown = {job.method: job.cell.spec for job in jobs if job.method not in paces}
    hidden = None if progress is None else not progress
    bar = tqdm(unknown.items(), desc="timing", unit="method", disable=hidden, leave=False)
    with torch.random.fork_rng(devices=[]):  # dropout draws from torch's own generator
        for method, spec in bar:
            paces[method] = timed_pace(spec, bench.task)
    return {job.cell.key: job.seconds(paces[job.method]) for job in jobs}


def seconds_left(jobs: Iterable[Job], records: Mapping[str, RunRecord]) -> float | None:
    """Of jobs that have no record yet, from the records alone; None without any.

    A method without a record is taken to be as quick as the others.
    """
    paces = recorded_paces(records.values())
    if not paces:
        return None
    usual = _median(paces.values())
    missing = (job for job in jobs if job.cell.key not in records)
    return sum(job.seconds(paces.get(job.method, usual)) for job in missing)


def jobs_of(bench: Bench, cells: Iterable[Cell]) -> list[Job]:
    """The jobs of cells of a bench."""
    task, shift, done = bench.task, bench.protocol.shift, bench.done().keys()
    tuned = sum(map(len, task.ood_validation.values()))
    tested = len(task.test) + tuned + sum(map(len, task.ood_test.values()))
    copies = len(shift.corruptions) * max(1, len(shift.severities))
    corrupted = copies * min(shift.images, len(task.test))
    jobs = []
    for cell in cells:
        steps: float = steps_of(cell.spec, len(task.train))
        if cell.members:
            steps *= len(done & bench.untrained(cell).keys()) / len(cell.members)
        inputs = len(task.train) + len(task.validation)
        inputs += 0 if cell.evaluation.get("brief") else tested
        inputs += corrupted if cell.evaluation.get("shift") else 0
        jobs.append(Job(cell, _method(cell.spec.to_plain()), steps, inputs))
    return jobs


def steps_of(spec: RunSpec, samples: int) -> int:
    """Optimiser steps of a run on so many samples."""
    return batches_per_epoch(samples, spec.train.samples_a_step) * spec.train.epochs


def _method(spec: Mapping[str, Any]) -> str:
    network = [spec["method"], spec["backbone"], spec["backbone_options"]]
    training = [spec["train"].get(name) for name in ("batch_size", "augmentation", "precision")]
    return json.dumps([*network, *training], sort_keys=True)


def recorded_paces(records: Iterable[RunRecord]) -> dict[str, Pace]:
    """Method, as in `Job` -> the medians of its runs."""
    paces: dict[str, list[Pace]] = {}
    for record in records:
        inputs = sum(facts["n"] for facts in record.data.values())
        step = record.seconds["train"] / record.training["steps"]
        pace = Pace(step, record.seconds["evaluate"] / max(1, inputs))
        paces.setdefault(_method(record.spec), []).append(pace)
    return {method: _median(found) for method, found in paces.items()}


def _median(paces: Iterable[Pace]) -> Pace:
    return Pace(*map(statistics.median, zip(*paces, strict=True)))


def timed_pace(spec: RunSpec, task: Task) -> Pace:
    """Time a few real training steps, and the evaluation of one batch of validation data.

    Args:
        spec: of a run; an ensemble is timed as a whole, all members in one step.
        task: its data.
    """
    model = spec.build(task.num_classes, task.normalisation)
    rows = slice(spec.train.samples_a_step)
    facts = DataFacts(task.train.class_counts, steps_of(spec, len(task.train)))
    subject = Subject(model, spec, task.train.x[rows], task.train.labels[rows], facts)
    batch = task.validation.subset(range(min(_BATCH, len(task.validation))))
    bank = torch.randn(min(BANK, len(task.train)), model.head.num_features)
    step = _seconds(subject.train)
    evaluation = _seconds(lambda: observed_arrays(model, batch, bank, log_probs=True))
    return Pace(step, evaluation / len(batch))


def _seconds(act: Callable[[], object]) -> float:
    """Median seconds of an act, after one that warms up."""
    act()
    spent = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        act()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent)
