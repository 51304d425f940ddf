"""`gemfi data corrupt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import tyro

from gemfi._files import data_root
from gemfi.cli import options
from gemfi.data import load_split
from gemfi.data.registry.sets import GENERATED
from gemfi.errors import InputError
from gemfi_bench.corruptions.apply import FAMILIES, MADE_SEED, write_published_layout

PUBLISHED_FOLDERS: Final = {"mnist": "mnist_c", "cifar10": "CIFAR-10-C"}
"""Name of the clean set -> the folder of its published corruptions."""


def corrupt(
    name: Annotated[str, tyro.conf.Positional, options.shown_as("NAME")],
    types: Annotated[tuple[str, ...], options.shown_as("TYPE ...")] = (),
    out: options.Folder = None,
    seed: int = MADE_SEED,
) -> None:
    """Corrupt the test images of mnist or cifar10, in the layout of MNIST-C or CIFAR-10-C.

    Args:
        name: mnist or cifar10.
        types: which corruptions; all of them by default (15 or 19).
        out: folder to write to; by default one in the data folder, from which mnist-c and
            cifar10-c are read where the published files are not here.
        seed: of the random draws; another than the default needs --out.
    """
    if name not in PUBLISHED_FOLDERS:
        known = ", ".join(PUBLISHED_FOLDERS)
        raise InputError(f"no corruptions of {name!r}; expected one of {known}")
    root, published = data_root(), PUBLISHED_FOLDERS[name]
    folder = Path(out) if out is not None else root / GENERATED / published
    if out is None and seed != MADE_SEED:
        raise InputError(
            f"--seed {seed} needs --out: {folder} holds corruptions of seed {MADE_SEED}"
        )
    if folder.resolve() == (root / published).resolve():
        raise InputError(f"--out {folder} is the place of the published files; choose another")
    test = load_split(name, "test")
    written = write_published_layout(
        test.x, test.labels, folder, family=name, names=types or None, seed=seed
    )
    count = len(types or FAMILIES[name])
    print(f"Wrote {len(written)} files to {folder}: {test.name} under {count} corruptions.")
    print("These are our own corruptions, not the published arrays: see docs/corruptions.md.")
