"""The cache of decoded pictures: read once, never stale, never half written."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from gemfi.data import load_split
from gemfi.data.readers import Pictures
from gemfi.data.registry.cache import FOLDER, read_cached
from gemfi.data.registry.entries import Form
from gemfi.errors import InputError


class Source:
    """A form over one file, or over a folder, that counts how often it is decoded."""

    def __init__(self, root: Path, file: str = "set/raw.bin", **fields: Any) -> None:
        self.root, self.fields, self.calls = root, fields, 0
        self.form = Form("test", (file,), self.read, slow=True)
        self.path = root / file

    def read(self, path: Path) -> Pictures:
        self.calls += 1
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        data = b"".join(file.read_bytes() for file in files)
        return Pictures(np.frombuffer(data, np.uint8).reshape(-1, 1, 1, 1).copy(), **self.fields)

    def write(self, data: bytes, nanoseconds: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(data)
        os.utime(self.path, ns=(nanoseconds, nanoseconds))

    def pixels(self) -> list[int]:
        found: list[int] = read_cached(self.form, "set-test", self.root).images.ravel().tolist()
        return found

    def stored(self) -> list[str]:
        return sorted(path.name for path in (self.root / FOLDER).glob("*"))


def test_the_second_time_nothing_is_decoded(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.write(b"\1\2\3", 10)
    assert [source.pixels() for _ in range(3)] == [[1, 2, 3]] * 3
    assert source.calls == 1
    (name,) = source.stored()
    assert name.startswith("set-test-")
    assert name.endswith(".safetensors")


def test_load_reads_the_files_once(
    shelf: Any, shrink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink("mnist", {"train": 60, "test": 20}, held_out=10)
    shelf.mnist()
    opened: list[str] = []
    read_bytes: Callable[[Path], bytes] = Path.read_bytes

    def counted(path: Path) -> bytes:
        opened.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    first = load_split("mnist", "validation")
    assert opened == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]
    opened.clear()
    again, other = load_split("mnist", "validation"), load_split("mnist", "calibration")
    assert opened == []
    assert (first.x == again.x).all()
    assert (first.labels == again.labels).all()
    assert len(other) == 10


def test_everything_about_the_pictures_comes_back(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "labels": np.array([2, 0]),
        "class_names": ("über", "a b", "c"),
    }
    source = Source(tmp_path, **fields)
    source.write(b"\1\2", 10)
    for _ in range(2):
        found = read_cached(source.form, "set-test", tmp_path)
        assert found.images.dtype == np.uint8
        assert found.labels is not None
        assert found.labels.dtype == np.int64
        assert found.labels.tolist() == [2, 0]
        assert found.class_names == fields["class_names"]
        found.images[0] = 9  # its own: the next reader does not see it
    assert source.calls == 1


def test_no_labels_and_no_names_come_back_too(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.write(b"\1", 10)
    for _ in range(2):
        found = read_cached(source.form, "set-test", tmp_path)
        assert (found.labels, found.class_names) == (None, None)
    assert source.calls == 1


@pytest.mark.parametrize(("data", "nanoseconds"), [(b"\1\2\4", 11), (b"\1\2\4\5", 10), (b"\7", 99)])
def test_a_changed_file_is_decoded_anew(tmp_path: Path, data: bytes, nanoseconds: int) -> None:
    """By its time of change alone, by its size alone, by both; the old result goes."""
    source = Source(tmp_path)
    source.write(b"\1\2\3", 10)
    source.pixels()
    (old,) = source.stored()
    source.write(data, nanoseconds)
    assert source.pixels() == list(data)
    assert source.calls == 2
    (new,) = source.stored()
    assert new != old


def test_a_file_more_in_a_folder_is_noticed(tmp_path: Path) -> None:
    source = Source(tmp_path, "set")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").write_bytes(b"\1")
    assert source.pixels() == [1]
    (tmp_path / "set" / "b").write_bytes(b"\2")
    assert source.pixels() == [1, 2]
    os.utime(tmp_path / "set" / "a", ns=(5, 5))
    source.pixels()
    assert source.calls == 3
    assert len(source.stored()) == 1


def test_other_sets_are_left_alone(tmp_path: Path) -> None:
    """`mnist-test` begins like `mnist-test-2`, whose files must stay."""
    source = Source(tmp_path)
    source.write(b"\1", 10)
    for name in ("set-test", "set-test-2", "set-testing", "set"):
        read_cached(source.form, name, tmp_path)
    source.write(b"\2", 20)
    source.pixels()
    names = sorted(name.rsplit("-", 1)[0] for name in source.stored())
    assert names == ["set", "set-test", "set-test-2", "set-testing"]


def test_what_a_killed_process_left_is_tidied_up(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.write(b"\1", 10)
    source.pixels()
    (name,) = source.stored()
    left = (tmp_path / FOLDER / name).with_suffix(".4711-1.tmp")
    left.write_bytes(b"half")
    source.write(b"\2", 20)
    source.pixels()
    assert len(source.stored()) == 1
    assert not left.exists()


@pytest.mark.parametrize("end", [0, 4, 30, -1])
def test_a_truncated_cache_file_is_named(tmp_path: Path, end: int) -> None:
    source = Source(tmp_path)
    source.write(b"\1\2\3", 10)
    source.pixels()
    file = tmp_path / FOLDER / source.stored()[0]
    file.write_bytes(file.read_bytes()[:end])
    with pytest.raises(InputError, match=r"cannot read the cache .*; delete it") as caught:
        source.pixels()
    assert str(file) in str(caught.value)
    file.unlink()
    assert source.pixels() == [1, 2, 3]


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Anywhere: either it is named, or what comes back is what was stored."""
    fields: dict[str, Any] = {"labels": np.array([2, 0, 1]), "class_names": ("a", "b", "c")}
    source = Source(tmp_path, **fields)
    source.write(b"\1\2\3", 10)
    source.pixels()
    file = tmp_path / FOLDER / source.stored()[0]
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in (1, 2, 32):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            with pytest.raises(InputError, match=r"the cache .*; delete it") as caught:
                source.pixels()
            assert str(file) in str(caught.value)
    assert source.calls == 1


