"""Tasks on registered data sets: which sets tune, and which judge, a classifier of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gemfi._files import data_root
from gemfi.data.normalisation import Normalisation
from gemfi.data.registry.load import data_set, find_form, load_split, missing
from gemfi.data.splits import Role, Split
from gemfi.data.task import Task
from gemfi.errors import InputError


@dataclass(frozen=True)
class Against:
    """The OOD sets of an ID set: for tuning, and to report."""

    validation: tuple[str, ...]
    test: tuple[str, ...]


NO_SETS: Final = Against((), ())

AGAINST: Final[Mapping[str, Against]] = MappingProxyType(
    {
        "mnist": Against(("notmnist",), ("kmnist", "fashion-mnist")),
        "fashion-mnist": Against(("notmnist",), ("mnist", "kmnist")),
        "kmnist": Against(("notmnist",), ("mnist", "fashion-mnist")),
        "cifar10": Against(("dtd",), ("svhn", "cifar100", "tiny-imagenet-178")),
        "cifar100": Against(("dtd",), ("svhn", "cifar10", "tiny-imagenet")),
        "svhn": Against(("dtd",), ("cifar10", "cifar100", "tiny-imagenet")),
    }
)
"""ID set -> its OOD sets. The first and the fourth are the paper's, with OOD validation sets."""


def registered_task(name: str, root: Path | str | None = None) -> Task:
    """The task of an ID set of the registry. Nothing is read before a split is asked for.

    OOD sets that are not here are in `absent`, with what to do; an ID set that is not here is an
    error at once.

    Args:
        name: a key of `AGAINST`.
        root: the data folder; None for `GEMFI_DATA` or the platform's cache folder.
    """
    if name not in AGAINST:
        raise InputError(f"no task on {name!r}; there are tasks on: {', '.join(AGAINST)}")
    folder = data_root() if root is None else Path(root)
    entry = data_set(name)
    if find_form(entry, "train", folder) is None:
        raise missing(entry, "train", folder)
    absent: dict[str, str] = {}
    normalisation = None
    if entry.mean is not None and entry.std is not None:
        normalisation = Normalisation(entry.mean, entry.std)

    def outside(names: tuple[str, ...], role: Role) -> dict[str, Callable[[], Split]]:
        found: dict[str, Callable[[], Split]] = {}
        for each in names:
            other = data_set(each)
            part = next(p for p in other.parts if role in other.parts[p].roles)
            if find_form(other, part, folder) is None:
                absent[each] = str(missing(other, part, folder))
            else:
                found[each] = partial(load_split, each, part, role=role, root=folder)
        return found

    return Task(
        name,
        entry.class_names or (),
        train=partial(load_split, name, "train", root=folder),
        validation=partial(load_split, name, "validation", root=folder),
        calibration=partial(load_split, name, "calibration", root=folder),
        test=partial(load_split, name, "test", root=folder),
        ood_validation=outside(AGAINST[name].validation, Role.OOD_VALIDATION),
        ood_test=outside(AGAINST[name].test, Role.OOD_TEST),
        normalisation=normalisation,
        absent=absent,
    )
