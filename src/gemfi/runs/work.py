"""Training a run and judging it: what `gemfi train` and `gemfi evaluate` do."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gemfi._config import to_plain
from gemfi._files import to_json, write_atomically
from gemfi.data import OOD_SETS, Split, Task
from gemfi.detectors import detector_names
from gemfi.diagnosis import Finding, diagnose
from gemfi.runs.folder import (
    METRICS,
    SUMMARY,
    Record,
    Run,
    begin,
    clear,
    read_metrics,
    require_run_folder,
)
from gemfi.runs.measure import fit_detectors, measure
from gemfi.runs.spec import RunSpec, find_task, task_of
from gemfi.runs.summary import markdown
from gemfi.training import fit
from gemfi.training.checks import check_run
from gemfi.training.run_dir import CHECKPOINT, lock_run_dir

_REFERENCE = 5_000  # training inputs to which distances are measured: ranks need no more


def train_run(
    spec: RunSpec,
    folder: Path | str,
    *,
    progress: bool | None = None,
    task: Task | None = None,
    fresh: bool = False,
    started: Callable[[Record], None] = lambda _record: None,
) -> Run:
    """Train, or finish training, and judge by validation data alone.

    Neither test nor OOD test data are read. Called again, a run goes on from its checkpoint; one
    that had finished is opened.

    Args:
        spec: what to run.
        folder: of the run; it is created.
        progress: a progress bar: yes, no, or (None) if standard error is a terminal.
        task: the data, if at hand; otherwise found by the spec's name.
        fresh: delete a run that is in the folder first, once all is checked.
        started: called when all is checked and training begins.
    """
    folder = Path(folder)
    task = find_task(spec.task, spec.own) if task is None else task
    model = spec.build(task.num_classes, task.normalisation)
    check_run(model, task.train, task.validation, None, spec.train)  # before a file is written
    require_run_folder(folder)  # before the lock's file is in it
    with lock_run_dir(folder):
        require_run_folder(folder)
        if fresh:
            clear(folder)
        record = begin(spec, folder, task)
        _drop_orphans(folder)
        started(record)
        result = fit(
            model,
            task.train,
            task.validation,
            spec.train,
            run_dir=folder,
            locked=True,
            progress=progress,
            label=f"{spec.method} on {task.name}",
        )
        run = Run.open(folder)
        known, sections = run.metrics(), {}
        if "validation" not in known:
            absent = _absent_for_tuning(task)
            inside, outside = task.validation, task.ood_validation
            sections["validation"] = measure(run.model, inside, outside, absent)
        if "health" not in known:
            sections["health"] = _health(run, task, result.history)
        if sections:
            _write(run, **sections)
    return run


def evaluate_run(
    run: Run | Path | str,
    task: Task | None = None,
    detectors: Collection[str] = (),
    *,
    progress: bool | None = False,
) -> Run:
    """Judge a finished run on test data, and on every OOD set that is here.

    The training and validation data are read too, to see that they are those of the run, and to
    fit detectors.

    Args:
        run: a finished run, or its folder.
        task: the data, if at hand; otherwise found by the run's name for it.
        detectors: names in `DETECTORS`, or `all` for those that suit the model.
        progress: a bar for the detectors: yes, no, or (None) if standard error is a terminal.
    """
    detector_names(detectors)  # unknown ones are refused before the work
    run = run if isinstance(run, Run) else Run.open(run)
    task = task_of(run.spec) if task is None else task
    run.record.facts.check_alike(task, task.test)
    run.record.facts.check_unchanged(task, str(run.folder))
    fitted = fit_detectors(run.model, detectors, task.train, task.validation)
    section = measure(run.model, task.test, _outside(task), task.absent, fitted, progress=progress)
    _write(run, test=section)
    return run


def _health(run: Run, task: Task, history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The health on validation data, with an even choice of training data as reference.

    What was seen of columns that may give the label away is part of it.
    """
    count = len(task.train)
    rows = torch.arange(0, count, math.ceil(count / _REFERENCE))
    reference = task.train.subset(rows)
    health = diagnose(run.model, task.validation, reference, history=history)
    of_columns = (
        Finding(
            f"column {each.column}",
            each.share,
            False,
            each.meaning,
            each.remedy,
            each.limit,
            "share",
        )
        for each in task.warnings
    )
    plain: dict[str, Any] = to_plain(replace(health, findings=(*health.findings, *of_columns)))
    return plain


def _drop_orphans(folder: Path) -> None:
    """Delete the numbers of a checkpoint that somebody has deleted."""
    if not (folder / CHECKPOINT).exists():
        for name in (METRICS, SUMMARY):
            (folder / name).unlink(missing_ok=True)


def _outside(task: Task) -> dict[str, Split]:
    """The OOD sets of a task, those to report first; a name in both groups says its role."""
    found = dict(task.ood_test)
    for name, split in task.ood_validation.items():
        found[f"{name} ({split.role})" if name in found else name] = split
    return found


def _absent_for_tuning(task: Task) -> list[str]:
    """The OOD validation sets that are known and not here; the others belong to the test."""
    tuning = OOD_SETS[task.name].validation if task.name in OOD_SETS else ()
    return [name for name in task.absent if name in tuning]


def _write(run: Run, **sections: dict[str, Any]) -> None:
    numbers = {**read_metrics(run.folder), "training": run.training, **sections}
    order: list[str] = ["training", "validation", "health", "test"]
    plain = {name: numbers[name] for name in order if name in numbers}
    write_atomically(run.folder / METRICS, to_json(plain, indent=1).encode() + b"\n")
    write_atomically(run.folder / SUMMARY, markdown(run, plain).encode())
