"""RunSpec: everything that decides what a run computes, as one JSON-able record.

`matched_spec` chooses it from the shape of a task's samples, alike for every method; `own_spec` is
that of the method's own paper.
Two runs with equal specs on equal data end in the same weights, bit for bit (on one machine).
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_type_hints

import torch

from gemfi.backbones import BACKBONES
from gemfi.data import TASKS, Task
from gemfi.data.augmentation import AUGMENTATIONS, Augmentation
from gemfi.data.own import task_from_path
from gemfi.errors import InputError
from gemfi.methods import METHODS, GEMConfig, method
from gemfi.model import Model, build_model
from gemfi.normalisation import Normalisation
from gemfi.outliers import NONE, VOS, Kind, OutlierConfig
from gemfi.recipes import Recipe, own_recipe
from gemfi.runs.plain import decode, from_plain, parse, split_setting, to_plain, with_settings
from gemfi.spectral import SOFT, Spectral
from gemfi.training import TrainConfig

T = TypeVar("T")

_AUGMENTED: Final = {
    "cifar10": AUGMENTATIONS["standard"],
    "cifar100": AUGMENTATIONS["standard"],
    "svhn": Augmentation(crop=4),  # a digit in the mirror is not a digit
}
"""Task -> the augmentation of its matched recipe; what others bear, their users know."""

RecipeName = Literal["matched", "own"]


@dataclass(frozen=True)
class OwnData:
    """How a user's own files are read; see `task_from_path`.

    Attributes:
        label: of a table, the column of the labels; by default the last.
        size: of a folder, make every image size × size, cropped to a square.
        grey: of a folder, read one channel in place of three.
        ood_validation: files or folders of unfamiliar data of the same kind, for tuning.
        ood_test: files or folders of unfamiliar data of the same kind, to report.
    """

    label: str | None = None
    size: int | None = None
    grey: bool = False
    ood_validation: tuple[str, ...] = ()
    ood_test: tuple[str, ...] = ()

    def task(self, path: str) -> Task:
        """The task of the files at a path."""
        return task_from_path(
            path,
            label=-1 if self.label is None else self.label,
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
        if isinstance(head, GEMConfig) and head.sn:
            options.setdefault("spectral", SOFT)  # as build_model has it
        # through plain values, so that 15 and 15.0 are one setting
        object.__setattr__(self, "head", None if head is None else _checked(head, "head"))
        object.__setattr__(self, "train", _checked(self.train, "train"))
        object.__setattr__(self, "backbone_options", _complete(self.backbone, options))

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

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits of the whole spec."""
        text = json.dumps(self.to_plain(), sort_keys=True)
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
        options = dict(self.backbone_options)
        if "spectral" in options:
            options["spectral"] = from_plain(Spectral, options["spectral"], "spectral")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.train.seed)
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
                f"--label, --size, --grey, --ood-validation and --ood-test are for your own files; "
                f"{name!r} is a task of the library (a folder of that name is ./{name})"
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


def matched_spec(name: str, method_name: str, task: Task | None = None) -> RunSpec:
    """A spec for any task: the backbone follows from the shape of its training samples.

    Args:
        name: of the task.
        method_name: a name in `METHODS`.
        task: the task itself, if it is at hand.
    """
    return make_spec(name, method_name, task or find_task(name))


def own_spec(name: str, method_name: str, task: Task | None = None) -> RunSpec:
    """The settings of the method's own paper, for mnist and cifar10; see `gemfi.recipes`."""
    own_recipe(method_name, name)  # says what there is, before data is read
    return make_spec(name, method_name, task or find_task(name), recipe="own")


def make_spec(
    name: str,
    method_name: str,
    task: Task,
    *,
    recipe: RecipeName = "matched",
    backbone: str | None = None,
    options: Sequence[str] = (),
    outliers: Kind | None = None,
    settings: Sequence[str] = (),
    train: Mapping[str, Any] | None = None,
    normalise: bool = True,
    own: OwnData = OwnData(),  # noqa: B008 - frozen
) -> RunSpec:
    """A recipe with changes, as the command line gives them.

    Args:
        name: of the task.
        method_name: a name in `METHODS`.
        task: the task, whose training samples decide what the recipe leaves open.
        recipe: `matched`, one for all methods, or the method's `own`.
        backbone: another backbone than the recipe's.
        options: texts `name=value` for the backbone.
        outliers: another kind than the recipe's, with the settings that go with it.
        settings: texts `name=value` for the method's configuration.
        train: fields of `TrainConfig`; None keeps the recipe's value.
        normalise: False for inputs as they are; otherwise by the task's constants, if it has any
            and the recipe uses them.
        own: how the user's own data were read.
    """
    shape = tuple(task.train.x.shape[1:])
    chosen = own_recipe(method_name, name) if recipe == "own" else matched_recipe(shape, name)
    given = dict(chosen.backbone_options)
    if backbone is not None and backbone != chosen.backbone:
        given = _input_options(backbone, shape)
    else:
        backbone = chosen.backbone
    changes = {key: value for key, value in (train or {}).items() if value is not None}
    return RunSpec(
        task=name,
        method=method_name,
        backbone=backbone,
        backbone_options=given | _parsed_options(backbone, options),
        head=_head(method_name, chosen, outliers, settings),
        train=replace(chosen.train, **changes),
        normalise=normalise and chosen.normalise and task.normalisation is not None,
        own=own,
    )


