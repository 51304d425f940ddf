"""Bundles of run folders, and one way to open whatever holds a trained model."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

from torch import nn

from gemfi._config import from_plain, to_plain
from gemfi.bundle.bundle import Bundle
from gemfi.bundle.container import ENDING
from gemfi.bundle.loading import bundle_names, load
from gemfi.bundle.saving import make_bundle
from gemfi.data import TASKS, Split, Task
from gemfi.decisions import Goal, Policy
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.runs.facts import TaskFacts
from gemfi.runs.folder import Run
from gemfi.runs.spec import RunSpec, task_of


def open_model(path: Path | str, backbone: str | None = None) -> Bundle:
    """Open a trained model.

    Args:
        path: the folder of a run, a bundle (`.safetensors`), or the name of a bundle that comes
            with the package, such as `mnist-gem-fi`.
        backbone: where to find the network of a bundle whose backbone was not given by its name,
            `package.module:name`: a module, or what makes one without arguments.
    """
    file = Path(path)
    if (file.suffix == ENDING and not file.is_dir()) or not file.exists():
        if file.suffix != ENDING and str(path) not in bundle_names():
            raise InputError(
                f"no model {path}: give the folder of a run, as gemfi train prints it, a bundle "
                f"{ENDING}, or one that comes with the package: {', '.join(bundle_names())}"
            )
        return load(path, backbone=None if backbone is None else imported(backbone))
    if backbone is not None:
        raise InputError("--backbone is for bundles: a run knows its network by its name")
    return bundle_of_run(Run.open(file))


def imported(place: str) -> nn.Module:
    """The module at `package.module:name`; code of that package runs.

    Args:
        place: of a module, or of something that makes one without arguments; the folder of the
            process is searched as well.
    """
    name, _, attribute = place.partition(":")
    if not name or not attribute:
        raise InputError(f"a backbone is named package.module:name, got {place!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"no backbone at {place}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    made = found if isinstance(found, nn.Module) or not callable(found) else found()
    if not isinstance(made, nn.Module):
        raise InputError(f"{place} is no torch.nn.Module, and makes none")
    return made


def bundle_of_run(run: Run, goal: Goal | str | None = None) -> Bundle:
    """A bundle of a finished run.

    Args:
        run: such as `Run.open(folder)`.
        goal: of a policy; then the calibration data of its task are read, and remembered.
    """
    facts = run.record.facts
    provenance = {
        "training": run.training,
        "steps": run.record.steps,
        "environment": to_plain(run.record.sessions[-1]),
        "spec": run.spec.to_plain(),
        "facts": to_plain(facts),
    }
    calibration: Split | None = None
    policy: Policy | Goal | str | None = goal
    if goal is not None:
        wanted = Goal.of(goal, {})
        task = _task(run.spec, facts, str(run.folder))
        calibration = task.calibration
        if wanted.needs_ood:
            policy = _fitted(run.model, task, wanted)
    made = make_bundle(
        run.folder.name,
        run.model,
        calibration=calibration,
        policy=policy,
        class_names=facts.class_names,
        feature_names=facts.feature_names,
        columns=facts.columns,
        metrics={"validation": run.metrics().get("validation", {}).get("id", {})},
        provenance=provenance,
    )
    return replace(made, run=run.folder)


def fit_policy(bundle: Bundle, goal: Goal) -> Policy:
    """A policy for a goal: from what the bundle remembers, or from the data of the run.

    Args:
        bundle: of a model. One from a file may name a task of gemfi as its data, but no path: that
            could be any file of whoever opens it.
        goal: youden and costs need the data, which must be at hand, and those of the time of
            training.
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
    return _fitted(bundle.model, _task(spec, facts, bundle.name), goal)


def _fitted(model: Model, task: Task, goal: Goal) -> Policy:
    ood = task.ood_validation if goal.needs_ood else None
    return Policy.fit(model, task.calibration, goal, ood_validation=ood)


def _task(spec: RunSpec, facts: TaskFacts, name: str) -> Task:
    """The data of the run, unchanged since."""
    if spec.task not in TASKS and not Path(spec.task).exists():
        raise InputError(
            f"a policy needs calibration data, and those of {name} were at {spec.task}, which "
            "does not exist; put them back, or do without a policy"
        )
    task = task_of(spec)
    facts.check_unchanged(task, name)
    return task
