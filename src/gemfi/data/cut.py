"""Cutting a data set that comes in one piece into train, validation, calibration and test."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from gemfi.data.sampling import stratified_indices
from gemfi.data.splits import Role, Split
from gemfi.errors import InputError

_FRACTIONS: Final = {Role.TEST: 0.2, Role.VALIDATION: 0.1, Role.CALIBRATION: 0.1}


def cut(
    x: Tensor, y: Tensor, class_names: tuple[str, ...], name: str, *, seed: int = 0
) -> dict[Role, Split]:
    """A fifth for test, a tenth each for validation and calibration, the rest for training.

    Each keeps the proportions of the classes and the order of the samples.

    Args:
        x: (N, ...) samples.
        y: (N,) labels.
        class_names: one a class.
        name: of each split.
        seed: which samples go where; not the seed of a run.
    """
    classes = len(class_names)
    return {
        role: Split(x[rows], y[rows], role, name, classes, class_names)
        for role, rows in cut_rows(y, class_names, name, seed=seed).items()
    }


def cut_rows(
    y: Tensor, class_names: tuple[str, ...], name: str, *, seed: int = 0
) -> dict[Role, Tensor]:
    """Which samples go where; arguments as in `cut`."""
    total = len(y)
    counts = torch.bincount(y, minlength=len(class_names))
    if int(counts.min()) < 5:
        rare = int(counts.argmin())
        raise InputError(
            f"{name!r}: class {class_names[rare]!r} has {int(counts[rare])} samples; cutting a set "
            "into train, validation, calibration and test takes at least 5 of each class"
        )
    labels, rest = y.numpy(), np.arange(total)
    found = {}
    for role, fraction in _FRACTIONS.items():
        held = stratified_indices(labels[rest], round(fraction * total), seed)
        found[role] = torch.from_numpy(rest[held])
        rest = np.delete(rest, held)
    return {Role.TRAIN: torch.from_numpy(rest), **found}
