"""Recipes: how each method's own paper trains it, by data set (`recipes.toml`).

`paper_recipe("daedl", "cifar10")` is optimiser, schedule, budget, backbone, augmentation and head
as the paper, or its code where that says more, has them; its `notes` say what could not be
followed.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from gemfi._config import from_plain, to_plain
from gemfi.data.augmentation import AUGMENTATIONS
from gemfi.errors import InputError
from gemfi.methods import METHODS, PAPER_PRESETS, PRESETS, PaperConfig, method
from gemfi.outliers import VOS
from gemfi.runs.spec import Recipe
from gemfi.training.config import TrainConfig

DATASETS: Final = ("mnist", "cifar10")

_READ: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_VOS: Final = to_plain(VOS)

OWN: Final = tuple(name for name in METHODS if name in _READ["mnist"])
"""Methods that have a recipe of their own."""


def paper_recipe(method_name: str, dataset: str) -> Recipe:
    """The recipe of a method's own paper, on `mnist` or `cifar10`."""
    name = method(method_name).info.name
    _check_dataset(dataset)
    if name not in OWN:
        why = "; use the recipe matched"
        if name in PRESETS:
            why = ": it is this project's, and the paper's is gem-paper"
        raise InputError(f"{name} has no recipe of its own{why}")
    plain = _assembled(f"{dataset}.{name}")
    augmentation = plain.pop("augmentation", None)
    train = from_plain(TrainConfig, plain.pop("train"), "train")
    if augmentation is not None:
        train = replace(train, augmentation=AUGMENTATIONS[augmentation])
    notes = tuple(_READ["notes"].get(note, note) for note in plain.pop("notes", []))
    if name == "gem-paper":
        config = gem_config("gem-fi", dataset)
        plain["head"] = {field.name: getattr(config, field.name) for field in fields(config)}
    return Recipe(train=train, notes=notes, **plain)


def gem_config(preset: str, dataset: str, *, released: bool = False) -> PaperConfig:
    """A GEM preset with the paper's values for a data set.

    With `released`, it also takes over what the released code does differently.
    """
    if preset not in PAPER_PRESETS:
        raise InputError(f"unknown preset {preset!r}; known: {', '.join(PAPER_PRESETS)}")
    _check_dataset(dataset)
    config = PAPER_PRESETS[preset]
    changes = _READ[dataset]["gem-paper"]["head"] | (_READ["released"] if released else {})
    changes["outliers"] = _VOS | changes.get("outliers", {})
    weights = ("fi_reg_weight", "fi_mod_strength", "ebm_weight", "unc_weight")
    off = {name for name in weights if getattr(config, name) == 0}  # by the preset
    off |= {"outliers"} if config.outliers.is_none else set()
    off |= {"num_components"} if config.num_components == 1 else set()
    kept = {name: value for name, value in changes.items() if name not in off}
    return from_plain(PaperConfig, to_plain(config) | kept, "recipes.toml")


def _assembled(name: str) -> dict[str, Any]:
    """A recipe with the parts that it is like, later ones over earlier ones."""
    group, _, own = name.rpartition(".")
    entries = dict(_READ[group or "parts"][own])
    whole: dict[str, Any] = {}
    for part in [*map(_assembled, entries.pop("like", [])), entries]:
        for key, value in part.items():
            whole[key] = whole.get(key, {}) | value if isinstance(value, dict) else value
    return whole


def _check_dataset(dataset: str) -> None:
    if dataset not in DATASETS:
        raise InputError(
            f"methods have recipes of their own for {', '.join(DATASETS)}, not for {dataset!r}; "
            "use the recipe matched"
        )
