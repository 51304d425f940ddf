"""idx files: every type of number, plain and gzipped, and every way in which one can be broken."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gemfi.data.readers import base, read_idx, read_idx_pictures
from gemfi.errors import InputError

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
IMAGES = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
LABELS = np.array([0, 1, 2, 1, 0], np.uint8)


def idx_bytes(array: np.ndarray[Any, Any]) -> bytes:
    code = CODES[array.dtype.str[1:]]
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return (
        bytes([0, 0, code, array.ndim])
        + sizes
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", ["x-idx", "x-idx.gz"])
def test_every_type_is_read(tmp_path: Path, code: str, name: str) -> None:
    array = np.array([[0, 1, 100], [-1 % 120, 7, 3]]).astype(code)
    read = read_idx(write(tmp_path / name, idx_bytes(array)))
    assert read.dtype == array.dtype
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)
    torch.from_numpy(read)[0] = 0  # writable: no copy and no warning


def test_one_and_four_dimensions_and_none_of_a_kind(tmp_path: Path) -> None:
    for shape in [(4,), (2, 3, 2, 1), (0, 28, 28)]:
        array = np.ones(shape, np.float32)
        read = read_idx(write(tmp_path / "x", idx_bytes(array)))
        assert read.shape == shape
        assert (read == 1).all()


def test_gzip_is_seen_by_content_and_may_have_members_and_padding(tmp_path: Path) -> None:
    data = idx_bytes(IMAGES)
    path = tmp_path / "renamed-idx"
    path.write_bytes(gzip.compress(data[:30]) + gzip.compress(data[30:]) + b"\0" * 20)
    np.testing.assert_array_equal(read_idx(path), IMAGES)


@pytest.mark.parametrize("suffix", ["", ".gz"])
class TestBadFiles:
    def fails(self, tmp_path: Path, suffix: str, data: bytes, message: str) -> None:
        path = write(tmp_path / f"bad-idx{suffix}", data)
        with pytest.raises(InputError, match=message) as caught:
            read_idx(path)
        assert str(path) in str(caught.value)

    def test_truncated_data(self, tmp_path: Path, suffix: str) -> None:
        self.fails(
            tmp_path,
            suffix,
            idx_bytes(IMAGES)[:-7],
            "is truncated: .* needs 76 bytes, and there are 69",
        )

    def test_truncated_header(self, tmp_path: Path, suffix: str) -> None:
        self.fails(tmp_path, suffix, idx_bytes(IMAGES)[:9], "truncated: its header of 16 bytes")
        self.fails(tmp_path, suffix, b"\0\0\x08", "not an idx file: it begins with 00 00 08,")

    def test_trailing_bytes(self, tmp_path: Path, suffix: str) -> None:
        message = f"needs 76 bytes, and there are {'77 or more' if suffix else 79}"
        self.fails(tmp_path, suffix, idx_bytes(IMAGES) + b"abc", message)

    @pytest.mark.parametrize("head", [b"\0\1\x08\3", b"\0\0\x0a\3", b"\0\0\x08\0", b"\0\0\x08\xff"])
    def test_wrong_magic(self, tmp_path: Path, suffix: str, head: bytes) -> None:
        message = f"not an idx file: it begins with {head.hex(' ')}"
        self.fails(tmp_path, suffix, head + bytes(2000), message)

    def test_a_size_that_no_file_has(self, tmp_path: Path, suffix: str) -> None:
        head = bytes([0, 0, 8, 3]) + b"\xff" * 12
        self.fails(tmp_path, suffix, head + bytes(100), "needs 79,228,162,458,924,")


class TestBadGzip:
    def broken(self, tmp_path: Path, data: bytes, message: str) -> None:
        path = tmp_path / "x-idx.gz"
        path.write_bytes(data)
        with pytest.raises(InputError, match=message) as caught:
            read_idx(path)
        assert str(path) in str(caught.value)

    def test_truncated(self, tmp_path: Path) -> None:
        whole = gzip.compress(idx_bytes(np.random.default_rng(0).integers(0, 255, 9999, np.uint8)))
        for end in (5, 12, len(whole) // 2, len(whole) - 1):
            self.broken(tmp_path, whole[:end], "truncated or corrupt gzip file")

    def test_bytes_changed(self, tmp_path: Path) -> None:
        whole = bytearray(gzip.compress(idx_bytes(IMAGES)))
        whole[-6] ^= 1  # the CRC
        self.broken(tmp_path, bytes(whole), "corrupt gzip file: CRC check failed")
        whole[-6] ^= 1
        whole[12] ^= 0xFF
        self.broken(tmp_path, bytes(whole), "gzip|idx")

    def test_garbage_after_it(self, tmp_path: Path) -> None:
        self.broken(tmp_path, gzip.compress(idx_bytes(IMAGES)) + b"garbage", "corrupt gzip file")

    def test_a_bomb_is_not_unpacked(self, tmp_path: Path) -> None:
        """200 MB of zeros behind a header that claims 4 bytes: only 13 are ever unpacked."""
        head = bytes([0, 0, 8, 1, 0, 0, 0, 4])
        self.broken(tmp_path, gzip.compress(head + bytes(200_000_000), 1), "there are 13 or more")


def test_no_file_an_empty_one_and_one_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nothing-idx: No such file"):
        read_idx(tmp_path / "nothing-idx")
    with pytest.raises(InputError, match=r"empty \(0 bytes\)"):
        read_idx(write(tmp_path / "empty", b""))
    with pytest.raises(InputError, match="cannot read"):
        read_idx(tmp_path)
    path = write(tmp_path / "x-idx", idx_bytes(IMAGES))
    monkeypatch.setattr(base, "MAX_BYTES", 75)
    with pytest.raises(InputError, match="has 76 bytes, more than the 75"):
        read_idx(path)


class TestPictures:
    def pair(self, tmp_path: Path, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> list[Path]:
        return [write(tmp_path / "x.gz", idx_bytes(x)), write(tmp_path / "y.gz", idx_bytes(y))]

    def test_pair(self, tmp_path: Path) -> None:
        read = read_idx_pictures(*self.pair(tmp_path, IMAGES, LABELS), num_classes=3)
        assert len(read) == 5
        assert read.images.shape == (5, 1, 4, 3)
        assert read.labels is not None
        assert read.labels.dtype == np.int64
        np.testing.assert_array_equal(read.images[:, 0], IMAGES)
        np.testing.assert_array_equal(read.labels, LABELS)

    def test_counts_differ(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"x\.gz and .*y\.gz: 5 images, but 4 labels"):
            read_idx_pictures(*self.pair(tmp_path, IMAGES, LABELS[:4]), num_classes=3)

    def test_label_out_of_range(self, tmp_path: Path) -> None:
        with pytest.raises(
            InputError, match=r"y\.gz: label 2 of sample 2 is not in 0\.\.1 \(1 of 5"
        ):
            read_idx_pictures(*self.pair(tmp_path, IMAGES, LABELS), num_classes=2)
        bad = np.array([0, -1, 0, 0, 0], np.int8)
        with pytest.raises(InputError, match=r"label -1 of sample 1"):
            read_idx_pictures(*self.pair(tmp_path, IMAGES, bad), num_classes=2)

    def test_the_wrong_way_round(self, tmp_path: Path) -> None:
        x, y = self.pair(tmp_path, IMAGES, LABELS)
        with pytest.raises(InputError, match=r"y\.gz: expected images, .*got \(5,\) uint8"):
            read_idx_pictures(y, x, num_classes=3)
        with pytest.raises(InputError, match=r"x\.gz: expected labels"):
            read_idx_pictures(x, x, num_classes=3)

    def test_no_images(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no images"):
            read_idx_pictures(*self.pair(tmp_path, IMAGES[:0], LABELS[:0]), num_classes=3)
