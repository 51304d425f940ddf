"""The types of corruption, of a batch of images, or of a test set as the published files are."""

from __future__ import annotations

import io
import tomllib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from gemfi._config import check_choice, check_int
from gemfi._files import write_atomically
from gemfi.data.sampling import generator
from gemfi.errors import InputError
from gemfi_bench.corruptions import functions
from gemfi_bench.corruptions.fields import Constants, Floats, quantised


@dataclass(frozen=True)
class Corruption:
    """One type of corruption."""

    name: str  # as in the published files
    function: Callable[..., Floats]  # of images, generators and the constants of one severity
    constants: tuple[Constants, ...]  # of each severity, mildest first
    meaning: str  # of the numbers of an entry, in order
    provenance: str  # the publication, and what the constants were compared with
    random: bool = True  # whether the seed matters
    approximation: str | None = None  # how the procedure differs from the published one, and why


def _read_facts() -> dict[str, dict[str, Corruption]]:
    facts = tomllib.loads(Path(__file__).with_name("table.toml").read_text(encoding="utf-8"))
    return {
        family: {
            name: Corruption(
                name,
                getattr(functions, record.get("function", name)),
                tuple(map(tuple, record["constants"])),
                record["meaning"],
                table["provenance"],
                record.get("random", True),
                record.get("approximation"),
            )
            for name, record in table["types"].items()
        }
        for family, table in facts.items()
    }


FAMILIES: dict[str, dict[str, Corruption]] = _read_facts()
"""Name of a family -> its corruptions."""

CORRUPTIONS_CIFAR = FAMILIES["cifar10"]
"""Name of a type -> its record, in the order of the paper: the 15 of the benchmark, then 4 more."""

CORRUPTIONS_MNIST = FAMILIES["mnist"]
"""Name of a type -> its record; `identity`, the clean images, is not among them."""

SHAPES: dict[str, tuple[int, int, int]] = {"cifar10": (3, 32, 32), "mnist": (1, 28, 28)}
"""Name of a family -> channels, height and width of its images."""

SEVERITIES = (1, 2, 3, 4, 5)
MADE_SEED = 0  # of `gemfi data corrupt` and of the benchmark
CHUNK = 250  # images at once: it bounds the memory and does not touch the result
_PART = 1000  # images between two steps of the progress bar


def corrupt(
    images: Tensor,
    name: str,
    severity: int | None = None,
    seed: int = 0,
    family: str = "cifar10",
    first: int = 0,
) -> Tensor:
    """Corrupt images as CIFAR-10-C or MNIST-C does: a new tensor of the same shape and device.

    Image i draws from a stream of its own, given by the seed, the type, the severity and its number
    `first + i`; so the result does not depend on how a set is cut into batches.

    Args:
        images: uint8, (N, 3, 32, 32) for `cifar10` or (N, 1, 28, 28) for `mnist`.
        name: a key of `CORRUPTIONS_CIFAR` or `CORRUPTIONS_MNIST`.
        severity: 1 to 5 for `cifar10`; None for `mnist`, whose types have one severity each.
        seed: of the random draws.
        family: `cifar10` or `mnist`.
        first: the number of the first image, where a set is corrupted in parts.

    Example:
        >>> corrupt(torch.zeros(4, 3, 32, 32, dtype=torch.uint8), "fog", severity=3).shape
        torch.Size([4, 3, 32, 32])
    """
    check_choice("family", family, FAMILIES)
    check_choice(f"corruption of {family}", name, FAMILIES[family])
    corruption = FAMILIES[family][name]
    constants = _constants(corruption, severity, family)
    _check_images(images, family)
    check_int("first", first, 0)
    stream = zlib.crc32(f"{family}/{name}".encode()), severity or 0
    generator(seed, *stream)  # a bad seed is an error even where no image is drawn
    pixels = images.detach().cpu().numpy()
    result = np.empty(images.shape, dtype=np.uint8)
    for start in range(0, len(pixels), CHUNK):
        chunk = pixels[start : start + CHUNK] / 255.0
        rngs = [generator(seed, *stream, first + start + i) for i in range(len(chunk))]
        result[start : start + CHUNK] = quantised(corruption.function(chunk, rngs, *constants))
    return torch.from_numpy(result).to(images.device)


ANY_SIZE: tuple[str, ...] = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "defocus_blur",
    "gaussian_blur", "motion_blur", "fog", "brightness", "contrast",
)  # fmt: skip
"""Types of CIFAR-10-C that mean something on images of any size and with one channel."""


