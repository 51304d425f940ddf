"""The task `cifar10-frozen`: CIFAR-10 and its OOD sets as features of a pretrained network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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

    def features(of: Callable[[Task], Split], name: str = "") -> Callable[[], Split]:
        def extract() -> Split:
            split = of(registered_task("cifar10", folder))  # anew: no images stay in memory
            x = frozen_features(split.x, folder, name=split.name)
            mark = ", seen in pretraining" if name in SEEN else ""
            return replace(split, x=x, name=f"{split.name}{mark}")

        return extract

    def validation_set(name: str) -> Callable[[], Split]:
        return features(lambda task: task.ood_validation[name], name)

    def test_set(name: str) -> Callable[[], Split]:
        return features(lambda task: task.ood_test[name], name)

    return Task(
        "cifar10-frozen",
        here.class_names,
        train=features(lambda task: task.train),
        validation=features(lambda task: task.validation),
        calibration=features(lambda task: task.calibration),
        test=features(lambda task: task.test),
        ood_validation={name: validation_set(name) for name in here.ood_validation},
        ood_test={name: test_set(name) for name in here.ood_test},
        absent=here.absent,
    )
