"""From a name to a split with a role.

Validation and calibration data are carved out of train with a fixed seed, so that every run of
every method sees the same images, and a part that its publisher calls test can only ever become
`test` or `ood-test`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from gemfi._files import DATA_VARIABLE, data_root
from gemfi.data.readers import Pictures
from gemfi.data.registry.cache import read_cached
from gemfi.data.registry.record import DataSet, Form, Part
from gemfi.data.registry.sets import DATA_SETS
from gemfi.data.splits import CARVED_ROLES, Role, Split
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
    part = _part(entry, split)
    if wanted is None:
        wanted = part.roles[0]
    if wanted not in part.roles:
        raise RoleError(_refusal(entry, split, part, wanted))
    if wanted is Role.TRAIN and entry.held_out:
        return _carved(entry, Role.TRAIN, folder)
    return _whole(entry, split, wanted, folder)


def find_form(entry: DataSet, part: str, root: Path) -> Form | None:
    """The form in which a part is here; None where it is not."""
    return next((form for form in entry.parts[part].forms if form.is_here(root)), None)


def read_part(
    entry: DataSet, part: str, root: Path, *, cached: bool = True
) -> tuple[Form, Pictures]:
    """Read a part whole, and check it against the entry.

    Args:
        entry: the set.
        part: its name.
        root: the data folder.
        cached: whether what is slow to read may come from the cache.
    """
    form = find_form(entry, part, root)
    if form is None:
        raise missing(entry, part, root)
    name = f"{entry.name}-{part}"
    paths = form.paths(root)
    pictures = read_cached(form, name, root) if cached and form.slow else form.read(*paths)
    if pictures.images.shape[1:] != entry.shape:
        raise InputError(
            f"{paths[0]}: {entry.title} has images {entry.shape}, found {pictures.images.shape[1:]}"
        )
    return form, pictures


def missing(entry: DataSet, part: str, root: Path) -> MissingDataError:
    """The error for a part that is not here: which file, where it was sought, how to get it."""
    absent = [p for p in entry.parts[part].forms[0].paths(root) if not p.exists()]
    get = f"run: gemfi data fetch {entry.name}" if entry.files else "place it there"
    return MissingDataError(
        f"{entry.title} ({part}) is not here: no {absent[0]}; {get}, or set {DATA_VARIABLE} to the "
        "folder that holds it"
    )


def _part(entry: DataSet, split: str) -> Part:
    if split not in entry.parts:
        carved = [role.value for role in CARVED_ROLES] if entry.held_out else []
        known = ", ".join([*entry.parts, *sorted(carved, reverse=True)])
        raise InputError(f"{entry.name} has no split {split!r}; it has: {known}")
    return entry.parts[split]


def _refusal(entry: DataSet, split: str, part: Part, wanted: Role) -> str:
    allowed = " or ".join(part.roles)
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
    return f"{entry.name}/{split} may be used as {allowed}, not as {wanted}: {why}"


def _whole(entry: DataSet, part: str, role: Role, root: Path) -> Split:
    form, pictures = read_part(entry, part, root)
    label = form.label
    if label == part or form.made:  # other forms say by themselves what a part they are
        label += _shortfall(entry, part, pictures)
    return _split(entry, pictures, role, label)


def _carved(entry: DataSet, role: Role, root: Path) -> Split:
    """Train, validation or calibration data: disjoint, and the same on every machine."""
    _, pictures = read_part(entry, "train", root)
    if pictures.labels is None:
        raise InputError(f"{entry.title}: its training images have no labels")
    # Row numbers are carved in place of the images, of which only one part is wanted.
    labels = torch.from_numpy(pictures.labels)
    numbers = torch.arange(len(labels), dtype=torch.float32)[:, None]  # exact below 2**24
    rest = Split(numbers, labels, Role.TRAIN, f"{entry.name}/train", entry.num_classes)
    found = {}
    for carved in (Role.VALIDATION, Role.CALIBRATION):
        rest, found[carved] = rest.carve(entry.held_out, carved, seed=SPLIT_SEED)
    found[Role.TRAIN] = rest
    rows = found[role].x[:, 0].long().numpy()
    chosen = Pictures(pictures.images[rows], pictures.labels[rows], pictures.class_names)
    return _split(entry, chosen, role, f"{role}{_shortfall(entry, 'train', pictures)}")


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
