"""What the commands do with runs: train, evaluate, open, and make bundles and policies of them."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gemfi._config import from_plain, to_plain
from gemfi._files import write_atomically, write_json
from gemfi.bundle import ENDING, Bundle, bundle_names, load, make_bundle
from gemfi.data import OOD_SETS, TASKS, Split, Task
from gemfi.decisions import Goal, Policy
from gemfi.detectors import detector_names
from gemfi.devices import place
from gemfi.diagnosis import Finding, diagnose
from gemfi.errors import InputError
from gemfi.evaluation import evaluate, fit_detectors
from gemfi.model import Model
from gemfi.processes import agree, own_share
from gemfi.runs.folder import (
    METRICS,
    SUMMARY,
    Record,
    Run,
    TaskFacts,
    begin,
    clear,
    drop_orphans,
    require_run_folder,
)
from gemfi.runs.spec import RunSpec, find_task, task_of
from gemfi.runs.summary import markdown
from gemfi.training import FitResult, fit
from gemfi.training.checks import check_run
from gemfi.training.run_dir import lock_run_dir

_REFERENCE = 5_000  # training inputs to which distances are measured: ranks need no more


def train_run(
    spec: RunSpec,
    folder: Path | str,
    *,
    progress: bool | None = None,
    task: Task | None = None,
    fresh: bool = False,
    started: Callable[[Record], None] = lambda _record: None,
    device: str | torch.device | None = None,
) -> Run:
    """Train, or finish training, and judge by validation data alone; test data are not read.

    Called again, a run goes on from its checkpoint; one that had finished is opened. Inside a
    process group all processes train, and the first one writes and judges.

    Args:
        spec: what to run.
        folder: of the run; it is created.
        progress: a progress bar: yes, no, or (None) if standard error is a terminal.
        task: the data, if at hand; otherwise found by the spec's name.
        fresh: delete a run that is in the folder first, once all is checked.
        started: called when all is checked and training begins.
        device: where to train, as of `fit`.
    """
    folder = Path(folder)
    task = find_task(spec.task, spec.own) if task is None else task
    model = spec.build(task.num_classes, task.normalisation)
    place(model, device)
    check_run(model, task.train, task.validation, None, spec.train)  # before a file is written
    agree(lambda: require_run_folder(folder))  # before the lock's file is in it

    def prepare() -> Record:
        require_run_folder(folder)
        if fresh:
            clear(folder)
        record = begin(spec, folder, task)
        drop_orphans(folder)
        started(record)
        return record

    is_first = own_share().rank == 0
    with lock_run_dir(folder) if is_first else contextlib.nullcontext():
        record = agree(prepare)
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
        judged: list[Run] = []
        agree(lambda: judged.append(_judge(folder, record, model, result, task)))
    return judged[0] if is_first else Run.open(folder)


def _judge(folder: Path, record: Record, model: Model, result: FitResult, task: Task) -> Run:
    """Put what is known of a trained model into its folder."""
    run = Run.finish(folder, record, model, result)
    known, sections = run.metrics(), {}
    if "validation" not in known:
        tuning = OOD_SETS[task.name].validation if task.name in OOD_SETS else ()
        absent = [name for name in task.absent if name in tuning]  # the others are for the test
        evaluation = evaluate(run.model, task.validation, task.ood_validation)
        sections["validation"] = evaluation.section(absent)
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

    Training and validation data are read too: they must be those of the run, and fit detectors.

    Args:
        run: a finished run, or its folder.
        task: the data, if at hand.
        detectors: names in `DETECTORS`, or `all` for those that suit the model.
        progress: a bar for the detectors: yes, no, or (None) if standard error is a terminal.
    """
    detector_names(detectors)  # unknown ones are refused before the work
    run = run if isinstance(run, Run) else Run.open(run)
    task = task_of(run.spec) if task is None else task
    run.record.facts.check_alike(task, task.test)
    run.record.facts.check_unchanged(task, str(run.folder))
    outside: dict[str, Split] = dict(task.ood_test)
    for name, split in task.ood_validation.items():  # a name in both groups says its role
        outside[f"{name} ({split.role})" if name in outside else name] = split
    fitted = fit_detectors(run.model, detectors, task.train, task.validation)
    evaluation = evaluate(run.model, task.test, outside, fitted, progress=progress)
    if own_share().rank == 0:
        _write(run, test=evaluation.section(task.absent))
    return run


