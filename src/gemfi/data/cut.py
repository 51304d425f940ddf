"""Cutting a data set that comes in one piece into train, validation, calibration and test."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from gemfi.data.sampling import stratified_indices
from gemfi.data.splits import Role, Split
from gemfi.errors import InputError

TEST_FRACTION: Final = 0.2
VALIDATION_FRACTION: Final = 0.1
CALIBRATION_FRACTION: Final = 0.1


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
    total = len(y)
    counts = torch.bincount(y, minlength=len(class_names))
    if int(counts.min()) < 5:
        rare = int(counts.argmin())
        raise InputError(
            f"{name!r}: class {class_names[rare]!r} has {int(counts[rare])} samples; cutting a set "
            "into train, validation, calibration and test takes at least 5 of each class"
        )
    held = torch.from_numpy(stratified_indices(y.numpy(), round(TEST_FRACTION * total), seed))
    kept = torch.ones(total, dtype=torch.bool)
    kept[held] = False
    classes = len(class_names)
    test = Split(x[held], y[held], Role.TEST, name, classes, class_names)
    train = Split(x[kept], y[kept], Role.TRAIN, name, classes, class_names)
    train, validation = train.carve(round(VALIDATION_FRACTION * total), "validation", seed=seed)
    train, calibration = train.carve(round(CALIBRATION_FRACTION * total), "calibration", seed=seed)
    return {split.role: split for split in (train, validation, calibration, test)}
