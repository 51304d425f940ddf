"""CIFAR-10 and CIFAR-100 (A. Krizhevsky, 2009), the binary files and the python batches.

A binary file is a row of records: one label byte (CIFAR-100: coarse, then fine), then 3,072 bytes
of pixels, red, green and blue planes of 32×32. A python batch is a pickled dictionary, which
`gemfi.data.readers.pickled` reads without unpickling.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.data.readers import base
from gemfi.data.readers.pickled import read_pickled_batch
from gemfi.errors import InputError

_SHAPE: Final = (3, 32, 32)
_PIXELS: Final = 3 * 32 * 32
_MAX_FILE: Final = 512 * 2**20  # the largest published file has 155 MB

CIFAR10_CLASSES: Final = 10
CIFAR100_FINE, CIFAR100_COARSE = 100, 20


def read_cifar10_binary(path: base.PathLike) -> base.Pictures:
    """Read one `.bin` file of CIFAR-10: records of 3,073 bytes."""
    records = _records(path, 1)
    labels = _record_labels(records, 0, CIFAR10_CLASSES, path)
    return base.Pictures(_images(records[:, 1:]), labels)


def read_cifar100_binary(path: base.PathLike) -> base.Pictures:
    """Read one `.bin` file of CIFAR-100: records of 3,074 bytes; `labels` are the fine ones."""
    records = _records(path, 2)
    coarse = _record_labels(records, 0, CIFAR100_COARSE, path)
    fine = _record_labels(records, 1, CIFAR100_FINE, path)
    return base.Pictures(_images(records[:, 2:]), fine, coarse=coarse)


def read_cifar10_python(path: base.PathLike) -> base.Pictures:
    """Read one python batch of CIFAR-10 (`data_batch_1`, `test_batch`) without unpickling it."""
    batch = read_pickled_batch(base.read_bytes(path, _MAX_FILE), str(path))
    images = _batch_images(batch, path)
    return base.Pictures(images, _batch_labels(batch, "labels", len(images), 10, path))


def read_cifar100_python(path: base.PathLike) -> base.Pictures:
    """Read `train` or `test` of CIFAR-100 without unpickling it; `labels` are the fine ones."""
    batch = read_pickled_batch(base.read_bytes(path, _MAX_FILE), str(path))
    images = _batch_images(batch, path)
    fine = _batch_labels(batch, "fine_labels", len(images), CIFAR100_FINE, path)
    coarse = _batch_labels(batch, "coarse_labels", len(images), CIFAR100_COARSE, path)
    return base.Pictures(images, fine, coarse=coarse)


def _images(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return rows.reshape(-1, *_SHAPE).copy()


def _records(path: base.PathLike, label_bytes: int) -> npt.NDArray[np.uint8]:
    data = np.frombuffer(base.read_bytes(path, _MAX_FILE), np.uint8)
    record = label_bytes + _PIXELS
    count, remainder = divmod(len(data), record)
    if remainder:
        raise InputError(
            f"{path}: {len(data)} bytes are {count} records of {record} bytes and {remainder} "
            f"bytes more, from offset {count * record}; the file is truncated, or of another CIFAR"
        )
    return data.reshape(count, record)


def _record_labels(
    records: npt.NDArray[np.uint8], column: int, num_classes: int, path: base.PathLike
) -> npt.NDArray[np.int64]:
    labels = records[:, column]
    bad = np.flatnonzero(labels >= num_classes)
    if len(bad):
        raise InputError(
            f"{path}: label {labels[bad[0]]} of record {bad[0]}, at offset "
            f"{bad[0] * records.shape[1] + column}, is not in 0..{num_classes - 1} "
            f"({len(bad)} of {len(labels)} labels are not)"
        )
    return labels.astype(np.int64)


def _batch_images(batch: dict[str, Any], path: base.PathLike) -> npt.NDArray[np.uint8]:
    data = _entry(batch, "data", path)
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != _PIXELS:
        found = data.shape if isinstance(data, np.ndarray) else type(data).__name__
        raise InputError(f"{path}: 'data' must be a uint8 array (N, {_PIXELS}), got {found}")
    return _images(np.ascontiguousarray(data))


def _batch_labels(
    batch: dict[str, Any], key: str, count: int, num_classes: int, path: base.PathLike
) -> npt.NDArray[np.int64]:
    labels = _entry(batch, key, path)
    if not isinstance(labels, list):
        raise InputError(f"{path}: {key!r} must be a list, got {type(labels).__name__}")
    base.require_same_count(count, len(labels), f"{path}: {key!r}")
    for index, label in enumerate(labels):
        if type(label) is not int:
            raise InputError(f"{path}: {key!r}[{index}] is a {type(label).__name__}, not a number")
    return base.checked_labels(np.array(labels, np.int64), f"{path}: {key!r}", high=num_classes - 1)


def _entry(batch: dict[str, Any], key: str, path: base.PathLike) -> Any:
    if key not in batch:
        held = ", ".join(sorted(str(name)[:40] for name in batch)[:10])
        raise InputError(f"{path} has no {key!r}; it holds: {held or 'nothing'}")
    return batch[key]
