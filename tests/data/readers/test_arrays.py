"""npy and npz: numbers come back as they were, and nothing is unpickled."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gemfi.data.readers import arrays, base, read_array_pictures, read_npy, read_npz
from gemfi.errors import InputError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), np.uint8)
LABELS = np.array([0, 1, 2, 2, 1, 0], np.int32)


class Trap:
    """Leaves a trace if it is unpickled."""

    sprung = False

    def __reduce__(self) -> Any:
        return (setattr, (Trap, "sprung", True))


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), **options)
    return file.getvalue()


def npz(path: Path, **members: Any) -> Path:
    np.savez_compressed(path, **members)
    return path


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


class TestNpy:
    @pytest.mark.parametrize("dtype", ["u1", "<i2", ">i4", "<f4", ">f8", "?", "<f2"])
    @pytest.mark.parametrize("version", [(1, 0), (2, 0)])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_numbers(self, tmp_path: Path, dtype: str, version: Any, order: Any) -> None:
        array = np.asarray(np.arange(24).reshape(2, 3, 4), dtype, order=order)
        read = read_npy(write(tmp_path / "x.npy", npy(array, version=version)))
        np.testing.assert_array_equal(read, array)
        assert read.dtype == array.dtype.newbyteorder("=")
        assert read.flags.c_contiguous
        torch.from_numpy(read)[0] = 1  # native and writable: no error, no warning

    def test_objects_are_refused_and_not_unpickled(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.npy", npy(np.array([Trap()], object), allow_pickle=True))
        with pytest.raises(InputError, match=r"x\.npy holds Python objects, which only unpickling"):
            read_npy(path)
        assert not Trap.sprung
        np.load(path, allow_pickle=True)  # the trap works
        assert Trap.sprung

    def test_objects_inside_a_structure(self, tmp_path: Path) -> None:
        array = np.array([(1, None)], [("a", "i4"), ("b", "O")])
        path = write(tmp_path / "x.npy", npy(array, allow_pickle=True))
        with pytest.raises(InputError, match="holds Python objects"):
            read_npy(path)

    @pytest.mark.parametrize(
        "array",
        [np.array(["a"]), np.zeros(2, complex), np.zeros(1, [("a", "i4")]), np.array([b"x"])],
    )
    def test_what_is_not_numbers(self, tmp_path: Path, array: Any) -> None:
        with pytest.raises(InputError, match="expected numbers"):
            read_npy(write(tmp_path / "x.npy", npy(array)))

    def test_truncated_trailing_and_foreign(self, tmp_path: Path) -> None:
        path, data = tmp_path / "x.npy", npy(LABELS)
        cases = {
            data[:-3]: r"shape \(6,\) of int32 needs 24 bytes, but 21 follow",
            data + b"ab": "needs 24 bytes, but 26 follow",
            data[:40]: "not a whole npy array",
            data[:5]: "not a whole npy array",
            b"PK" + bytes(90): "not a whole npy array",
            data.replace(b"'<i4'", b"'<q9'"): "not a whole npy array",
            data.replace(b"(6,)", b"((((").replace(b"}", b" "): "not a whole npy array",
            data[:6] + b"\x03" + data[7:]: r"version \(3, 0\) is not read",
            data[:6] + b"\x09" + data[7:]: "version|whole",
        }
        for bad, message in cases.items():
            with pytest.raises(InputError, match=message) as caught:
                read_npy(write(path, bad))
            assert str(path) in str(caught.value)
        with pytest.raises(InputError, match="cannot read"):
            read_npy(tmp_path / "none.npy")

    @pytest.mark.parametrize("shape", ["(99999999999999,)", "(9999999, 9999999, 9999999)", "(-6,)"])
    def test_a_huge_shape_is_refused_before_allocation(self, tmp_path: Path, shape: str) -> None:
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
        with pytest.raises(InputError, match="but 8 follow the header"):
            read_npy(write(tmp_path / "x.npy", head + bytes(8)))

    @given(st.integers(6, 127), st.integers(0, 255))
    def test_a_changed_header_is_an_error_or_numbers(self, at: int, value: int) -> None:
        data = bytearray(npy(LABELS))
        data[at] = value
        try:
            arrays._read(io.BytesIO(bytes(data)), len(data), "x")
        except InputError as error:
            assert str(error).startswith("x")  # noqa: PT017 - most changes do no harm


class TestNpz:
    def test_chosen_keys(self, tmp_path: Path) -> None:
        path = npz(tmp_path / "x.npz", a=IMAGES, b=LABELS, c=np.array([None]))
        read = read_npz(path, ["b", "a"])
        assert list(read) == ["b", "a"]
        np.testing.assert_array_equal(read["a"], IMAGES)
        np.testing.assert_array_equal(read["b"], LABELS)

    def test_all_keys(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", a=IMAGES, b=LABELS)
        assert list(read_npz(tmp_path / "x.npz")) == ["a", "b"]

    def test_a_key_that_is_not_there(self, tmp_path: Path) -> None:
        path = npz(tmp_path / "x.npz", a=IMAGES, b=LABELS)
        with pytest.raises(InputError, match=r"x\.npz has no array 'y'; it holds: a, b"):
            read_npz(path, ["a", "y"])

    def test_objects(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        np.savez(path, a=LABELS, b=np.array([[], {}], object))
        with pytest.raises(InputError, match=r"x\.npz: 'b' holds Python objects"):
            read_npz(path)

    def test_truncated_and_changed(self, tmp_path: Path) -> None:
        path = npz(tmp_path / "x.npz", a=IMAGES)
        data = path.read_bytes()
        for end in (1, 50, len(data) // 2, len(data) - 1):
            with pytest.raises(InputError, match=rf"cannot read .*x\.npz \({end} bytes\) as npz"):
                read_npz(write(path, data[:end]))
        changed = bytearray(data)
        changed[200] ^= 0xFF
        with pytest.raises(InputError, match=r"x\.npz: 'a' is (not a whole|truncated)"):
            read_npz(write(path, bytes(changed)))

    def test_no_file_and_no_zip(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"none\.npz as npz: No such file"):
            read_npz(tmp_path / "none.npz")
        with pytest.raises(InputError, match=r"as npz: File is not a zip file"):
            read_npz(write(tmp_path / "x.npz", npy(LABELS)))

    def test_a_zip_of_the_future(self, tmp_path: Path) -> None:
        path = npz(tmp_path / "x.npz", a=LABELS)
        data = bytearray(path.read_bytes())
        data[data.index(b"PK\x01\x02") + 6] = 255  # the version that is needed to unpack it
        with pytest.raises(InputError, match=r"as npz: zip file version 25\.5"):
            read_npz(write(path, bytes(data)))

    def test_a_member_that_is_no_array(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("readme.txt", "hello")
        with pytest.raises(InputError, match=r"'readme\.txt' is not a whole npy array"):
            read_npz(tmp_path / "x.npz")

    def test_a_bomb_is_not_unpacked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = npz(tmp_path / "x.npz", a=np.zeros(1_000_000, np.uint8))
        assert path.stat().st_size < 2000
        monkeypatch.setattr(base, "MAX_BYTES", 10_000)
        with pytest.raises(InputError, match="claims 1,000,128 unpacked bytes"):
            read_npz(path)


class TestPictures:
    def test_layouts(self, tmp_path: Path) -> None:
        expected = IMAGES.transpose(0, 3, 1, 2)
        path = tmp_path / "x.npz"
        for images in (IMAGES, expected):
            read = read_array_pictures(npz(path, images=images, y=LABELS))
            np.testing.assert_array_equal(read.images, expected)
            assert read.labels is None
        assert read_array_pictures(npz(path, images=IMAGES[..., 0])).images.shape == (6, 1, 5, 4)
        lone = write(tmp_path / "fog.npy", npy(IMAGES))  # as CIFAR-10-C has them
        np.testing.assert_array_equal(read_array_pictures(lone).images, expected)

    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (IMAGES.astype(float), "images must be uint8, got float64"),
            (IMAGES[0, 0], r"expected images of shape .*got \(4, 3\)"),
            (IMAGES[..., :2], r"1 or 3 channels, got \(6, 5, 4, 2\)"),
            (IMAGES[:, :3], "does not tell which axis"),
            (IMAGES[:0], "no images"),
        ],
    )
    def test_contents(self, tmp_path: Path, images: Any, message: str) -> None:
        path = npz(tmp_path / "x.npz", images=images)
        with pytest.raises(InputError, match=message) as caught:
            read_array_pictures(path)
        assert str(path) in str(caught.value)
