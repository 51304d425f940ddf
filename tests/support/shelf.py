"""A data folder with small files in the published layouts, and its fixtures."""

from __future__ import annotations

import gzip
import importlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from PIL import Image

from gemfi.data import DATA_SETS, DataSet

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Made = tuple[Bytes, np.ndarray[Any, np.dtype[np.int64]]]  # (N, C, H, W) images and (N,) labels


class Shelf:
    """A data folder; each method writes files as a publisher lays them out, and says what."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rng = np.random.default_rng(0)

    def write(self, name: str, data: bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def draw(self, count: int, shape: tuple[int, ...], classes: int = 10) -> Made:
        labels = np.arange(count, dtype=np.int64) % classes
        return self.rng.integers(0, 256, (count, *shape), np.uint8), labels

    def idx(self, folder: str, part: str, count: int = 60, *, zipped: bool = True) -> Made:
        """A pair of MNIST's files; `part` is train or t10k."""
        images, labels = self.draw(count, (1, 28, 28))
        pairs = {"images-idx3": images[:, 0], "labels-idx1": labels}
        for kind, array in pairs.items():
            sizes = struct.pack(f">{array.ndim}I", *array.shape)
            data = bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()
            name = f"{folder}/{part}-{kind}-ubyte"
            self.write(f"{name}.gz", gzip.compress(data)) if zipped else self.write(name, data)
        return images, labels

    def mnist(self, folder: str = "mnist") -> dict[str, Made]:
        """Train and test of MNIST or a relative: 60 and 20 images."""
        return {"train": self.idx(folder, "train"), "test": self.idx(folder, "t10k", 20)}

    def cifar_binary(self, name: str, count: int, *columns: int) -> tuple[Bytes, list[Any]]:
        """Records with one label byte for each of `columns`, which are the numbers of classes."""
        images, _ = self.draw(count, (3, 32, 32))
        labels = [np.arange(count) * 7 % classes for classes in columns]
        head = np.stack(labels, axis=1).astype(np.uint8)
        self.write(name, np.concatenate([head, images.reshape(count, -1)], axis=1).tobytes())
        return images, labels

    def svhn(self, name: str, count: int) -> Made:
        images, labels = self.draw(count, (3, 32, 32))
        (self.root / "svhn").mkdir(exist_ok=True)
        columns = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        variables = {"X": images.transpose(2, 3, 1, 0), "y": columns}
        scipy.io.savemat(self.root / "svhn" / name, variables, do_compression=True)
        return images, labels

    def picture(self, name: str, pixels: Bytes) -> None:
        """An image file of (H, W, 3) bytes."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)

    def array(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """An npy file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """An empty data folder, at which `GEMFI_DATA` points."""
    root = tmp_path / "data"
    root.mkdir()
    monkeypatch.setenv("GEMFI_DATA", str(root))
    return Shelf(root)


Shrink = Callable[..., DataSet]


@pytest.fixture
def shrink(monkeypatch: pytest.MonkeyPatch) -> Shrink:
    """Change an entry for the test: other counts of its parts, another `held_out`, and so on."""
    sets = dict(DATA_SETS)
    module = importlib.import_module("gemfi.data.registry.load")  # its function has the same name
    monkeypatch.setattr(module, "DATA_SETS", sets)

    def change(name: str, counts: Mapping[str, int] | None = None, **changes: Any) -> DataSet:
        entry = replace(sets[name], **changes)
        parts = dict(entry.parts)
        for part, count in (counts or {}).items():
            parts[part] = replace(parts[part], count=count)
        sets[name] = replace(entry, parts=parts)
        return sets[name]

    return change