def _health(run: Run, task: Task, history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The health on validation data, and columns that may give the label away."""
    count = len(task.train)
    rows = torch.arange(0, count, math.ceil(count / _REFERENCE))
    health = diagnose(run.model, task.validation, task.train.subset(rows), history=history)
    leaks = [
        Finding(f"column {x.column}", x.share, False, x.meaning, x.remedy, x.limit, "share")
        for x in task.warnings
    ]
    plain: dict[str, Any] = to_plain(replace(health, findings=(*health.findings, *leaks)))
    return plain


def _write(run: Run, **sections: dict[str, Any]) -> None:
    """Put sections of numbers in the place of those of the same name."""
    numbers = {**run.metrics(), "training": run.training, **sections}
    order = ("training", "validation", "health", "test")
    plain = {name: numbers[name] for name in order if name in numbers}
    write_json(run.folder / METRICS, plain)
    write_atomically(run.folder / SUMMARY, markdown(run, plain).encode())


# -- models of runs and files ----------------------------------------------------------------------


def open_model(path: Path | str, backbone: str | None = None) -> Bundle:
    """Open a trained model.

    Args:
        path: the folder of a run, a bundle, or the name of one that comes with the package.
        backbone: `package.module:name` of the network of a bundle whose backbone was not given by
            its name: a module, or what makes one without arguments.
    """
    file = Path(path)
    if (file.suffix == ENDING and not file.is_dir()) or not file.exists():
        if file.suffix != ENDING and str(path) not in bundle_names():
            raise InputError(
                f"no model {path}: give the folder of a run, as gemfi train prints it, a bundle "
                f"{ENDING}, or one that comes with the package: {', '.join(bundle_names())}"
            )
        return load(path, backbone=None if backbone is None else _imported(backbone))
    if backbone is not None:
        raise InputError("--backbone is for bundles: a run knows its network by its name")
    return bundle_of_run(Run.open(file))


def _imported(place: str) -> nn.Module:
    """The module at `package.module:name`, also below the folder of the process; its code runs."""
    name, _, attribute = place.partition(":")
    if not name or not attribute:
        raise InputError(f"a backbone is named package.module:name, got {place!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        value = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"no backbone at {place}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    module = value if isinstance(value, nn.Module) or not callable(value) else value()
    if not isinstance(module, nn.Module):
        raise InputError(f"{place} is no torch.nn.Module, and makes none")
    return module


def bundle_of_run(run: Run, goal: Goal | str | None = None) -> Bundle:
    """A bundle of a finished run, with its validation metrics.

    With a goal it has a policy; the calibration data of the task are read for it, and remembered.
    """
    metrics = {"validation": run.metrics().get("validation", {}).get("id", {})}
    if goal is None:
        return replace(run.bundle, info=replace(run.bundle.info, metrics=metrics))
    wanted = Goal.of(goal, {})
    task = _unchanged_task(run.spec, run.record.facts, str(run.folder))
    bundle = make_bundle(
        run.folder.name,
        run.model,
        calibration=task.calibration,
        policy=_policy(run.model, task, wanted) if wanted.needs_ood else wanted,
        metrics=metrics,
        provenance=run.bundle.info.provenance,
    )
    return replace(bundle, run=run.folder)


def fit_policy(bundle: Bundle, goal: Goal) -> Policy:
    """A policy for a goal: from what the bundle remembers, or from the data of its run.

    A bundle from a file may name a task of gemfi as its data, but no path: that could be any file
    of whoever opens it.
    """
    if bundle.calibration is not None and not goal.needs_ood:
        return bundle.policy_for(goal)
    origin = bundle.info.provenance
    if "spec" not in origin or "facts" not in origin:
        raise InputError(
            f"a policy for {goal} needs data, and {bundle.name} was not trained by gemfi train: "
            "fit one with Policy.fit, and save it with policy="
        )
    spec = RunSpec.from_plain(origin["spec"], f"{bundle.name}: spec")
    if bundle.run is None and spec.task not in TASKS:
        raise InputError(
            f"a policy for {goal} needs the data of training; {bundle.name} says that they are at "
            f"{spec.task}, and a path that a file names is not opened: give the folder of the run "
            "in place of the file, or fit one with Policy.fit, and save it with policy="
        )
    facts = from_plain(TaskFacts, origin["facts"], f"{bundle.name}: facts")
    return _policy(bundle.model, _unchanged_task(spec, facts, bundle.name), goal)


def _policy(model: Model, task: Task, goal: Goal) -> Policy:
    ood = task.ood_validation if goal.needs_ood else None
    return Policy.fit(model, task.calibration, goal, ood_validation=ood)


def _unchanged_task(spec: RunSpec, facts: TaskFacts, name: str) -> Task:
    """The data of the run, as they were."""
    if spec.task not in TASKS and not Path(spec.task).exists():
        raise InputError(
            f"a policy needs calibration data, and those of {name} were at {spec.task}, which "
            "does not exist; put them back, or do without a policy"
        )
    task = task_of(spec)
    facts.check_unchanged(task, name)
    return task