@pytest.mark.parametrize("lost", ["images", "labels"])
def test_a_cache_file_that_lacks_a_key(tmp_path: Path, lost: str) -> None:
    source = Source(tmp_path, labels=np.array([2, 0, 1]))
    source.write(b"\1\2\3", 10)
    source.pixels()
    file = tmp_path / FOLDER / source.stored()[0]
    with safe_open(file, framework="np") as stored:
        header = stored.metadata()
        arrays = {key: stored.get_tensor(key) for key in ("images", "labels") if key != lost}
    save_file(arrays, file, header)
    with pytest.raises(InputError, match=r"the cache .* is damaged: .*; delete it"):
        source.pixels()


def test_another_version_of_how_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(tmp_path)
    source.write(b"\1", 10)
    source.pixels()
    monkeypatch.setattr("gemfi.data.registry.cache._VERSION", 99)
    source.pixels()
    source.pixels()
    assert source.calls == 2
    assert len(source.stored()) == 1


@pytest.mark.parametrize("locked", ["", ".gemfi", ".gemfi/decoded"])
def test_a_folder_that_may_not_be_written_to_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    source = Source(tmp_path)
    source.write(b"\1\2", 10)
    (tmp_path / locked).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path / locked)
    assert [source.pixels(), source.pixels()] == [[1, 2]] * 2
    assert source.calls == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_cache_in_a_read_only_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(tmp_path)
    source.write(b"\1\2", 10)
    source.pixels()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert source.pixels() == [1, 2]
    assert source.calls == 1


def test_a_file_that_cannot_be_decoded_leaves_no_cache(shelf: Any) -> None:
    shelf.idx("mnist", "t10k", 20)
    file = shelf.root / "mnist" / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes())[:-5]))
    with pytest.raises(InputError, match=r"t10k-images-idx3-ubyte\.gz is truncated"):
        load_split("mnist", "test")
    assert not (shelf.root / FOLDER).exists()


def test_the_data_folder_may_move(tmp_path: Path) -> None:
    """The cache goes with it: names below the folder count, not where it is."""
    source = Source(tmp_path / "one")
    source.write(b"\1\2", 10)
    source.pixels()
    shutil.move(tmp_path / "one", tmp_path / "two")
    moved = Source(tmp_path / "two")
    assert moved.pixels() == [1, 2]
    assert moved.calls == 0


RACE = """
import sys, time
from pathlib import Path
import numpy as np
from gemfi.data.readers import Pictures
from gemfi.data.registry.cache import read_cached
from gemfi.data.registry.entries import Form

root, me, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def read(path):
    path.with_suffix("." + me).touch()  # wait for the other: both decode, and store, at once
    other = path.with_suffix(".a" if me == "b" else ".b")
    deadline = time.monotonic() + 60
    while not other.exists():
        assert time.monotonic() < deadline
        time.sleep(0.0002)
    return Pictures(np.full((500_000, 1, 1, 1), int(path.stem), np.uint8))

for number in range(rounds):
    form = Form("test", (f"raw/{number}.bin",), read, slow=True)
    name = f"set-{number}"
    assert (read_cached(form, name, root).images == number).all()
"""


def test_two_processes_at_once_leave_a_good_cache(tmp_path: Path) -> None:
    rounds = 10
    (tmp_path / "raw").mkdir()
    for number in range(rounds):
        (tmp_path / "raw" / f"{number}.bin").write_bytes(b"x")
    command = [sys.executable, "-c", RACE, str(tmp_path)]
    with contextlib.ExitStack() as stack:
        pair = [
            stack.enter_context(
                subprocess.Popen([*command, me, str(rounds)], stderr=subprocess.PIPE, text=True)
            )
            for me in "ab"
        ]
        while all(process.poll() is None for process in pair):
            time.sleep(0.01)
        if any(process.poll() for process in pair):  # the other would wait for it
            for process in pair:
                process.terminate()
        said = [process.communicate()[1] for process in pair]
    assert said == ["", ""]
    assert [process.returncode for process in pair] == [0, 0]
    files = sorted((tmp_path / FOLDER).iterdir())
    assert len(files) == rounds  # one each, and nothing half written
    for file in files:
        number = int(file.name.split("-")[1])
        with safe_open(file, framework="np") as stored:
            images = stored.get_tensor("images")
        assert images.shape == (500_000, 1, 1, 1)
        assert (images == number).all()
