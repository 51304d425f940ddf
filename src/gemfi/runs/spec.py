"""RunSpec: everything that decides what a run computes, as one record of JSON values.

`matched_spec` chooses it from the shape of a task's samples, alike for every method; `make_spec`
begins with a recipe and changes what the user asks for. Two runs with equal specs on equal data end
in the same weights, bit for bit (on one machine).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from gemfi._config import from_plain, parse, split_setting, to_plain, with_settings
from gemfi._files import runs_root
from gemfi.backbones import Blueprint, input_options, parameters
from gemfi.data import TASKS, Task
from gemfi.data.augmentation import AUGMENTATIONS, Augmentation
from gemfi.data.normalisation import Normalisation
from gemfi.data.own import OwnData
from gemfi.errors import InputError
from gemfi.methods import METHODS, gem_paper, method
from gemfi.methods.upgrade import upgraded
from gemfi.model import Model, build_model
from gemfi.outliers import NONE, VOS, Kind, OutlierConfig
from gemfi.randomness import forked_generator
from gemfi.spectral import SOFT
from gemfi.training import TrainConfig
from gemfi.training.config import upgraded_training


@dataclass(frozen=True)
class RunSpec:
    """A run: what is learnt, by which method, on which backbone, and how.

    What is left out is filled in at construction, so that the record of a run is complete and
    stays true when a default of the library changes.
    """

    task: str  # a name in `TASKS`, or the path of a user's own data
    method: str
    backbone: str
    backbone_options: Mapping[str, Any] = field(default_factory=dict)  # JSON values
    head: Any = None  # the method's configuration; None takes its default
    train: TrainConfig = field(default_factory=TrainConfig)  # its seed also makes the weights
    normalise: bool = False  # inputs, by the task's mean and deviation
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
                "outliers.kind=auxiliary needs an auxiliary split, which no task has: "
                "use another kind, or call fit(auxiliary=...)"
            )
        options = dict(self.backbone_options)
        if getattr(head, "sn", False) and "spectral" in parameters(self.backbone):
            options.setdefault("spectral", SOFT)  # as build_model has it
        # through plain values, so that 15 and 15.0 are one setting
        for name, config in (("head", head), ("train", self.train)):
            if config is not None:
                checked = from_plain(type(config), to_plain(config), name)
                object.__setattr__(self, name, checked)
        object.__setattr__(self, "backbone_options", Blueprint(self.backbone, options).options)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(to_plain(self))

    @classmethod
    def from_plain(cls, mapping: Any, where: str = "spec") -> RunSpec:
        """The inverse; anything that is not known is refused by name."""
        if not isinstance(mapping, Mapping) or not isinstance(mapping.get("method"), str):
            raise InputError(f"{where}: expected a mapping with the name of a method")
        name, config = upgraded(mapping["method"], mapping.get("head"))
        plain = {**mapping, "method": name, "head": config}
        if isinstance(plain.get("train"), Mapping):
            plain["train"] = upgraded_training(plain["train"])
        return from_plain(cls, plain, where, head=type(method(name).default_config()))

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

    def default_folder(self, task: str) -> Path:
        """Where a run on a task of that name goes by default: the same spec, the same folder."""
        safe = re.sub(r"[^\w.-]+", "-", task).strip("-.") or "task"
        return runs_root() / safe / self.name

    def build(self, num_classes: int, normalisation: Normalisation | None) -> Model:
        """The model before training; its weights come from the seed alone.

        Args:
            num_classes: C of the task.
            normalisation: the task's; used only if the spec says `normalise`.
        """
        with forked_generator(self.train.seed):
            return build_model(
                self.method,
                self.backbone,
                num_classes,
                config=self.head,
                normalisation=normalisation if self.normalise else None,
                **Blueprint(self.backbone, self.backbone_options).arguments(),
            )


def find_task(name: str, own: OwnData = OwnData()) -> Task:  # noqa: B008 - frozen
    """The task of a name in `TASKS`, or of a user's own files at a path; no split is read yet."""
    if name in TASKS:
        if own != OwnData():
            flags = ", ".join(f"--{f.name.replace('_', '-')}" for f in fields(OwnData))
            raise InputError(
                f"{flags} are for your own files; {name!r} is a task of the library (a folder of "
                f"that name is ./{name})"
            )
        return TASKS[name]()
    if not Path(name).exists():
        if _looks_like_path(name):
            raise InputError(f"{name} does not exist: no such file or folder")
        own_data = "your own data: a folder of images, or a file .npz, .csv, .parquet"
        known = ", ".join(TASKS)
        raise InputError(f"unknown task {name!r}; known: {known}; or give the path of {own_data}")
    return own.task(name)


