"""Images to features of the pretrained network, kept in the data folder.

One safetensors file for each set of images, below `.gemfi/features`. Its name is a digest of
the weights, the images, their size in the network and the version of the code: other images or
weights have another file, and none is ever stale. One process extracts at a time, since it takes
all cores anyway; another that wants the same features waits and finds them.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from tqdm import tqdm

from gemfi.backbones.efficientnet_lite import NUM_FEATURES, EfficientNetLite0, prepare
from gemfi.data.frozen.stored import digest_of, read_tensors, write_tensors
from gemfi.data.frozen.weights import pretrained
from gemfi.errors import InputError
from gemfi.locks import alone
from gemfi.places import data_root

SIZE: Final = 96
"""Pixels to which images are enlarged: those of 32 would leave one position at the end."""

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

    About 130 images for each second of processor time, and 5 kB each in the cache. A data folder
    that may not be written to is used without a cache.

    Args:
        images: uint8 (N, 3, H, W) of at most 96 × 96 pixels, such as `load("cifar10", "test").x`.
        root: the data folder, with the weights; None for `GEMFI_DATA` or the platform's.
        keep: False to leave no file, as for images that are asked about once.
        name: of the images, for the progress bar.
        progress: whether to show one; None: if standard error is a terminal.
    """
    _check(images)
    folder = data_root() if root is None else Path(root)
    source = pretrained(folder)
    file = folder / FOLDER / f"{_key(images, source.digest)}.safetensors"
    found = _load(file, len(images))
    if found is not None:
        return found
    if not keep or not _may_write(file):
        return extract(source.network, images, name=name, progress=progress)
    file.parent.mkdir(parents=True, exist_ok=True)

    def waiting() -> None:
        if progress is not False:
            print("waiting for another process to extract features", file=sys.stderr)

    with alone(file.with_name(".lock"), waiting):
        found = _load(file, len(images))  # it may have come
        if found is None:
            found = extract(source.network, images, name=name, progress=progress)
            write_tensors(file, {"features": found}, name=name)
    return found


@torch.no_grad()
def extract(
    network: EfficientNetLite0,
    images: Tensor,
    *,
    name: str = "images",
    progress: bool | None = None,
) -> Tensor:
    """Run images (N, 3, H, W) through a network in evaluation mode, a batch at a time."""
    # a third faster on a processor
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    features = torch.empty(len(images), NUM_FEATURES)
    hidden = None if progress is None else not progress
    with tqdm(
        total=len(images), desc=f"features of {name}", unit="image", disable=hidden, leave=False
    ) as bar:
        for start in range(0, len(images), _BATCH):
            x = prepare(images[start : start + _BATCH], SIZE)
            x = x.contiguous(memory_format=torch.channels_last)
            features[start : start + len(x)] = network(x)
            bar.update(len(x))
    return features


def _check(images: Tensor) -> None:
    if len(images) == 0:
        raise InputError("expected at least one image")
    prepare(images[:1], SIZE)  # says what is wrong with them before anything is read


def _key(images: Tensor, weights: str) -> str:
    text = f"{_VERSION}:{SIZE}:{weights}:{digest_of({'images': images})}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _may_write(file: Path) -> bool:
    folder = next(each for each in file.parents if each.exists())
    return os.access(folder, os.W_OK)


def _load(file: Path, count: int) -> Tensor | None:
    stored = read_tensors(file, "delete it")
    if stored is None:
        return None
    features = stored[0].get("features")
    if features is None or features.shape != (count, NUM_FEATURES):
        raise InputError(f"{file} does not hold the features of {count} images; delete it")
    return features
