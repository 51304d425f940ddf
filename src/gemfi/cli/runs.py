"""`gemfi train` and `gemfi evaluate`."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from gemfi._files import runs_root, to_json, write_atomically
from gemfi.cli.laboratory import laboratory
from gemfi.data import TASKS, Task
from gemfi.data.augmentation import AUGMENTATIONS
from gemfi.detectors import detector_names
from gemfi.errors import InputError
from gemfi.outliers import Kind
from gemfi.runs import OwnData, Record, Run, RunSpec, evaluate_run, find_task, make_spec, train_run
from gemfi.runs.choose import Recipe
from gemfi.runs.compare import comparison, means
from gemfi.runs.folder import FILES, is_finished
from gemfi.runs.spec import task_of
from gemfi.runs.summary import every_score, headline, terminal
from gemfi.runs.text import conventions
from gemfi.training.config import Optimizer, Schedule, Select, TrainConfig

_RECIPES = "(default: the recipe's)"
_Whole = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint=_RECIPES)]
_Steps = Annotated[
    int | None,
    tyro.conf.arg(metavar="N", help_behavior_hint="(default: at the end of each epoch)"),
]
_Real = Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint=_RECIPES)]
_Fractions = Annotated[
    tuple[float, ...] | None, tyro.conf.arg(metavar="X ...", help_behavior_hint=_RECIPES)
]
_AugmentationName = Literal["none", "standard", "daedl", "strong"]


def _one_of(choices: Any) -> Any:
    """How the help shows a choice that is the recipe's unless one is made."""
    words = ",".join(get_args(choices))
    return tyro.conf.arg(metavar=f"{{{words}}}", help_behavior_hint=_RECIPES)


_Settings = tyro.conf.arg(metavar="NAME=VALUE ...", help_behavior_hint="")
_Name = tyro.conf.arg(metavar="NAME", help_behavior_hint="")
_Names = tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")
_Path = tyro.conf.arg(metavar="PATH", help_behavior_hint="")
_Runs = tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")


@dataclass(frozen=True)
class Choices:
    """What is trained, and how.

    Attributes:
        method: see gemfi methods.
        recipe: matched, one for every method, or paper, that of the method's own paper (mnist,
            cifar10).
        backbone: convnet, resnet18, vgg16, mlp, or identity for features; by default what suits the
            task's samples.
        backbone_options: such as width=16 dropout=0.1 spectral.kind=soft.
        epochs: passes over the training data.
        batch_size: samples a step.
        learning_rate: the largest.
        optimizer: adamw, adam with weight decay in the gradient, or sgd with momentum 0.9.
        schedule: of the learning rate.
        milestones: of the schedule step, fractions of training.
        decay: of the schedule step at each milestone, or of exponential in the end.
        weight_decay: on weight matrices.
        seed: of weights and training.
        select: keep the last epoch, or the one with the best validation NLL.
        patience: with --select best, stop after so many epochs without a better one.
        checkpoint_steps: save every so many steps, so that a kill loses no more than these. The
            result is the same: a run that was begun can go on with another number.
        augmentation: of training images.
        preset: of gem-paper, a row of the paper's ablation or related work: see gemfi methods.
        outliers: another kind than the recipe's: none, vos as in the paper, halo with scrambled
            inputs as by default, or another kind alone.
        settings: fields of the method's configuration, such as fi_reg_weight=0.1
            outliers.kind=none.
        normalise: standardise inputs by the data set's customary constants, where it has some, and
            your own data by the mean and the spread of their training part.
    """

    method: str = "gem-fi"
    recipe: Literal["matched", "paper"] = "matched"
    backbone: Annotated[str | None, _Name] = None
    backbone_options: Annotated[tuple[str, ...], _Settings] = ()
    epochs: _Whole = None
    batch_size: _Whole = None
    learning_rate: _Real = None
    optimizer: Annotated[Optimizer | None, _one_of(Optimizer)] = None
    schedule: Annotated[Schedule | None, _one_of(Schedule)] = None
    milestones: _Fractions = None
    decay: _Real = None
    weight_decay: _Real = None
    seed: _Whole = None
    select: Annotated[Select | None, _one_of(Select)] = None
    patience: _Whole = None
    checkpoint_steps: _Steps = None
    augmentation: Annotated[_AugmentationName | None, _one_of(_AugmentationName)] = None
    preset: Annotated[str | None, _Name] = None
    outliers: Annotated[Kind | None, _one_of(Kind)] = None
    settings: Annotated[tuple[str, ...], _Settings, tyro.conf.arg(name="set")] = ()
    normalise: bool = True

    def spec(self, name: str, task: Task, own: OwnData) -> RunSpec:
        """The run that was chosen."""
        known = {each.name for each in fields(TrainConfig)}
        names = [each.name for each in fields(self) if each.name in known]
        changes = {field: getattr(self, field) for field in names}
        if self.augmentation is not None:
            changes["augmentation"] = AUGMENTATIONS[self.augmentation]
        return make_spec(
            name,
            self.method,
            task,
            recipe=self._paper_recipe(name),
            backbone=self.backbone,
            options=self.backbone_options,
            preset=self.preset,
            outliers=self.outliers,
            settings=self.settings,
            train=changes,
            normalise=self.normalise,
            own=own,
        )

    def notes(self, name: str) -> tuple[str, ...]:
        """What the recipe does differently from the method's paper."""
        recipe = self._paper_recipe(name)
        return () if recipe is None else recipe.notes

    def _paper_recipe(self, name: str) -> Recipe | None:
        if self.recipe == "matched":
            return None
        found: Recipe = laboratory("recipes").paper_recipe(self.method, name)
        return found


