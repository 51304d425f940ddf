"""SVHN's .mat files: the published layout, parts of it, and files that are something else."""

from __future__ import annotations

import contextlib
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from hypothesis import given
from hypothesis import strategies as st

from gemfi.data.readers import read_mat, read_svhn
from gemfi.errors import InputError

X = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 12), np.uint8)
Y = np.array([[1, 10, 3, 9, 10, 5, 6, 7, 8, 2, 4, 1]]).T


def write(path: Path, *, compressed: bool = True, **variables: Any) -> Path:
    scipy.io.savemat(path, variables, do_compression=compressed)
    return path


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.int32])
def test_layout(tmp_path: Path, compressed: bool, dtype: Any) -> None:
    read = read_svhn(write(tmp_path / "a.mat", compressed=compressed, X=X, y=Y.astype(dtype)))
    assert len(read) == 12
    assert read.images.shape == (12, 3, 32, 32)
    assert read.images[4, 2, 7, 30] == X[7, 30, 2, 4]  # row, column, channel, sample
    assert read.labels is not None
    assert read.labels.dtype == np.int64
    assert read.labels.tolist() == [1, 0, 3, 9, 0, 5, 6, 7, 8, 2, 4, 1]
    torch.from_numpy(read.images)[0] = 0  # writable: no warning


def test_a_part_of_the_images_and_a_name_without_suffix(tmp_path: Path) -> None:
    part = write(tmp_path / "part.mat", X=X[..., :5], y=Y[:5]).rename(tmp_path / "part")
    assert len(read_svhn(part)) == 5
    assert len(read_svhn(write(tmp_path / "one.mat", X=X[..., :1], y=Y[:1]))) == 1
    assert len(read_svhn(write(tmp_path / "row.mat", X=X, y=Y.T))) == 12


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"X": X}, "has no variable y; it holds: X"),
        ({"y": Y, "Z": X}, "has no variable X; it holds: Z, y"),
        ({"X": X, "y": Y[:7]}, "12 images, but 7 labels"),
        ({"X": X.astype(float), "y": Y}, r"X must be uint8 of shape .*, got float64 \(32"),
        ({"X": X[:31], "y": Y}, r"of shape \(32, 32, 3, N\), got uint8 \(31, 32, 3, 12\)"),
        ({"X": X.transpose(3, 0, 1, 2), "y": Y}, r"got uint8 \(12, 32, 32, 3\)"),
        ({"X": X, "y": np.ones((6, 2))}, r"y must have shape \(N, 1\), got \(6, 2\)"),
        ({"X": X, "y": Y - 1}, r"y: label 0 of sample 0 is not in 1\.\.10"),
        ({"X": X, "y": Y + 1}, r"label 11 of sample 1 is not in 1\.\.10 \(2 of 12"),
        ({"X": X, "y": Y + 0.5}, r"label 1\.5 of sample 0"),
        ({"X": X, "y": np.full((12, 1), np.nan)}, "label nan of sample 0"),
        ({"X": X, "y": np.array([["a"]], object)}, "y must be .*, got cell"),
        ({"X": X, "y": "text"}, "y must be .*, got char"),
        ({"X": X, "y": {"a": 1}}, "y must be .*, got struct"),
    ],
)
def test_contents(tmp_path: Path, variables: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "bad.mat", **variables)
    with pytest.raises(InputError, match=message) as caught:
        read_svhn(path)
    assert str(path) in str(caught.value)


