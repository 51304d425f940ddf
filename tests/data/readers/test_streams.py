"""Files read a piece at a time: the same rows as the readers of whole files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gemfi.data.columns import Columns
from gemfi.data.readers import read_npy
from gemfi.data.readers.arrays import stream_rows
from gemfi.data.readers.base import ROWS
from gemfi.data.readers.images import IMAGES, is_image, read_image, stream_images
from gemfi.data.readers.tables import stream_csv
from gemfi.errors import InputError


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1", "<i2"])
@pytest.mark.parametrize("rows", [1, 3, 10, 100])
def test_rows_of_an_array_are_those_of_the_whole(tmp_path: Path, dtype: str, rows: int) -> None:
    x = (np.arange(60) % 50).reshape(10, 2, 3).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    np.savez_compressed(tmp_path / "x.npz", other=x[:1], x=x)
    whole = read_npy(tmp_path / "x.npy")
    for name in ("x.npy", "x.npz"):
        pieces = list(stream_rows(tmp_path / name, rows))
        assert max(map(len, pieces)) == min(rows, 10)
        assert (np.concatenate(pieces) == whole).all()
        assert pieces[0].dtype == whole.dtype
        assert pieces[0].flags.writeable


def test_broken_arrays_are_refused(tmp_path: Path) -> None:
    x = np.zeros((50, 40))
    np.save(tmp_path / "x.npy", x)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-100])
    np.save(tmp_path / "columns.npy", np.asfortranarray(x))
    np.save(tmp_path / "scalar.npy", np.float64(3))
    np.savez(tmp_path / "other.npz", y=x)
    (tmp_path / "no.npz").write_bytes(b"PK no archive")
    for name, message in (
        ("cut.npy", "needs 16000 bytes, but 15900 follow"),
        ("columns.npy", "columns first; save np.ascontiguousarray"),
        ("scalar.npy", "expected rows one after the other"),
        ("other.npz", "has no array x or images; it holds: y"),
        ("no.npz", "cannot read"),
        ("absent.npy", "cannot read"),
    ):
        with pytest.raises(InputError, match=message):
            list(stream_rows(tmp_path / name, 8))


def test_a_member_that_ends_early_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(3000, 40)))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[400_000] ^= 255  # the checksum of the member
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(InputError, match="truncated or corrupt"):
        list(stream_rows(tmp_path / "x.npz", 100))


def test_images_come_in_pieces(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for index in range(IMAGES + 3):
        Image.fromarray(rng.integers(0, 256, (6, 6), np.uint8)).save(tmp_path / f"{index:03}.png")
    (tmp_path / "001.png").write_bytes(b"nothing")
    files = sorted(tmp_path.iterdir())
    pieces = list(stream_images(files, size=(6, 6), mode="L"))
    assert [len(piece.names) for piece in pieces] == [IMAGES, 3]
    assert list(pieces[0].errors) == [1]
    assert (pieces[0].x[1] == 0).all()
    assert (pieces[1].x[2] == read_image(files[-1], mode="L")).all()
    assert is_image("a.JPG")
    assert not is_image("a.csv")


def test_a_table_comes_in_pieces(tmp_path: Path) -> None:
    lines = [f"{index},{2 * index}" for index in range(ROWS + 2)]
    (tmp_path / "a.csv").write_text("\n".join(["a,b", *lines, ""]))
    pieces = list(stream_csv(tmp_path / "a.csv", Columns.of_numbers(["b"]), 1))
    assert [len(piece.names) for piece in pieces] == [ROWS, 2]
    assert np.concatenate([piece.x[:, 0] for piece in pieces]).tolist() == [
        2.0 * index for index in range(ROWS + 2)
    ]
    first = next(stream_csv(tmp_path / "a.csv", None, 2))
    assert first.x[3].tolist() == [3.0, 6.0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no rows"),
        (b"a,b\n\xff\xfe\n", "not UTF-8"),
        (b'a,b\n"1,2\n', "line"),
        (b"a\n1\n", "has 1 columns, but an input has 2 numbers"),
        (b"index,a,b\n0,1,2\n", "has 3 columns, but .* 2 numbers, .* give these columns alone"),
        (b"1,2\n3,4\n", "begins with numbers where the names of the columns belong"),
        (b"a;b\n1;2\n", "has 1 columns"),
    ],
)
def test_broken_tables_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(stream_csv(tmp_path / "a.csv", None, 2))


def test_a_name_that_two_columns_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(InputError, match="has two columns 'a'"):
        list(stream_csv(tmp_path / "a.csv", Columns.of_numbers(["a", "b"]), 2))
    assert next(stream_csv(tmp_path / "a.csv", Columns.of_numbers(["b"]), 1)).x.tolist() == [[2.0]]


def test_wide_tables_come_in_pieces_of_few_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemfi.data.readers.tables.NUMBERS", 7)
    (tmp_path / "a.csv").write_text("a,b,c\n" + 5 * "1,2,3\n")
    pieces = list(stream_csv(tmp_path / "a.csv", Columns.of_numbers(["c"]), 1))
    assert [len(piece.names) for piece in pieces] == [2, 2, 1]
