"""Training a run and judging it: what `gemfi train` and `gemfi evaluate` do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemfi.data import Split, Task
from gemfi.files import to_json, write_atomically
from gemfi.runs.folder import METRICS, SUMMARY, Record, Run, clear, read_metrics, start_or_resume
from gemfi.runs.measure import measure
from gemfi.runs.spec import RunSpec, find_task
from gemfi.runs.summary import markdown
from gemfi.training import fit
from gemfi.training.checkpoint import load_snapshot
from gemfi.training.checks import check_run
from gemfi.training.loop import CHECKPOINT


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
    if fresh:
        clear(folder)
    record = start_or_resume(spec, folder, task)
    _drop_orphans(folder)
    started(record)
    fit(
        model,
        task.train,
        task.validation,
        spec.train,
        run_dir=folder,
        progress=progress,
        label=f"{spec.method} on {task.name}",
    )
    run = Run.open(folder)
    if "validation" not in run.metrics():
        section = measure(run.model, task.validation, task.ood_validation, task.absent)
        _write(run, validation=section)
    return run


def evaluate_run(run: Run | Path | str, task: Task | None = None) -> Run:
    """Judge a finished run on test data, and on every OOD set that is here.

    Args:
        run: a finished run, or its folder.
        task: the data, if at hand; otherwise found by the run's name for it.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    task = find_task(run.spec.task, run.spec.own) if task is None else task
    run.record.facts.check_alike(task, task.test)
    _write(run, test=measure(run.model, task.test, _outside(task), task.absent))
    return run


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


def is_finished(folder: Path | str) -> bool:
    """Whether a folder holds a run whose training has ended."""
    path = Path(folder) / CHECKPOINT
    return path.exists() and bool(load_snapshot(path).counters["finished"])


def _write(run: Run, **sections: dict[str, Any]) -> None:
    numbers = {**read_metrics(run.folder), "training": run.training, **sections}
    order: list[str] = ["training", "validation", "test"]
    plain = {name: numbers[name] for name in order if name in numbers}
    write_atomically(run.folder / METRICS, to_json(plain, indent=1).encode() + b"\n")
    write_atomically(run.folder / SUMMARY, markdown(run, plain).encode())