class TestBadFiles:
    def fails(self, path: Path, data: bytes, message: str) -> None:
        path.write_bytes(data)
        with pytest.raises(InputError, match=message) as caught:
            read_svhn(path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize("compressed", [False, True])
    def test_truncated(self, tmp_path: Path, compressed: bool) -> None:
        path = tmp_path / "cut.mat"
        data = write(path, compressed=compressed, X=X, y=Y).read_bytes()
        for end in (129, 135, 200, 1000, len(data) // 2, len(data) - 1):
            self.fails(path, data[:end], "truncated or corrupt|has no variable")
        self.fails(path, data[:100], "offset 124 of 100 bytes holds '', expected")
        self.fails(path, b"", "is empty")

    def test_bytes_changed(self, tmp_path: Path) -> None:
        path = tmp_path / "changed.mat"
        data = bytearray(write(path, X=X, y=Y).read_bytes())
        data[len(data) // 2] ^= 0xFF
        self.fails(path, bytes(data), "truncated or corrupt")

    def test_version_7_3_is_named(self, tmp_path: Path) -> None:
        header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
        hdf5 = b"\x89HDF\r\n\x1a\n"
        for data in (header + bytes(384) + hdf5, header, hdf5 + bytes(500)):
            self.fails(tmp_path / "new.mat", data, r"MATLAB 7\.3 file \(HDF5\).*-v7")

    def test_another_format(self, tmp_path: Path) -> None:
        message = "not a MATLAB version 5 file: offset 124 of 500 bytes holds '78 78 78 78'"
        self.fails(tmp_path / "x.mat", b"x" * 500, message)
        scipy.io.savemat(tmp_path / "old.mat", {"X": np.eye(20), "y": Y}, format="4")
        self.fails(tmp_path / "old.mat", (tmp_path / "old.mat").read_bytes(), "not a MATLAB ver")

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"cannot read .*none\.mat: No such file"):
            read_svhn(tmp_path / "none.mat")

    def test_a_claim_beyond_memory(self, tmp_path: Path) -> None:
        """A packed matrix that claims 4 GiB, and one whose sizes do."""
        path = tmp_path / "large.mat"
        head = write(path, X=X, y=Y).read_bytes()[:128]
        packed = zlib.compress(struct.pack("<II", 14, 2**32 - 8) + bytes(1000))
        claim = head + struct.pack("<II", 15, len(packed)) + packed
        self.fails(path, claim, "a matrix without flags|4,294,967,288 bytes")
        plain = write(path, compressed=False, X=X, y=Y).read_bytes()
        sizes = struct.pack("<4i", 32, 32, 3, 12)
        assert plain.count(sizes) == 1
        huge = plain.replace(sizes, struct.pack("<4i", *[2**31 - 1] * 4))
        self.fails(path, huge, r"X of shape \(2147483647, .* with 36864 bytes")
        self.fails(path, plain.replace(sizes, struct.pack("<4i", 32, 32, -3, -12)), "of shape")

    @given(st.data())
    def test_changed_bytes_are_an_error_or_pictures(
        self, tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
    ) -> None:
        """scipy's reader crashes the process on some of these."""
        path = tmp_path_factory.getbasetemp() / "fuzz.mat"
        compressed = draw.draw(st.booleans())
        data = bytearray(
            write(path, compressed=compressed, X=X[..., :2], y=Y[:2], z=np.eye(3)).read_bytes()
        )
        for _ in range(draw.draw(st.integers(1, 3))):
            at = draw.draw(st.integers(124, 250) | st.integers(124, len(data) - 1))
            data[at] = draw.draw(st.integers(0, 255))
        path.write_bytes(bytes(data))
        with contextlib.suppress(InputError):
            assert read_svhn(path).images.shape[1:] == (3, 32, 32)


@pytest.mark.parametrize("compressed", [False, True])
def test_every_type_as_scipy_reads_it(tmp_path: Path, compressed: bool) -> None:
    variables = {
        f"v_{code}": np.arange(6).reshape(2, 3).astype(code)
        for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
    }
    variables |= {"small": np.array([[7]], np.uint8), "none": np.zeros((0, 4)), "cube": X[..., 0]}
    path = tmp_path / "all.mat"
    scipy.io.savemat(path, variables | {"text": "skipped"}, do_compression=compressed)
    oracle, read = scipy.io.loadmat(path), read_mat(path, tuple(variables))
    for name in variables:
        np.testing.assert_array_equal(read[name], oracle[name])
        assert read[name].dtype == oracle[name].dtype


def test_big_endian_by_hand(tmp_path: Path) -> None:
    """A file of 1990s hardware: one array [[1, 2]] of 16-bit numbers by the name of ab."""
    body = struct.pack(">IIII", 6, 8, 10, 0) + struct.pack(">IIii", 5, 8, 1, 2)
    body += struct.pack(">HH4s", 2, 1, b"ab") + struct.pack(">HHhh", 4, 3, 1, 2)
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
    path = tmp_path / "big.mat"
    path.write_bytes(head + struct.pack(">II", 14, len(body)) + body)
    read = read_mat(path, ("ab",))["ab"]
    assert read.tolist() == [[1, 2]]
    assert read.dtype == np.int16
    np.testing.assert_array_equal(read, scipy.io.loadmat(path)["ab"])


def test_scipy_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.mat", X=X, y=Y)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    assert len(read_svhn(path)) == 12
