"""From a name to a split with a role, and to a task.

Validation and calibration data are carved out of train with a fixed seed, so that every run of
every method sees the same images. A part that its publisher calls test can only become `test` or
`ood-test`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch

from gemfi._files import DATA_VARIABLE, data_root
from gemfi.data.normalisation import Normalisation
from gemfi.data.readers import Pictures
from gemfi.data.registry.cache import read_cached
from gemfi.data.registry.entries import DataSet, Form, Part
from gemfi.data.registry.sets import DATA_SETS, OOD_SETS
from gemfi.data.sampling import stratified_indices
from gemfi.data.splits import CARVED_ROLES, Role, Split
from gemfi.data.task import Task
from gemfi.errors import InputError, MissingDataError, RoleError

SPLIT_SEED: Final = 0
"""Of the carving; not the seed of a run."""


def data_set(name: str) -> DataSet:
    """The entry of a name, or an error that lists the names."""
    if name not in DATA_SETS:
        raise InputError(f"unknown data set {name!r}; known: {', '.join(DATA_SETS)}")
    return DATA_SETS[name]


def load_split(
    name: str, split: str, *, role: Role | str | None = None, root: Path | str | None = None
) -> Split:
    """Read a split of a registered data set into memory: uint8 images with labels and a role.

    Args:
        name: a key of `DATA_SETS`.
        split: `train`, `validation`, `calibration` or `test`; or another part of the set.
        role: what it will be used for, where that is not what its name says: the test part of one
            set is an `ood-test` set for another. Parts say which roles they may have.
        root: the data folder; None for `GEMFI_DATA` or the platform's cache folder.

    Example:
        >>> load_split("mnist", "validation")
        Split('mnist/validation', role=validation, x=(5000, 1, 28, 28) torch.uint8, classes=10)
    """
    entry = data_set(name)
    folder = data_root() if root is None else Path(root)
    wanted = None if role is None else Role.parse(role)
    if split in set(CARVED_ROLES) and "train" in entry.parts and entry.held_out:
        if wanted not in (None, Role(split)):
            raise RoleError(
                f"{name}/{split} is carved out of train to be {split} data, not {wanted}"
            )
        return _carved(entry, Role(split), folder)
    if split not in entry.parts:
        carved = ["validation", "calibration"] if entry.held_out else []
        known = ", ".join([*entry.parts, *carved])
        raise InputError(f"{entry.name} has no split {split!r}; it has: {known}")
    part = entry.parts[split]
    wanted = wanted or part.roles[0]
    if wanted not in part.roles:
        raise RoleError(_refusal(entry, split, part, wanted))
    if wanted is Role.TRAIN and entry.held_out:
        return _carved(entry, Role.TRAIN, folder)
    form, pictures = read_part(entry, split, folder)
    label = form.label
    if label == split or form.made:  # other forms say by themselves what a part they are
        label += _shortfall(entry, split, pictures)
    return _split(entry, pictures, wanted, label)


def find_form(entry: DataSet, part: str, root: Path) -> Form | None:
    """The form in which a part is here; None where it is not."""
    return next((form for form in entry.parts[part].forms if form.is_here(root)), None)


def read_part(
    entry: DataSet, part: str, root: Path, *, cached: bool = True
) -> tuple[Form, Pictures]:
    """Read a part whole, from the cache if it is slow to read, and check it against the entry."""
    form = find_form(entry, part, root)
    if form is None:
        raise missing(entry, part, root)
    paths = form.paths(root)
    if cached and form.slow:
        pictures = read_cached(form, f"{entry.name}-{part}", root)
    else:
        pictures = form.read(*paths)
    if pictures.images.shape[1:] != entry.shape:
        raise InputError(
            f"{paths[0]}: {entry.title} has images {entry.shape}, found {pictures.images.shape[1:]}"
        )
    return form, pictures


def missing(entry: DataSet, part: str, root: Path) -> MissingDataError:
    """The error for a part that is not here: which file, where it was sought, how to get it."""
    forms = entry.parts[part].forms
    absent = [path for path in forms[0].paths(root) if not path.exists()]
    ours = ""
    if forms[-1].made:
        ours = (
            f" or, for corruptions of our own, gemfi data corrupt {entry.name.removesuffix('-c')};"
        )
    return MissingDataError(
        f"{entry.title} ({part}) is not here: no {absent[0]}; run: gemfi data fetch {entry.name},"
        f"{ours} or set {DATA_VARIABLE} to the folder that holds it"
    )


def registered_task(name: str, root: Path | str | None = None) -> Task:
    """The task of a key of `OOD_SETS`. Nothing is read before a split is asked for.

    OOD sets that are not here are in `absent`, with what to do; an ID set that is not here is an
    error at once. `root` is as in `load_split`.
    """
    if name not in OOD_SETS:
        raise InputError(f"no task on {name!r}; there are tasks on: {', '.join(OOD_SETS)}")
    folder = data_root() if root is None else Path(root)
    entry = data_set(name)
    if find_form(entry, "train", folder) is None:
        raise missing(entry, "train", folder)
    absent: dict[str, str] = {}

    def outside(names: tuple[str, ...], role: Role) -> dict[str, Callable[[], Split]]:
        sources: dict[str, Callable[[], Split]] = {}
        for ood_name in names:
            other = data_set(ood_name)
            part = next(key for key, part in other.parts.items() if role in part.roles)
            if find_form(other, part, folder) is None:
                absent[ood_name] = str(missing(other, part, folder))
            else:
                sources[ood_name] = partial(load_split, ood_name, part, role=role, root=folder)
        return sources

    own = partial(load_split, name, root=folder)
    constants = entry.mean is not None and entry.std is not None
    return Task(
        name,
        entry.class_names or (),
        train=partial(own, "train"),
        validation=partial(own, "validation"),
        calibration=partial(own, "calibration"),
        test=partial(own, "test"),
        ood_validation=outside(OOD_SETS[name].validation, Role.OOD_VALIDATION),
        ood_test=outside(OOD_SETS[name].test, Role.OOD_TEST),
        normalisation=Normalisation(entry.mean or (), entry.std or ()) if constants else None,
        absent=absent,
    )


def _refusal(entry: DataSet, split: str, part: Part, wanted: Role) -> str:
    if Role.TEST in part.roles or Role.OOD_TEST in part.roles:
        why = (
            "what its publisher calls test is looked at to report, and never learnt from; "
            "validation and calibration data are carved out of train"
        )
    elif Role.OOD_VALIDATION in part.roles:
        why = (
            "it is what options are tuned on, so it can judge nothing, and training must not see it"
        )
    else:
        why = "its images are what models learn from"
    allowed = " or ".join(part.roles)
    return f"{entry.name}/{split} may be used as {allowed}, not as {wanted}: {why}"


def _carved(entry: DataSet, role: Role, root: Path) -> Split:
    """Train, validation or calibration data: disjoint, and the same on every machine."""
    _, pictures = read_part(entry, "train", root)
    if pictures.labels is None:
        raise InputError(f"{entry.title}: its training images have no labels")
    rest, rows = np.arange(len(pictures)), {}
    for carved in (Role.VALIDATION, Role.CALIBRATION):
        chosen = stratified_indices(pictures.labels[rest], entry.held_out, SPLIT_SEED)
        rows[carved], rest = rest[chosen], np.delete(rest, chosen)
    rows[Role.TRAIN] = rest
    own = Pictures(pictures.images[rows[role]], pictures.labels[rows[role]], pictures.class_names)
    return _split(entry, own, role, f"{role}{_shortfall(entry, 'train', pictures)}")


def _shortfall(entry: DataSet, part: str, pictures: Pictures) -> str:
    """What the name of a split adds where a part is not here whole."""
    published = entry.parts[part].count
    if len(pictures) == published:
        return ""
    word = "from " if part == "train" else ""  # of which a part was carved out
    return f", {word}{len(pictures):,} of {published:,}"


def _split(entry: DataSet, pictures: Pictures, role: Role, label: str) -> Split:
    return Split(
        torch.from_numpy(pictures.images),
        None if pictures.labels is None else torch.from_numpy(pictures.labels),
        role,
        f"{entry.name}/{label}",
        entry.num_classes,
        pictures.class_names or entry.class_names,
    )
