"""Images to features of the pretrained network, kept in the data folder; CIFAR-10 made of them.

One safetensors file for each set of images, below `.gemfi/features`. Its name is a digest of
the weights, the images, their size in the network and the version of the code: other images or
weights have another file, and none is ever stale. `Extraction` says what happens if the work is
broken off, or wanted twice.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from gemfi._files import data_root
from gemfi.data.registry import registered_task
from gemfi.data.splits import Split
from gemfi.data.task import Task
from gemfi.errors import InputError
from gemfi.training.features import Extraction, digest_of
from gemfi_bench.frozen.efficientnet_lite import NUM_FEATURES, EfficientNetLite0, prepare
from gemfi_bench.frozen.weights import pretrained, require_weights

SIZE: Final = 96
"""Pixels to which images are enlarged: those of 32 would leave one position at the end."""

SEEN: Final = frozenset({"tiny-imagenet-20", "tiny-imagenet-158"})
"""OOD sets that are of ImageNet, on which the network was trained: not unfamiliar to it."""

FOLDER: Final = Path(".gemfi") / "features"

_VERSION: Final = 1  # raise it when the same images and weights give other features
_BATCH: Final = 32  # larger ones are no faster; the features do not depend on it


def frozen_features(
    images: Tensor,
    root: Path | str | None = None,
    *,
    keep: bool = True,
    name: str = "images",
    progress: bool | None = None,
) -> Tensor:
    """The features (N, 1280) of images, float32: from the cache, or computed and put there.

    About 130 images for each second of processor time, and 5 kB each in the cache, which is mapped
    and not read into memory. A data folder that may not be written to is used without a cache.

    Args:
        images: uint8 (N, 3, H, W) of at most 96 × 96 pixels, such as those of CIFAR-10.
        root: the data folder, with the weights; None for `GEMFI_DATA` or the platform's.
        keep: False to leave no file, as for images that are asked about once.
        name: of the images, for the progress bar.
        progress: whether to show one; None: if standard error is a terminal.
    """
    if len(images) == 0:
        raise InputError("expected at least one image")
    prepare(images[:1], SIZE)  # says what is wrong with them before anything is read
    folder = data_root() if root is None else Path(root)
    source = pretrained(folder)
    # a third faster on a processor
    network = source.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    run = partial(run_network, network)
    work = Extraction(run, images, NUM_FEATURES, batch=_BATCH, name=name, progress=progress)
    text = f"{_VERSION}:{SIZE}:{source.digest}:{digest_of({'images': images})}"
    key = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    file = folder / FOLDER / f"{key}.safetensors"
    existing = next(parent for parent in file.parents if parent.exists())
    if keep and os.access(existing, os.W_OK):
        return work.cached(file)
    stored = work.stored(file)
    return work.in_memory() if stored is None else stored


def run_network(network: EfficientNetLite0, images: Tensor) -> Tensor:
    """The features of a batch of images (B, 3, H, W)."""
    x = prepare(images, SIZE).contiguous(memory_format=torch.channels_last)
    features: Tensor = network(x)
    return features


def cifar10_frozen(root: Path | str | None = None) -> Task:
    """CIFAR-10 as features (N, 1280) of EfficientNet-Lite0, with the splits and roles of `cifar10`.

    Features are extracted when a split is first asked for, and kept in the data folder. The name
    of an OOD test set that the network has seen in pretraining says so; such a set tunes nothing.

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
        ood_validation={
            name: validation_set(name) for name in here.ood_validation if name not in SEEN
        },
        ood_test={name: test_set(name) for name in here.ood_test},
        absent=here.absent,
    )
