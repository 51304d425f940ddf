"""CIFAR-10 and CIFAR-100: the published layout, and bad files say why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gemfi.data.readers import Pictures, published, read_cifar10, read_cifar100
from gemfi.errors import InputError

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 3072), np.uint8)
LABELS = [6, 9, 0, 3, 9, 1, 2]
FINE, COARSE = [99, 0, 17, 50, 3, 3, 8], [19, 0, 1, 2, 3, 3, 4]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def records(*labels: list[int]) -> bytes:
    columns = np.array(labels, np.uint8).T
    return np.concatenate([columns, PIXELS], axis=1).tobytes()


def check(read: Pictures, labels: list[int]) -> None:
    assert read.images.shape == (7, 3, 32, 32)
    assert read.images.dtype == np.uint8
    assert read.labels is not None
    assert read.labels.dtype == np.int64
    assert read.labels.tolist() == labels
    # Sample 3, green, row 5, column 7, by the published layout.
    assert read.images[3, 1, 5, 7] == PIXELS[3, 1024 + 5 * 32 + 7]
    torch.from_numpy(read.images)[0] = 0  # writable: no warning


class TestRecords:
    def test_cifar10(self, tmp_path: Path) -> None:
        check(read_cifar10(write(tmp_path / "x.bin", records(LABELS))), LABELS)

    def test_cifar100_has_the_fine_labels(self, tmp_path: Path) -> None:
        path = write(tmp_path / "train.bin", records(COARSE, FINE))
        check(read_cifar100(path), FINE)

    def test_length(self, tmp_path: Path) -> None:
        path = write(tmp_path / "cut.bin", records(LABELS)[:-73])
        message = r"cut\.bin: 21438 bytes are 6 records of 3073 bytes and 3000 bytes more.*18438"
        with pytest.raises(InputError, match=message):
            read_cifar10(path)
        with pytest.raises(InputError, match="of another CIFAR"):
            read_cifar100(write(tmp_path / "ten.bin", records(LABELS)))
        with pytest.raises(InputError, match="empty"):
            read_cifar10(write(tmp_path / "empty.bin", b""))

    def test_labels(self, tmp_path: Path) -> None:
        bad = [*LABELS[:4], 10, 255, 0]
        path = write(tmp_path / "bad.bin", records(bad))
        message = r"bad\.bin: label 10 of sample 4 is not in 0\.\.9 \(2 of 7"
        with pytest.raises(InputError, match=message):
            read_cifar10(path)
        with pytest.raises(InputError, match=r"label 20 of sample 1 is not in 0\.\.19"):
            read_cifar100(write(path, records([0, 20, 0, 0, 0, 0, 0], FINE)))
        with pytest.raises(InputError, match=r"label 100 of sample 0 is not in 0\.\.99"):
            read_cifar100(write(path, records(COARSE, [100, *FINE[1:]])))

    def test_several_files_in_their_order(self, tmp_path: Path) -> None:
        first = write(tmp_path / "one.bin", records(LABELS))
        second = write(tmp_path / "two.bin", records(LABELS[::-1]))
        read = read_cifar10(first, second)
        assert read.images.shape == (14, 3, 32, 32)
        assert read.labels is not None
        assert read.labels.tolist() == LABELS + LABELS[::-1]
        assert (read.images[7:] == read.images[:7]).all()


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "_MAX_CIFAR", 1000)
    with pytest.raises(InputError, match="has 1,001 bytes, more than the 1,000 it may have"):
        read_cifar100(write(tmp_path / "large", bytes(1001)))
