"""What the readers share: pictures and pieces, bounded reading, and the checks of labels."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.errors import InputError

PathLike = str | os.PathLike[str]

MAX_BYTES: Final = 4 * 2**30
"""No file may claim more than this in memory: a few bytes can claim petabytes."""

ROWS: Final = 4096
"""Rows of a piece of a table or an array, at most."""

Span = tuple[int, int]
"""The first and the end of what is to be read: rows of an array, row groups of a parquet file."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images and labels as a reader found them, in memory and writable.

    Attributes:
        images: (N, C, H, W) uint8, contiguous, so that `torch.from_numpy` copies nothing.
        labels: (N,) int64, or None where the file has none.
        class_names: the name of each label, or None where the file does not say.
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64] | None = None
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class Piece:
    """Some inputs in a row, so that any number of them takes a bounded memory.

    Attributes:
        names: of each input: a file, with its line or position where it holds several.
        x: (n, ...) the inputs; what could not be read is zero.
        errors: position in the piece -> why the input could not be read.
    """

    names: list[str]
    x: npt.NDArray[Any]
    errors: dict[int, str] = field(default_factory=dict)


def read_bytes(path: PathLike, limit: int | None = None) -> bytes:
    """Read a file whole; one that is not there, is empty or passes `limit` is an `InputError`."""
    limit = MAX_BYTES if limit is None else limit
    path = Path(path)
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= limit else b""
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if size > limit:
        raise InputError(f"{path} has {size:,} bytes, more than the {limit:,} it may have")
    if not data:
        raise InputError(f"{path} is empty (0 bytes)")
    return data


def read_text(path: PathLike, encoding: str = "utf-8") -> str:
    """Read a file of UTF-8 whole."""
    try:
        return read_bytes(path).decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: offset {error.start} is not UTF-8; save it as UTF-8") from error


def checked_labels(
    labels: npt.NDArray[Any], where: str, *, low: int = 0, high: int
) -> npt.NDArray[np.int64]:
    """Labels (N,) as int64; `where` names the file in the error unless all are in low..high."""
    inside = (labels >= low) & (labels <= high) & (labels == np.floor(labels))
    if not inside.all():
        bad = np.flatnonzero(~inside)
        raise InputError(
            f"{where}: label {labels[bad[0]]} of sample {bad[0]} is not in {low}..{high} "
            f"({len(bad)} of {len(labels)} labels are not)"
        )
    return labels.astype(np.int64)


def require_same_count(images: int, labels: int, where: str) -> None:
    """Refuse a set whose images and labels do not match in number."""
    if images != labels:
        raise InputError(f"{where}: {images} images, but {labels} labels")
    if images == 0:
        raise InputError(f"{where}: no images (a count of 0)")


def channels_first(images: npt.NDArray[Any], where: str) -> npt.NDArray[np.uint8]:
    """Turn (N, H, W), (N, H, W, C) or (N, C, H, W) into (N, C, H, W), with C of 1 or 3."""
    shape = images.shape
    if images.dtype != np.uint8:
        raise InputError(f"{where}: images must be uint8, got {images.dtype}")
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim != 4 or not {shape[1], shape[3]} & {1, 3}:
        raise InputError(
            f"{where}: expected images of shape (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or "
            f"3 channels, got {shape}"
        )
    elif {shape[1], shape[3]} <= {1, 3}:
        raise InputError(f"{where}: shape {shape} does not tell which axis holds the channels")
    elif shape[3] in {1, 3}:
        images = images.transpose(0, 3, 1, 2)
    if 0 in shape:
        raise InputError(f"{where}: no images, shape {shape}")
    return np.ascontiguousarray(images)
