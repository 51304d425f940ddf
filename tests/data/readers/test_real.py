"""The real files: counts and classes as published. They need `GEMFI_DATA`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from gemfi.data.readers import (
    Pictures,
    read_array_pictures,
    read_cifar10,
    read_idx_pictures,
    read_svhn,
    read_tiny_imagenet_val,
)


def counts(read: Pictures) -> list[int]:
    assert read.images.dtype == np.uint8
    assert read.images.flags.c_contiguous
    assert read.labels is not None
    assert len(read.labels) == len(read.images)
    found: list[int] = np.bincount(read.labels).tolist()
    return found


def idx_pair(folder: Path, part: str) -> Pictures:
    images, labels = f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"
    read = read_idx_pictures(folder / images, folder / labels, num_classes=10)
    assert read.images.shape[1:] == (1, 28, 28)
    return read


def test_mnist(data_dir: Path) -> None:
    train, test = idx_pair(data_dir / "mnist", "train"), idx_pair(data_dir / "mnist", "t10k")
    assert counts(train) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts(test) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert train.labels is not None
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert round(float(train.images.mean()) / 255, 4) == 0.1307  # the constant everyone uses
    assert round(float(train.images.std()) / 255, 4) == 0.3081


@pytest.mark.parametrize("name", ["fashion-mnist", "kmnist", "notmnist"])
def test_relatives_of_mnist(data_dir: Path, name: str) -> None:
    assert counts(idx_pair(data_dir / name, "t10k")) == [1000] * 10


def test_cifar10(data_dir: Path) -> None:
    folder = data_dir / "cifar-10-batches-bin"
    parts = [read_cifar10(folder / f"data_batch_{index}.bin") for index in range(1, 6)]
    test = read_cifar10(folder / "test_batch.bin")
    assert [len(part) for part in (*parts, test)] == [10_000] * 6
    assert np.sum([counts(part) for part in parts], axis=0).tolist() == [5000] * 10
    assert counts(test) == [1000] * 10
    images = np.concatenate([part.images for part in parts])
    mean = images.mean((0, 2, 3)) / 255
    np.testing.assert_allclose(mean, [0.4914, 0.4822, 0.4465], atol=5e-5)


def test_svhn_first_5000(data_dir: Path) -> None:
    read = read_svhn(data_dir / "svhn" / "test_first5000_32x32.mat")
    assert read.images.shape == (5000, 3, 32, 32)
    found = counts(read)
    assert len(found) == 10
    assert sum(found) == 5000
    assert found.index(max(found)) == 1  # ones are the most frequent house-number digit


def test_tiny_imagenet_val(data_dir: Path) -> None:
    read = read_tiny_imagenet_val(data_dir / "tiny-imagenet-200")
    assert read.images.shape == (10_000, 3, 32, 32)
    assert counts(read) == [50] * 200
    assert read.class_names is not None
    assert read.class_names[0] == "n01443537"
    assert len({hashlib.sha256(image).digest() for image in read.images}) > 9_900


def test_dtd(data_dir: Path) -> None:
    read = read_array_pictures(data_dir / "dtd32" / "dtd10_32.npz")
    assert read.images.shape == (1200, 3, 32, 32)
    assert read.labels is None
