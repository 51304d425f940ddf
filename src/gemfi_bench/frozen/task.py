"""The task `cifar10-frozen`: CIFAR-10 and its OOD sets as features of a pretrained network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from gemfi._files import data_root
from gemfi.data.registry import registered_task
from gemfi.data.splits import Split
from gemfi.data.task import Task
from gemfi_bench.frozen.features import frozen_features
from gemfi_bench.frozen.weights import require_weights

SEEN: Final = frozenset({"tiny-imagenet-178"})
"""OOD sets that are of ImageNet, on which the network was trained: not unfamiliar to it."""


def cifar10_frozen(root: Path | str | None = None) -> Task:
    """CIFAR-10 as features (N, 1280) of EfficientNet-Lite0, with the splits and roles of `cifar10`.

    Features are extracted when a split is first asked for, and kept in the data folder. The name
    of an OOD set that the network has seen in pretraining says so.

    Args:
        root: the data folder; None for `GEMFI_DATA` or the platform's cache folder.
    """
    folder = data_root() if root is None else Path(root)
    here = registered_task("cifar10", folder)  # which sets there are; it reads none
    require_weights(folder)

    def images() -> Task:
        return registered_task("cifar10", folder)  # anew, so that no images stay in memory

    def tuning(name: str) -> Callable[[], Split]:
        return partial(_features, lambda: images().ood_validation[name], folder, _mark(name))

    def judging(name: str) -> Callable[[], Split]:
        return partial(_features, lambda: images().ood_test[name], folder, _mark(name))

    return Task(
        "cifar10-frozen",
        here.class_names,
        train=partial(_features, lambda: images().train, folder),
        validation=partial(_features, lambda: images().validation, folder),
        calibration=partial(_features, lambda: images().calibration, folder),
        test=partial(_features, lambda: images().test, folder),
        ood_validation={name: tuning(name) for name in here.ood_validation},
        ood_test={name: judging(name) for name in here.ood_test},
        absent=here.absent,
    )


def _features(read: Callable[[], Split], root: Path, mark: str = "") -> Split:
    """The features of a split of images, with its labels and its role."""
    split = read()
    features = frozen_features(split.x, root, name=split.name)
    return replace(split, x=features, name=f"{split.name}{mark}")


def _mark(name: str) -> str:
    return ", seen in pretraining" if name in SEEN else ""