def train(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    choices: Annotated[Choices, tyro.conf.arg(name="")] = Choices(),  # noqa: B008 - frozen
    own: Annotated[OwnData, tyro.conf.arg(name="")] = OwnData(),  # noqa: B008 - frozen
    out: Annotated[str | None, _Path] = None,
    *,
    fresh: bool = False,
    quiet: bool = False,
) -> None:
    """Train a model on a task, in a folder from which it can be resumed and opened.

    The same command again goes on where the run was stopped. Test data are not used.

    Args:
        task: what to learn, such as digits, mnist or cifar10; or the path of your own data: a
            folder with a sub-folder of images for each class, or a file .npz, .csv, .parquet.
        choices: what is trained, and how.
        own: how your own data are read.
        out: folder of the run; by default below GEMFI_RUNS, or the platform's data folder.
        fresh: delete a run that is in the folder, and begin anew.
        quiet: print the folder of the run, and nothing else.
    """
    own = replace(
        own,
        ood_validation=tuple(map(_absolute, own.ood_validation)),
        ood_test=tuple(map(_absolute, own.ood_test)),
    )
    data = find_task(task, own)
    spec = choices.spec(task if task in TASKS else _absolute(task), data, own)
    folder = default_folder(spec, data.name) if out is None else Path(out)
    done = not fresh and is_finished(folder)
    for warning in data.warnings:
        print(f"gemfi: warning: {warning}", file=sys.stderr)

    def started(record: Record) -> None:
        if not quiet:
            notes = [
                *_table_notes(data, own),
                *(f"Recipe: {note}." for note in choices.notes(task)),
            ]
            print("\n".join([headline(record), f"Run: {folder}", *notes, ""]), flush=True)
            if done:
                print("This run had finished; --fresh would train it again.")

    progress = False if quiet else None
    try:
        run = train_run(spec, folder, progress=progress, task=data, fresh=fresh, started=started)
    except KeyboardInterrupt:
        again = "the same command without --fresh" if fresh else "the same command"
        print(f"gemfi: what was done is in {folder}; {again} resumes", file=sys.stderr)
        raise
    print(folder if quiet else _ending(run))


