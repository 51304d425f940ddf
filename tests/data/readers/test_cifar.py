"""CIFAR-10 and CIFAR-100: both layouts give the same images, and bad files say why."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gemfi.data.readers import (
    Pictures,
    cifar,
    read_cifar10_binary,
    read_cifar10_python,
    read_cifar100_binary,
    read_cifar100_python,
)
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


def check(read: Pictures, labels: list[int], coarse: list[int] | None) -> None:
    assert read.images.shape == (7, 3, 32, 32)
    assert read.images.dtype == np.uint8
    assert read.labels is not None
    assert read.labels.dtype == np.int64
    assert read.labels.tolist() == labels
    assert (read.coarse is None) == (coarse is None)
    if read.coarse is not None:
        assert read.coarse.tolist() == coarse
    # Sample 3, green, row 5, column 7, by the published layout.
    assert read.images[3, 1, 5, 7] == PIXELS[3, 1024 + 5 * 32 + 7]
    torch.from_numpy(read.images)[0] = 0  # writable: no warning


class TestBinary:
    def test_cifar10(self, tmp_path: Path) -> None:
        check(read_cifar10_binary(write(tmp_path / "x.bin", records(LABELS))), LABELS, None)

    def test_cifar100_has_coarse_labels_first(self, tmp_path: Path) -> None:
        path = write(tmp_path / "train.bin", records(COARSE, FINE))
        check(read_cifar100_binary(path), FINE, COARSE)

    def test_length(self, tmp_path: Path) -> None:
        path = write(tmp_path / "cut.bin", records(LABELS)[:-73])
        message = r"cut\.bin: 21438 bytes are 6 records of 3073 bytes and 3000 bytes more.*18438"
        with pytest.raises(InputError, match=message):
            read_cifar10_binary(path)
        with pytest.raises(InputError, match="of another CIFAR"):
            read_cifar100_binary(write(tmp_path / "ten.bin", records(LABELS)))
        with pytest.raises(InputError, match="empty"):
            read_cifar10_binary(write(tmp_path / "empty.bin", b""))

    def test_labels(self, tmp_path: Path) -> None:
        bad = [*LABELS[:4], 10, 255, 0]
        path = write(tmp_path / "bad.bin", records(bad))
        message = r"label 10 of record 4, at offset 12292, is not in 0\.\.9 \(2 of 7"
        with pytest.raises(InputError, match=message):
            read_cifar10_binary(path)
        with pytest.raises(InputError, match=r"label 20 of record 1, at offset 3074.*0\.\.19"):
            read_cifar100_binary(write(path, records([0, 20, 0, 0, 0, 0, 0], FINE)))
        with pytest.raises(InputError, match=r"label 100 of record 0, at offset 1, .*0\.\.99"):
            read_cifar100_binary(write(path, records(COARSE, [100, *FINE[1:]])))


def batch(**changes: Any) -> dict[str, Any]:
    entries: dict[str, Any] = {
        "data": PIXELS,
        "labels": LABELS,
        "fine_labels": FINE,
        "coarse_labels": COARSE,
        "filenames": [f"{index}.png" for index in range(7)],
        "batch_label": "training batch 1 of 1",
    }
    return {name: value for name, value in (entries | changes).items() if value is not None}


class TestPython:
    @pytest.mark.parametrize("protocol", [3, 4])
    @pytest.mark.parametrize("as_bytes", [False, True])
    def test_batches(self, tmp_path: Path, protocol: int, as_bytes: bool) -> None:
        entries: Any = batch()
        if as_bytes:  # as Python 3 loads the published files, with encoding="bytes"
            entries = {name.encode(): value for name, value in entries.items()}
        path = write(tmp_path / "train", pickle.dumps(entries, protocol=protocol))
        check(read_cifar10_python(path), LABELS, None)
        check(read_cifar100_python(path), FINE, COARSE)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"data": None}, r"has no 'data'; it holds: batch_label, coarse_labels, "),
            ({"labels": None}, "has no 'labels'"),
            (
                {"data": PIXELS[:, :-1]},
                r"'data' must be a uint8 array \(N, 3072\), got \(7, 3071\)",
            ),
            ({"data": PIXELS.reshape(-1)}, r"got \(21504,\)"),
            ({"data": [1, 2]}, "got list"),
            ({"labels": LABELS[:-2]}, "'labels': 7 images, but 5 labels"),
            ({"labels": (1, 2)}, "must be a list, got tuple"),
            ({"labels": ["a", *LABELS[1:]]}, r"'labels'\[0\] is a str, not a number"),
            ({"labels": [*LABELS[:6], True]}, r"'labels'\[6\] is a bool"),
            ({"labels": [*LABELS[:6], 10]}, r"label 10 of sample 6 is not in 0\.\.9"),
            ({"labels": [-1, *LABELS[1:]]}, "label -1 of sample 0"),
            ({"data": PIXELS[:0], "labels": []}, "no images"),
        ],
    )
    def test_contents(self, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
        path = write(tmp_path / "bad_batch", pickle.dumps(batch(**changes), protocol=4))
        with pytest.raises(InputError, match=message) as caught:
            read_cifar10_python(path)
        assert str(path) in str(caught.value)

    def test_labels_of_cifar100(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x", pickle.dumps(batch(coarse_labels=[20] * 7), protocol=4))
        with pytest.raises(InputError, match=r"'coarse_labels': label 20 .*0\.\.19 \(7 of 7"):
            read_cifar100_python(path)

    def test_truncated(self, tmp_path: Path) -> None:
        path = write(tmp_path / "cut", pickle.dumps(batch(), protocol=4)[:9999])
        with pytest.raises(InputError, match=r"cut: truncated: 21504 bytes are needed"):
            read_cifar10_python(path)


@pytest.mark.parametrize("read", [read_cifar10_python, read_cifar100_binary])
def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Pictures]
) -> None:
    monkeypatch.setattr(cifar, "_MAX_FILE", 1000)
    with pytest.raises(InputError, match="has 1,001 bytes, more than the 1,000 it may have"):
        read(write(tmp_path / "large", bytes(1001)))