def corrupt_small(images: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """Corrupt images of any size, (N, C, H, W) in [0, 1], by a type of `ANY_SIZE`.

    The constants were made for 32×32 pixels, so that on 8×8 a blur is strong and noise is as ever.
    """
    check_choice("corruption of small images", name, ANY_SIZE)
    if images.ndim != 4 or not images.is_floating_point():
        raise InputError(
            f"images must be floating point of shape (N, C, H, W), got {images.dtype} of shape "
            f"{tuple(images.shape)}"
        )
    corruption = CORRUPTIONS_CIFAR[name]
    constants = _constants(corruption, severity, "cifar10")
    stream = zlib.crc32(f"any/{name}".encode()), severity
    rngs = [generator(seed, *stream, number) for number in range(len(images))]
    made = corruption.function(images.detach().cpu().double().numpy(), rngs, *constants)
    return torch.from_numpy(np.clip(made, 0, 1)).to(images)


def write_published_layout(
    images: Tensor,
    labels: Tensor,
    folder: Path | str,
    *,
    family: str = "cifar10",
    names: Iterable[str] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> list[Path]:
    """Corrupt a test set and write it as CIFAR-10-C or MNIST-C is published; returns the files.

    - `cifar10`: `<type>.npy`, (5N, 32, 32, 3) uint8, severity 1 first, and `labels.npy`, the N
      labels five times over, uint8.
    - `mnist`: `<type>/test_images.npy`, (N, 28, 28, 1) uint8, and `<type>/test_labels.npy`, int64.

    Each file appears whole or not at all; a file of the same name is replaced.

    Args:
        images: as of `corrupt`.
        labels: (N,) integers in 0..255.
        folder: made where it does not exist.
        family: `cifar10` or `mnist`.
        names: the types to write; all of the family by default.
        seed: of the random draws.
        progress: whether to show a bar; None shows it on a terminal only.
    """
    check_choice("family", family, FAMILIES)
    names = list(FAMILIES[family] if names is None else names)
    for name in names:
        check_choice(f"corruption of {family}", name, FAMILIES[family])
    _check_images(images, family)
    numbers = _checked_labels(labels, len(images))
    folder = Path(folder)
    severities: tuple[int | None, ...] = SEVERITIES if family == "cifar10" else (None,)
    written = []
    with tqdm(
        total=len(names) * len(severities) * len(images),
        desc="corrupting",
        unit="image",
        disable=None if progress is None else not progress,
        leave=False,
    ) as bar:
        if family == "cifar10":
            tiled = np.tile(numbers.astype(np.uint8), len(severities))
            written.append(_save(folder / "labels.npy", tiled))
        for name in names:
            bar.set_postfix_str(name)
            parts = []
            for severity in severities:
                for first in range(0, len(images), _PART):
                    part = images[first : first + _PART]
                    made = corrupt(part, name, severity, seed=seed, family=family, first=first)
                    parts.append(made.permute(0, 2, 3, 1).cpu().numpy())  # channels last
                    bar.update(len(part))
            if family == "cifar10":
                written.append(_save(folder / f"{name}.npy", np.concatenate(parts)))
            else:
                written.append(_save(folder / name / "test_images.npy", np.concatenate(parts)))
                written.append(_save(folder / name / "test_labels.npy", numbers))
    return written


def _check_images(images: object, family: str) -> None:
    """Refuse anything but uint8 images of the family's shape."""
    shape = SHAPES[family]
    got = type(images).__name__
    if isinstance(images, Tensor):
        if images.dtype == torch.uint8 and images.ndim == 4 and tuple(images.shape[1:]) == shape:
            return
        got = f"{images.dtype} of shape {tuple(images.shape)}"
    raise InputError(
        f"images must be a uint8 tensor of shape (N, {', '.join(map(str, shape))}) for {family}, "
        f"got {got}"
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


def _checked_labels(labels: object, count: int) -> npt.NDArray[np.int64]:
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        got = f"dtype {labels.dtype}" if isinstance(labels, Tensor) else type(labels).__name__
        raise InputError(f"labels must be a tensor of integers, got {got}")
    if labels.shape != (count,):
        raise InputError(
            f"labels must have shape ({count},), one for each image, got {tuple(labels.shape)}"
        )
    numbers = labels.detach().cpu().numpy().astype(np.int64)
    if count and not 0 <= numbers.min() <= numbers.max() <= 255:
        raise InputError(
            f"labels must be in 0..255, got {int(numbers.min())} to {int(numbers.max())}"
        )
    return numbers


def _save(path: Path, array: npt.NDArray[Any]) -> Path:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    write_atomically(path, file.getvalue())
    return path