def evaluate(
    runs: Annotated[tuple[str, ...], tyro.conf.Positional, _Runs],
    json: Annotated[str | None, _Path] = None,
    detectors: Annotated[tuple[str, ...], _Names] = (),
) -> None:
    """Evaluate finished runs on test data and on every OOD set that is here.

    One run is shown with every score; several are one table, a line a run, with the mean of runs
    that differ by their seed alone. The numbers go into each run's metrics.json and summary.md, in
    place of those of an earlier evaluation.

    Args:
        runs: folders, as gemfi train prints them.
        json: also write all the numbers to this file.
        detectors: post-hoc detectors to fit on the training and validation data and to compare:
            maxp, energy, odin, mahalanobis, lts, temperature, ddu, knn; or all. They share one
            pass over each set, but odin goes through the model twice more, and once backwards.
    """
    if not runs:
        raise InputError("give the folder of a run, or of several")
    _check_json(json)
    detector_names(detectors)  # unknown ones are refused before a run is opened
    opened = [Run.open(folder) for folder in runs]  # all of them, before the first is evaluated
    wanted = {(run.spec.task, run.spec.own): run.spec for run in opened}
    tasks = {each: task_of(spec) for each, spec in wanted.items()}
    found = [
        evaluate_run(run, tasks[run.spec.task, run.spec.own], detectors, progress=None)
        for run in opened
    ]
    sections = [run.metrics()["test"] for run in found]
    blocks = [comparison(found)]
    if len(found) == 1:
        blocks.append(every_score(sections[0]))
    absent = [
        f"Left out, {task.name} against {ood}: {reason}"
        for task in tasks.values()
        for ood, reason in task.absent.items()
    ]
    blocks += ["\n".join(absent), conventions(sections)]
    print("\n\n".join(filter(None, blocks)))
    if json is not None:
        write_atomically(Path(json), to_json(_all_numbers(found), indent=1).encode() + b"\n")
        print(f"Wrote {json}.")


def _table_notes(task: Task, own: OwnData) -> list[str]:
    """Which column holds the labels, and how the others are read."""
    if task.columns is None:
        return []
    taken = "" if own.label is not None else ", the last column; --label names another"
    words = [each for each in task.columns.columns if each.kind == "category"]
    lacking = [each for each in task.columns.columns if each.missing]
    read = [f"{len(task.columns.columns)} columns"]
    read += [f"{len(words)} of them categories"] if words else []
    read += [f"{len(lacking)} with missing cells"] if lacking else []
    return [f"Label: {task.label_name}{taken}.", f"Inputs: {', '.join(read)}."]


def _absolute(path: str) -> str:
    """So that a run finds its data again from another folder."""
    return str(Path(path).expanduser().resolve())


def default_folder(spec: RunSpec, task: str) -> Path:
    """Where a run goes by default: the same spec, the same folder."""
    safe = re.sub(r"[^\w.-]+", "-", task).strip("-.") or "task"
    return runs_root() / safe / spec.name


def _ending(run: Run) -> str:
    return (
        f"{terminal(run, run.metrics())}\n\nFiles: {', '.join(FILES)}\nin {run.folder}\n"
        f"Test data were not used; to do so: gemfi evaluate {shlex.quote(str(run.folder))}"
    )


def _all_numbers(runs: list[Run]) -> dict[str, Any]:
    return {
        "runs": [
            {"folder": str(run.folder), "spec": run.spec.to_plain(), **run.metrics()}
            for run in runs
        ],
        "means": means(runs),
    }


def _check_json(json: str | None) -> None:
    """Fail before the work and not after it."""
    if json is None:
        return
    if Path(json).is_dir():
        raise InputError(f"--json {json} is a folder; give a file")
    if not Path(json).resolve().parent.is_dir():
        raise InputError(f"--json {json}: its folder does not exist")
