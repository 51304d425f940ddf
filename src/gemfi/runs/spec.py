"""RunSpec: everything that decides what a run computes, as one JSON-able record.

`matched_spec` chooses it from the shape of a task's samples, alike for every method; `own_spec` is
that of the method's own paper.
Two runs with equal specs on equal data end in the same weights, bit for bit (on one machine).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from gemfi._config import from_plain, to_plain
from gemfi.backbones import Blueprint, parameters
from gemfi.data import TASKS, Task
from gemfi.data.normalisation import Normalisation
from gemfi.data.own import task_from_path
from gemfi.errors import InputError
from gemfi.methods import method
from gemfi.model import Model, build_model
from gemfi.outliers import NONE
from gemfi.randomness import forked_generator
from gemfi.spectral import SOFT
from gemfi.training import TrainConfig

T = TypeVar("T")


@dataclass(frozen=True)
class OwnData:
    """How a user's own files are read; see `task_from_path`.

    Attributes:
        label: of a table, the column of the labels; by default the last.
        drop: of a table, columns to leave out.
        keep: of a table, columns to learn from though they look like a leak.
        size: of a folder, make every image size × size, cropped to a square.
        grey: of a folder, read one channel in place of three.
        ood_validation: files or folders of unfamiliar data of the same kind, for tuning.
        ood_test: files or folders of unfamiliar data of the same kind, to report.
    """

    label: str | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    size: int | None = None
    grey: bool = False
    ood_validation: tuple[str, ...] = ()
    ood_test: tuple[str, ...] = ()

    def task(self, path: str) -> Task:
        """The task of the files at a path."""
        return task_from_path(
            path,
            label=-1 if self.label is None else self.label,
            drop=self.drop,
            keep=self.keep,
            size=self.size,
            grey=self.grey,
            ood_validation=_by_name(self.ood_validation),
            ood_test=_by_name(self.ood_test),
        )


def _by_name(paths: Sequence[str]) -> dict[str, str]:
    """Files and folders by their own names."""
    found = {Path(path).name: path for path in paths}
    if len(found) < len(paths):
        raise InputError(f"files are named by themselves, but two of {', '.join(paths)} are alike")
    return found


@dataclass(frozen=True)
class RunSpec:
    """A run: what is learnt, by which method, on which backbone, and how.

    What is left out is filled in at construction, so that the record of a run is complete and
    stays true when a default of the library changes.

    Attributes:
        task: a name in `TASKS`, or the path of a user's own data.
        method: a name in `METHODS`.
        backbone: a name in `BACKBONES`.
        backbone_options: its arguments as JSON values; `spectral` as kind and bound.
        head: the method's configuration; None takes its default.
        train: how to train. Its seed is also that of the initial weights.
        normalise: standardise inputs by the task's mean and deviation.
        own: how to read a user's own data.
    """

    task: str
    method: str
    backbone: str
    backbone_options: Mapping[str, Any] = field(default_factory=dict)
    head: Any = None
    train: TrainConfig = field(default_factory=TrainConfig)
    normalise: bool = False
    own: OwnData = field(default_factory=OwnData)

    def __post_init__(self) -> None:
        default = method(self.method).default_config()
        head = default if self.head is None else self.head
        if type(head) is not type(default):
            raise InputError(
                f"{self.method} takes a {type(default).__name__}, got {type(head).__name__}"
            )
        if getattr(head, "outliers", NONE).kind == "auxiliary":
            raise InputError(
                "outliers.kind=auxiliary needs an auxiliary split, which no task has: use another "
                "kind, or call fit(auxiliary=...)"
            )
        options = dict(self.backbone_options)
        if getattr(head, "sn", False) and "spectral" in parameters(self.backbone):
            options.setdefault("spectral", SOFT)  # as build_model has it
        # through plain values, so that 15 and 15.0 are one setting
        object.__setattr__(self, "head", None if head is None else _checked(head, "head"))
        object.__setattr__(self, "train", _checked(self.train, "train"))
        object.__setattr__(self, "backbone_options", Blueprint(self.backbone, options).options)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_plain(cls, mapping: Any, where: str = "spec") -> RunSpec:
        """The inverse; anything that is not known is refused by name."""
        if not isinstance(mapping, Mapping) or not isinstance(mapping.get("method"), str):
            raise InputError(f"{where}: expected a mapping with the name of a method")
        head = type(method(mapping["method"]).default_config())
        return from_plain(cls, mapping, where, head=head)

    def identity(self) -> dict[str, Any]:
        """What makes it this run, as JSON values: all but how often it is saved on the way."""
        return replace(self, train=replace(self.train, checkpoint_steps=None)).to_plain()

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits of its identity."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()

    @property
    def name(self) -> str:
        """Short and unique: method, backbone, seed and digest."""
        return f"{self.method}-{self.backbone}-seed{self.train.seed}-{self.digest}"

    def build(self, num_classes: int, normalisation: Normalisation | None) -> Model:
        """The model before training; its weights come from the seed alone.

        Args:
            num_classes: C of the task.
            normalisation: the task's; used only if the spec says `normalise`.
        """
        options = Blueprint(self.backbone, self.backbone_options).arguments()
        with forked_generator(self.train.seed):
            return build_model(
                self.method,
                self.backbone,
                num_classes,
                config=self.head,
                normalisation=normalisation if self.normalise else None,
                **options,
            )


def find_task(name: str, own: OwnData = OwnData()) -> Task:  # noqa: B008 - frozen
    """The task of a name, whose splits are read when they are asked for; or of one's own files.

    This is the one place where the commands turn a name into data.

    Args:
        name: a name in `TASKS`, or a path.
        own: how to read what is at the path.
    """
    if name in TASKS:
        if own != OwnData():
            raise InputError(
                "--label, --drop, --keep, --size, --grey, --ood-validation and --ood-test are for "
                f"your own files; {name!r} is a task of the library (a folder of that name is "
                f"./{name})"
            )
        return TASKS[name]()
    if not Path(name).exists():
        if _is_path(name):
            raise InputError(f"{name} does not exist: no such file or folder")
        raise InputError(
            f"unknown task {name!r}; known: {', '.join(TASKS)}; or give the path of your own data: "
            "a folder of images, or a file .npz, .csv, .parquet"
        )
    return own.task(name)


def _is_path(name: str) -> bool:
    """Whether a name was meant as a path, even if nothing is there."""
    return bool(Path(name).suffix) or Path(name).name != name


def task_of(spec: RunSpec) -> Task:
    """The data of a run that was trained, or an error that says where they were."""
    if spec.task not in TASKS and (_is_path(spec.task) or Path(spec.task).exists()):
        for each in (spec.task, *spec.own.ood_validation, *spec.own.ood_test):
            if not Path(each).exists():
                raise InputError(
                    f"this run's data were at {each}, which does not exist; put them back there, "
                    "or train again on the data where they are now"
                )
    return find_task(spec.task, spec.own)


def _checked(config: T, where: str) -> T:
    return from_plain(type(config), to_plain(config), where)
