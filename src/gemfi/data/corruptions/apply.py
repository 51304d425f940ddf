"""`corrupt`: one type of corruption on a batch of images."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

from gemfi._config import check_int
from gemfi.data.corruptions.cifar10 import CORRUPTIONS_CIFAR
from gemfi.data.corruptions.mnist_c import CORRUPTIONS_MNIST
from gemfi.data.corruptions.record import Constants, Corruption, quantised
from gemfi.data.sampling import generator
from gemfi.errors import InputError

FAMILIES: dict[str, dict[str, Corruption]] = {
    "cifar10": CORRUPTIONS_CIFAR,
    "mnist": CORRUPTIONS_MNIST,
}
"""Name of a family -> its corruptions."""

SHAPES: dict[str, tuple[int, int, int]] = {"cifar10": (3, 32, 32), "mnist": (1, 28, 28)}
"""Name of a family -> channels, height and width of its images."""

SEVERITIES = (1, 2, 3, 4, 5)
CHUNK = 250  # images at once: it bounds the memory and does not touch the result


def corrupt(
    images: Tensor,
    name: str,
    severity: int | None = None,
    seed: int = 0,
    family: str = "cifar10",
    first: int = 0,
) -> Tensor:
    """Corrupt images as CIFAR-10-C or MNIST-C does.

    Image i of `images` draws from a stream of its own, given by the seed, the type, the severity
    and its number `first + i`; so the result does not depend on how a set is cut into batches:
    `corrupt(x[a:b], ..., first=a)` equals `corrupt(x, ...)[a:b]`.

    Args:
        images: uint8, (N, 3, 32, 32) for `cifar10` or (N, 1, 28, 28) for `mnist`.
        name: a key of `CORRUPTIONS_CIFAR` or `CORRUPTIONS_MNIST`.
        severity: 1 to 5 for `cifar10`; None for `mnist`, whose types have one severity each.
        seed: of the random draws.
        family: `cifar10` or `mnist`.
        first: the number of the first image, where a set is corrupted in parts.

    Returns:
        A new uint8 tensor of the same shape, on the same device.

    Example:
        >>> corrupt(torch.zeros(4, 3, 32, 32, dtype=torch.uint8), "fog", severity=3).shape
        torch.Size([4, 3, 32, 32])
    """
    corruption = find_corruption(name, family)
    constants = _constants(corruption, severity, family)
    check_images(images, family)
    check_int("first", first, 0)
    stream = zlib.crc32(f"{family}/{name}".encode()), severity or 0
    generator(seed, *stream)  # a bad seed is an error even where no image is drawn
    pixels = images.detach().cpu().numpy()
    result = np.empty(images.shape, dtype=np.uint8)
    for start in range(0, len(pixels), CHUNK):
        chunk = pixels[start : start + CHUNK] / 255.0
        rngs = [generator(seed, *stream, first + start + i) for i in range(len(chunk))]
        result[start : start + CHUNK] = quantised(corruption.function(chunk, rngs, constants))
    return torch.from_numpy(result).to(images.device)


ANY_SIZE: tuple[str, ...] = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "defocus_blur",
    "gaussian_blur", "motion_blur", "fog", "brightness", "contrast",
)  # fmt: skip
"""Types of CIFAR-10-C that mean something on images of any size and with one channel."""


def corrupt_small(images: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """Corrupt images of any size by a type of CIFAR-10-C, with its constants.

    The constants were made for 32×32 pixels, so that on 8×8 a blur is strong and noise is as ever.

    Args:
        images: (N, C, H, W) floating point in [0, 1].
        name: in `ANY_SIZE`.
        severity: 1 to 5.
        seed: of the random draws; image i has a stream of its own.
    """
    if name not in ANY_SIZE:
        raise InputError(f"unknown corruption {name!r}; expected one of {', '.join(ANY_SIZE)}")
    if images.ndim != 4 or not images.is_floating_point():
        raise InputError(
            f"images must be floating point of shape (N, C, H, W), got {images.dtype} of shape "
            f"{tuple(images.shape)}"
        )
    corruption = CORRUPTIONS_CIFAR[name]
    constants = _constants(corruption, severity, "cifar10")
    stream = zlib.crc32(f"any/{name}".encode()), severity
    rngs = [generator(seed, *stream, number) for number in range(len(images))]
    made = corruption.function(images.detach().cpu().double().numpy(), rngs, constants)
    return torch.from_numpy(np.clip(made, 0, 1)).to(images)


def find_corruption(name: str, family: str) -> Corruption:
    """The record of a type; an error that lists the names where there is none."""
    if family not in FAMILIES:
        raise InputError(f"unknown family {family!r}; expected one of {', '.join(FAMILIES)}")
    if name not in FAMILIES[family]:
        raise InputError(
            f"unknown corruption {name!r} of {family}; expected one of "
            f"{', '.join(FAMILIES[family])}"
        )
    return FAMILIES[family][name]


def check_images(images: object, family: str) -> None:
    """Refuse anything but uint8 images of the family's shape."""
    shape = SHAPES[family]
    expected = f"a uint8 tensor of shape (N, {', '.join(map(str, shape))}) for {family}"
    if not isinstance(images, Tensor):
        raise InputError(f"images must be {expected}, got {type(images).__name__}")
    if images.dtype != torch.uint8 or images.ndim != 4 or tuple(images.shape[1:]) != shape:
        raise InputError(
            f"images must be {expected}, got {images.dtype} of shape {tuple(images.shape)}"
        )


def _constants(corruption: Corruption, severity: int | None, family: str) -> Constants:
    if len(corruption.constants) == 1:
        if severity is not None:
            raise InputError(
                f"{corruption.name} of {family} has one fixed severity; leave severity out, "
                f"got {severity!r}"
            )
        return corruption.constants[0]
    if isinstance(severity, bool) or not isinstance(severity, int) or severity not in SEVERITIES:
        raise InputError(
            f"severity of {corruption.name} must be an integer from 1 to 5, got {severity!r}"
        )
    return corruption.constants[severity - 1]