def matched_recipe(shape: Sequence[int], name: str = "") -> Recipe:
    """Backbone by the shape of a sample: grey image, colour image, or numbers.

    Args:
        shape: of a sample.
        name: of the task; it decides the augmentation, which is none for most.
    """
    if len(shape) == 3 and shape[1] == shape[2] >= 8:
        backbone = "resnet18" if shape[0] == 3 else "convnet"
        options = _input_options(backbone, shape)
        if backbone == "resnet18":
            options["width"] = 16
        augmentation = _AUGMENTED.get(name, Augmentation())
        return Recipe(TrainConfig(augmentation=augmentation), backbone, options)
    return Recipe(TrainConfig(), "mlp", _input_options("mlp", shape))


def _input_options(backbone: str, shape: Sequence[int]) -> dict[str, Any]:
    """The options of a backbone that follow from the shape of a sample."""
    known = _parameters(backbone)
    if "in_features" in known:
        return {"in_features": int(torch.Size(shape).numel())}
    if len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(
            f"{backbone} takes square images (channels, size, size), but a sample is "
            f"{tuple(shape)}; use --backbone mlp"
        )
    return {"in_channels": int(shape[0]), "size": int(shape[1])}


def _checked(config: T, where: str) -> T:
    return from_plain(type(config), to_plain(config), where)


def _head(method_name: str, recipe: Recipe, outliers: Kind | None, settings: Sequence[str]) -> Any:
    """The method's configuration: its default, the recipe's fields, and what was asked for."""
    head = method(method_name).default_config()
    head = replace(head, **recipe.head) if recipe.head else head
    head = head if outliers is None else _with_outliers(head, method_name, outliers)
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
        able = [n for n, each in METHODS.items() if hasattr(each.default_config(), "outliers")]
        raise InputError(
            f"{method_name} has no term on outliers, so --outliers {kind} means nothing to it; "
            f"these have one: {', '.join(able)}"
        )
    share = OutlierConfig().scrambled if kind in ("halo", "scrambled") else 0.0
    chosen = {"none": NONE, "vos": VOS}.get(kind, OutlierConfig(kind=kind, scrambled=share))
    return replace(head, outliers=chosen)


def _parameters(backbone: str) -> dict[str, tuple[Any, Any]]:
    """Argument of a backbone -> its type and its default."""
    if backbone not in BACKBONES:
        raise InputError(f"unknown backbone {backbone!r}; known: {', '.join(BACKBONES)}")
    maker = BACKBONES[backbone]
    hints = get_type_hints(maker if inspect.isfunction(maker) else vars(maker)["__init__"])
    return {
        name: (hints[name], each.default)
        for name, each in inspect.signature(maker).parameters.items()
    }


def _complete(backbone: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of a backbone as a plain value: those given, checked, and the defaults."""
    known = _parameters(backbone)
    where = "backbone_options"
    for name in options:
        if name not in known:
            raise InputError(
                f"{where}.{name}: {backbone} has no such option; known: {', '.join(known)}"
            )
    complete = {}
    for name, (hint, default) in known.items():
        value = options.get(name, default)
        if value is inspect.Parameter.empty:
            raise InputError(f"{where}: {backbone} needs {name}")
        complete[name] = to_plain(decode(hint, to_plain(value), f"{where}.{name}"))
    return complete


def _parsed_options(backbone: str, texts: Sequence[str]) -> dict[str, Any]:
    """Texts such as `width=16` or `spectral.kind=off` as options of a backbone."""
    known = _parameters(backbone)
    found: dict[str, Any] = {}
    for text in texts:
        where = f"--backbone-options {text}"
        name, value = split_setting(text, "--backbone-options")
        first, _, inner = name.partition(".")
        if first not in known:
            raise InputError(f"{where}: {backbone} has no such option; known: {', '.join(known)}")
        hint, default = known[first]
        if inner:
            found[first] = with_settings(
                found.get(first, default), [f"{inner}={value}"], "--backbone-options", f"{first}."
            )
        else:
            found[first] = parse(hint, value, where)
    return found
