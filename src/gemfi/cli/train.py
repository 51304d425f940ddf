"""`gemfi train`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from gemfi.cli.options import Device, Folder, shown_as
from gemfi.data import TASKS, Task
from gemfi.data.augmentation import AUGMENTATIONS
from gemfi.devices import Precision
from gemfi.outliers import Kind
from gemfi.processes import process_group
from gemfi.runs import (
    OwnData,
    Recipe,
    Record,
    RunSpec,
    find_task,
    make_spec,
    train_run,
)
from gemfi.runs.folder import FILES, is_finished
from gemfi.runs.summary import headline, table_notes, terminal
from gemfi.training.config import Optimizer, Schedule, Select, TrainConfig

_RECIPES = "(default: the recipe's)"
_Whole = Annotated[int | None, shown_as("N", _RECIPES)]
_Real = Annotated[float | None, shown_as("X", _RECIPES)]
_Name = Annotated[str | None, shown_as("NAME")]
_Settings = shown_as("NAME=VALUE ...")
_AugmentationName = Literal["none", "standard", "daedl", "strong"]


def _one_of(choices: Any) -> Any:
    """How the help shows a choice that is the recipe's unless one is made."""
    return shown_as(f"{{{','.join(get_args(choices))}}}", _RECIPES)


@dataclass(frozen=True)
class Choices:
    """What is trained, and how.

    Attributes:
        method: see gemfi methods.
        recipe: matched, one for every method, or paper, that of the method's own paper (mnist,
            cifar10).
        backbone: convnet, resnet18, vgg16, whitenet, mlp, or identity for features; by default what
            suits the task's samples.
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
        precision: of the network: fp32, bf16 where the processor has instructions for it, fp16 on
            CUDA, or auto.
        compile: let torch.compile translate the network.
        channels_last: keep images with their channels last.
        accumulate: parts into which a batch is cut to save memory.
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
    backbone: _Name = None
    backbone_options: Annotated[tuple[str, ...], _Settings] = ()
    epochs: _Whole = None
    batch_size: _Whole = None
    learning_rate: _Real = None
    optimizer: Annotated[Optimizer | None, _one_of(Optimizer)] = None
    schedule: Annotated[Schedule | None, _one_of(Schedule)] = None
    milestones: Annotated[tuple[float, ...] | None, shown_as("X ...", _RECIPES)] = None
    decay: _Real = None
    weight_decay: _Real = None
    seed: _Whole = None
    precision: Annotated[Precision | None, _one_of(Precision)] = None
    accumulate: _Whole = None
    select: Annotated[Select | None, _one_of(Select)] = None
    patience: _Whole = None
    checkpoint_steps: Annotated[
        int | None, shown_as("N", "(default: at the end of each epoch)")
    ] = None
    augmentation: Annotated[_AugmentationName | None, _one_of(_AugmentationName)] = None
    preset: _Name = None
    outliers: Annotated[Kind | None, _one_of(Kind)] = None
    settings: Annotated[tuple[str, ...], _Settings, tyro.conf.arg(name="set")] = ()
    normalise: bool = True
    compile: bool = False
    channels_last: bool = False

    def paper_recipe(self, task: str) -> Recipe | None:
        """The one of the method's own paper, if it was chosen."""
        if self.recipe == "matched":
            return None
        recipes = import_module("gemfi_bench.recipes")  # the laboratory, loaded when asked for
        recipe: Recipe = recipes.paper_recipe(self.method, task)
        return recipe

    def spec(self, name: str, task: Task, own: OwnData) -> RunSpec:
        """The run that was chosen."""
        names = {field.name for field in fields(TrainConfig)} & vars(self).keys()
        changes = {name: getattr(self, name) for name in names}
        changes = {name: value for name, value in changes.items() if value is not False}
        if self.augmentation is not None:
            changes["augmentation"] = AUGMENTATIONS[self.augmentation]
        return make_spec(
            name,
            self.method,
            task,
            recipe=self.paper_recipe(name),
            backbone=self.backbone,
            options=self.backbone_options,
            preset=self.preset,
            outliers=self.outliers,
            settings=self.settings,
            train=changes,
            normalise=self.normalise,
            own=own,
        )


def train(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    choices: Annotated[Choices, tyro.conf.arg(name="")] = Choices(),  # noqa: B008 - frozen
    own: Annotated[OwnData, tyro.conf.arg(name="")] = OwnData(),  # noqa: B008 - frozen
    out: Folder = None,
    device: Device = "auto",
    *,
    fresh: bool = False,
    quiet: bool = False,
) -> None:
    """Train a model on a task, in a folder from which it can be resumed and opened.

    The same command again goes on where the run was stopped. Test data are not used. Several
    processes train together: torchrun --standalone --nproc-per-node 2 -m gemfi train ...

    Args:
        task: what to learn, such as digits, mnist or cifar10; or the path of your own data: a
            folder with a sub-folder of images for each class, or a file .npz, .csv, .parquet.
        choices: what is trained, and how.
        own: how your own data are read.
        out: folder of the run; by default below GEMFI_RUNS, or the platform's data folder.
        device: auto, cpu, cuda, cuda:N or mps; auto takes a GPU where there is one.
        fresh: delete a run that is in the folder, and begin anew.
        quiet: print the folder of the run, and nothing else.
    """
    own = replace(
        own,
        ood_validation=tuple(map(_absolute, own.ood_validation)),
        ood_test=tuple(map(_absolute, own.ood_test)),
    )
    with process_group(device) as is_first:
        data = find_task(task, own)
        spec = choices.spec(task if task in TASKS else _absolute(task), data, own)
        folder = spec.default_folder(data.name) if out is None else Path(out)
        done = not fresh and is_finished(folder)
        for warning in data.warnings if is_first else ():
            print(f"gemfi: warning: {warning}", file=sys.stderr)

        def started(record: Record) -> None:
            if not quiet:
                recipe = choices.paper_recipe(task)
                lines = [headline(record), f"Run: {folder}"]
                lines += table_notes(data, labelled=own.label is not None)
                lines += [f"Recipe: {note}." for note in (recipe.notes if recipe else ())]
                print("\n".join([*lines, ""]), flush=True)
                if done:
                    print("This run had finished; --fresh would train it again.")

        try:
            run = train_run(
                spec,
                folder,
                progress=False if quiet else None,
                task=data,
                fresh=fresh,
                started=started,
                device=device,
            )
        except KeyboardInterrupt:
            again = "the same command without --fresh" if fresh else "the same command"
            if is_first:
                print(f"gemfi: what was done is in {folder}; {again} resumes", file=sys.stderr)
            raise
        if not is_first:
            return
        if quiet:
            print(folder)
            return
        print(f"{terminal(run, run.metrics())}\n\nFiles: {', '.join(FILES)}\nin {folder}")
        print(f"Test data were not used; to do so: gemfi evaluate {shlex.quote(str(folder))}")


def _absolute(path: str) -> str:
    """So that a run finds its data again from another folder."""
    return str(Path(path).expanduser().resolve())
