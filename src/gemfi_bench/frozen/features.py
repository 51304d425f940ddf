"""Images to features of the pretrained network, kept in the data folder.

One safetensors file for each set of images, below `.gemfi/features`. Its name is a digest of
the weights, the images, their size in the network and the version of the code: other images or
weights have another file, and none is ever stale. `Extraction` says what happens if the work is
broken off, or wanted twice.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from gemfi._files import data_root
from gemfi.errors import InputError
from gemfi.training.features import Extraction, digest_of
from gemfi_bench.frozen.efficientnet_lite import NUM_FEATURES, EfficientNetLite0, prepare
from gemfi_bench.frozen.weights import pretrained

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