def _looks_like_path(name: str) -> bool:
    return bool(Path(name).suffix) or Path(name).name != name


def task_of(spec: RunSpec) -> Task:
    """The data of a run that was trained, or an error that says where they were."""
    if spec.task not in TASKS and (_looks_like_path(spec.task) or Path(spec.task).exists()):
        for path in (spec.task, *spec.own.ood_validation, *spec.own.ood_test):
            if not Path(path).exists():
                raise InputError(
                    f"this run's data were at {path}, which does not exist; put them back there, "
                    "or train again on the data where they are now"
                )
    return find_task(spec.task, spec.own)


# -- choosing one ----------------------------------------------------------------------------------

_AUGMENTED: Final = {
    "cifar10": AUGMENTATIONS["standard"],
    "cifar100": AUGMENTATIONS["standard"],
    "svhn": Augmentation(crop=4),  # a digit in the mirror is not a digit
}
"""Task -> the augmentation of its matched recipe. Other tasks: no augmentation."""


@dataclass(frozen=True)
class Recipe:
    """How to train a method on one data set."""

    train: TrainConfig
    backbone: str
    backbone_options: Mapping[str, Any] = field(default_factory=dict)  # the dropout among them
    head: Mapping[str, Any] = field(default_factory=dict)  # fields of the method's configuration
    normalise: bool = True  # inputs, where the data set has constants for it
    notes: tuple[str, ...] = ()  # where it is not what the paper did, and why


def matched_spec(name: str, method_name: str, task: Task | None = None) -> RunSpec:
    """A spec for any task, by `matched_recipe`; the task itself is found by its name."""
    return make_spec(name, method_name, task or find_task(name))


def make_spec(
    name: str,
    method_name: str,
    task: Task,
    *,
    recipe: Recipe | None = None,
    backbone: str | None = None,
    options: Sequence[str] = (),
    preset: str | None = None,
    outliers: Kind | None = None,
    settings: Sequence[str] = (),
    head: Any = None,
    train: Mapping[str, Any] | None = None,
    normalise: bool = True,
    own: OwnData = OwnData(),  # noqa: B008 - frozen
) -> RunSpec:
    """A recipe with changes, as the command line gives them.

    Args:
        name: of the task.
        method_name: a name in `METHODS`.
        task: its training samples decide what the recipe leaves open.
        recipe: what to begin with; by default `matched_recipe`, the same for all methods.
        backbone: another one than the recipe's.
        options: texts `name=value` for the backbone.
        preset: a name in `gem_paper.presets()`, for gem-paper.
        outliers: another kind than the recipe's, with the settings that go with it.
        settings: texts `name=value` for the method's configuration.
        head: a whole configuration, in place of preset, outliers and settings.
        train: fields of `TrainConfig`; None keeps the recipe's value.
        normalise: False for inputs as they are.
        own: how the user's own data were read.
    """
    shape = tuple(task.train.x.shape[1:])
    chosen = matched_recipe(shape, name, len(task.train)) if recipe is None else recipe
    backbone = chosen.backbone if backbone is None else backbone
    is_same = backbone == chosen.backbone
    given = dict(chosen.backbone_options) if is_same else input_options(backbone, shape)
    changes = {key: value for key, value in (train or {}).items() if value is not None}
    return RunSpec(
        task=name,
        method=method_name,
        backbone=backbone,
        backbone_options=given | _parsed_options(backbone, options),
        head=_head(method_name, chosen, preset, outliers, settings) if head is None else head,
        train=replace(chosen.train, **changes),
        normalise=normalise and chosen.normalise and task.normalisation is not None,
        own=own,
    )


