"""Generated corruptions in the layout of the published files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from tqdm import tqdm

from gemfi._files import write_atomically
from gemfi.data.corruptions.apply import (
    FAMILIES,
    SEVERITIES,
    check_images,
    corrupt,
    find_corruption,
)
from gemfi.errors import InputError

PART = 1000  # images between two steps of the progress bar


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
    """Corrupt a test set and write it as CIFAR-10-C or MNIST-C is published.

    - `cifar10`: `<type>.npy`, (5N, 32, 32, 3) uint8, severity 1 first, and `labels.npy`, the N
      labels five times over, uint8.
    - `mnist`: `<type>/test_images.npy`, (N, 28, 28, 1) uint8, and `<type>/test_labels.npy`, (N,)
      int64.

    Each file appears whole or not at all; a file of the same name is replaced.

    Args:
        images: uint8, (N, 3, 32, 32) or (N, 1, 28, 28).
        labels: (N,) integers in 0..255.
        folder: made where it does not exist.
        family: `cifar10` or `mnist`.
        names: the types to write; all of the family by default.
        seed: of the random draws.
        progress: whether to show a bar; None shows it on a terminal only.

    Returns:
        The files, in the order in which they were written.
    """
    if family not in FAMILIES:
        raise InputError(f"unknown family {family!r}; expected one of {', '.join(FAMILIES)}")
    chosen = list(FAMILIES[family] if names is None else names)
    for name in chosen:
        find_corruption(name, family)
    check_images(images, family)
    numbers = _checked_labels(labels, len(images))
    folder = Path(folder)
    severities: tuple[int | None, ...] = SEVERITIES if family == "cifar10" else (None,)
    total = len(chosen) * len(severities) * len(images)
    hidden = None if progress is None else not progress
    written = []
    with tqdm(total=total, desc="corrupting", unit="image", disable=hidden, leave=False) as bar:
        if family == "cifar10":
            tiled = np.tile(numbers.astype(np.uint8), len(severities))
            written.append(_save(folder / "labels.npy", tiled))
        for name in chosen:
            bar.set_postfix_str(name)
            stacked = np.concatenate(
                [_corrupted(images, name, severity, seed, family, bar) for severity in severities]
            )
            if family == "cifar10":
                written.append(_save(folder / f"{name}.npy", stacked))
            else:
                written.append(_save(folder / name / "test_images.npy", stacked))
                written.append(_save(folder / name / "test_labels.npy", numbers))
    return written


def _corrupted(
    images: Tensor, name: str, severity: int | None, seed: int, family: str, bar: Any
) -> npt.NDArray[np.uint8]:
    """(N, H, W, C): channels last, as published."""
    result = np.empty((len(images), *images.shape[2:], images.shape[1]), dtype=np.uint8)
    for start in range(0, len(images), PART):
        part = images[start : start + PART]
        made = corrupt(part, name, severity, seed=seed, family=family, first=start)
        result[start : start + PART] = made.permute(0, 2, 3, 1).cpu().numpy()
        bar.update(len(part))
    return result


def _checked_labels(labels: object, count: int) -> npt.NDArray[np.int64]:
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        raise InputError(f"labels must be a tensor of integers, got {_kind(labels)}")
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


def _kind(value: object) -> str:
    return f"dtype {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


def _save(path: Path, array: npt.NDArray[Any]) -> Path:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    write_atomically(path, file.getvalue())
    return path
