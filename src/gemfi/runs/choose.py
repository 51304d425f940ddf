"""Choosing a spec: one recipe for all methods, or a method's own, with what the user changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gemfi._config import parse, split_setting, with_settings
from gemfi.backbones import input_options, parameters
from gemfi.data import Task
from gemfi.data.augmentation import AUGMENTATIONS, Augmentation
from gemfi.errors import InputError
from gemfi.methods import METHODS, gem_paper, method
from gemfi.outliers import NONE, VOS, Kind, OutlierConfig
from gemfi.runs.spec import OwnData, RunSpec, find_task
from gemfi.training import TrainConfig

_AUGMENTED: Final = {
    "cifar10": AUGMENTATIONS["standard"],
    "cifar100": AUGMENTATIONS["standard"],
    "svhn": Augmentation(crop=4),  # a digit in the mirror is not a digit
}
"""Task -> the augmentation of its matched recipe; what others bear, their users know."""


@dataclass(frozen=True)
class Recipe:
    """How to train a method on one data set.

    Attributes:
        train: optimiser, schedule and budget.
        backbone: a name in `BACKBONES`.
        backbone_options: its arguments, the dropout among them.
        head: fields of the method's configuration that the recipe sets.
        normalise: standardise inputs, where the data set has constants for it.
        notes: where it is not what the paper did, and why.
    """

    train: TrainConfig
    backbone: str
    backbone_options: Mapping[str, Any] = field(default_factory=dict)
    head: Mapping[str, Any] = field(default_factory=dict)
    normalise: bool = True
    notes: tuple[str, ...] = ()


def matched_spec(name: str, method_name: str, task: Task | None = None) -> RunSpec:
    """A spec for any task: the backbone follows from the shape of its training samples.

    Args:
        name: of the task.
        method_name: a name in `METHODS`.
        task: the task itself, if it is at hand.
    """
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
        task: the task, whose training samples decide what the recipe leaves open.
        recipe: what to begin with; None for the one of `matched_recipe`, the same for all methods.
        backbone: another backbone than the recipe's.
        options: texts `name=value` for the backbone.
        preset: a name in `gem_paper.presets()`, for gem-paper.
        outliers: another kind than the recipe's, with the settings that go with it.
        settings: texts `name=value` for the method's configuration.
        head: a whole configuration of the method, in place of preset, outliers and settings.
        train: fields of `TrainConfig`; None keeps the recipe's value.
        normalise: False for inputs as they are; otherwise by the task's constants, if it has any
            and the recipe uses them.
        own: how the user's own data were read.
    """
    shape = tuple(task.train.x.shape[1:])
    chosen = matched_recipe(shape, name, len(task.train)) if recipe is None else recipe
    given = dict(chosen.backbone_options)
    if backbone is not None and backbone != chosen.backbone:
        given = input_options(backbone, shape)
    else:
        backbone = chosen.backbone
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
        samples: to train on; few of them come in small batches, so that there are steps enough.
    """
    train = TrainConfig(batch_size=_batch_size(samples))
    if len(shape) == 3 and shape[1] == shape[2] >= 8:
        backbone = "resnet18" if shape[0] == 3 else "convnet"
        options = input_options(backbone, shape)
        if backbone == "resnet18":
            options["width"] = 16
        augmentation = _AUGMENTED.get(name, Augmentation())
        return Recipe(replace(train, augmentation=augmentation), backbone, options)
    return Recipe(train, "mlp", input_options("mlp", shape))


def _batch_size(samples: int) -> int:
    """The power of two from 16 to 128 that leaves twenty batches an epoch, if one does."""
    return min(128, max(16, 1 << int(math.log2(max(1, samples / 20)))))


def _head(
    method_name: str,
    recipe: Recipe,
    preset: str | None,
    outliers: Kind | None,
    settings: Sequence[str],
) -> Any:
    """The method's configuration: its default, the recipe's fields, and what was asked for."""
    head = method(method_name).default_config()
    head = replace(head, **recipe.head) if recipe.head else head
    if preset is not None:
        if method_name != "gem-paper":
            raise InputError(f"--preset {preset} is one of gem-paper, not of {method_name}")
        head = gem_paper.preset(preset, head)
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


def _parsed_options(backbone: str, texts: Sequence[str]) -> dict[str, Any]:
    """Texts such as `width=16` or `spectral.kind=off` as options of a backbone."""
    known = parameters(backbone)
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