def matched_recipe(shape: Sequence[int], name: str, samples: int) -> Recipe:
    """Backbone by the shape of a sample: grey image, colour image, or numbers.

    Args:
        shape: of a sample.
        name: of the task; it decides the augmentation, which is none for most.
        samples: to train on; the batch is the power of two from 16 to 128 that leaves twenty
            batches an epoch, if one does.
    """
    batch_size = min(128, max(16, 1 << int(math.log2(max(1, samples / 20)))))
    train = TrainConfig(batch_size=batch_size)
    if len(shape) == 3 and shape[1] == shape[2] >= 8:
        backbone = "resnet18" if shape[0] == 3 else "convnet"
        options = input_options(backbone, shape)
        if backbone == "resnet18":
            options["width"] = 16
        augmentation = _AUGMENTED.get(name, Augmentation())
        return Recipe(replace(train, augmentation=augmentation), backbone, options)
    return Recipe(train, "mlp", input_options("mlp", shape))


def _head(
    method_name: str,
    recipe: Recipe,
    preset: str | None,
    outliers: Kind | None,
    settings: Sequence[str],
) -> Any:
    """The method's configuration: its default, the recipe's fields, and what was asked for."""
    head = method(method_name).default_config()
    if recipe.head:
        head = replace(head, **recipe.head)
    if preset is not None:
        if method_name != "gem-paper":
            raise InputError(f"--preset {preset} is one of gem-paper, not of {method_name}")
        head = gem_paper.preset(preset, head)
    if outliers is not None:
        head = _with_outliers(head, method_name, outliers)
    head = with_settings(head, settings, "--set")
    if outliers not in (None, "none") and not getattr(head, "takes_outliers", True):
        raise InputError(
            f"{method_name} has no term on outliers in this configuration, so --outliers "
            f"{outliers} would change nothing; --set ebm=true adds one"
        )
    return head


def _with_outliers(head: Any, method_name: str, kind: Kind) -> Any:
    """A configuration with outliers of a kind: the paper's VOS, our halo, or that kind alone."""
    if not hasattr(head, "outliers"):
        able = [name for name in METHODS if hasattr(METHODS[name].default_config(), "outliers")]
        raise InputError(
            f"{method_name} has no term on outliers, so --outliers {kind} means nothing to it; "
            f"these have one: {', '.join(able)}"
        )
    share = OutlierConfig().scrambled if kind in ("halo", "scrambled") else 0.0
    chosen = {"none": NONE, "vos": VOS}.get(kind, OutlierConfig(kind=kind, scrambled=share))
    return replace(head, outliers=chosen)


def _parsed_options(backbone: str, texts: Sequence[str]) -> dict[str, Any]:
    """Texts such as `width=16` or `spectral.kind=off` as options of a backbone."""
    known = parameters(backbone)
    options: dict[str, Any] = {}
    for text in texts:
        where = f"--backbone-options {text}"
        name, value = split_setting(text, where)
        first, _, inner = name.partition(".")
        if first not in known:
            raise InputError(f"{where}: {backbone} has no such option; known: {', '.join(known)}")
        hint, default = known[first]
        if inner:
            config = options.get(first, default)
            setting = f"{inner}={value}"
            config = with_settings(config, [setting], "--backbone-options", f"{first}.")
            options[first] = config
        else:
            options[first] = parse(hint, value, where)
    return options
