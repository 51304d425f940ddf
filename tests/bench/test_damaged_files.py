"""Files of a bench that were cut, overwritten or edited: one line that names them, exit code 2."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemfi.cli import main
from gemfi.errors import CheckpointError
from gemfi_bench.grid import MAIN
from gemfi_bench.protocol import Contestant, Protocol
from gemfi_bench.record_file import PACKED, RECORDS, RecordFile, read_arrays, write_arrays
from gemfi_bench.results import OVERHEAD, Results
from gemfi_bench.runner import GRID, PROTOCOL, Bench
from support.benches import classified, made_results
from support.commands import Capture

Damage = Callable[[Path], object]
ARRAYS = {"test": {"score/entropy": np.arange(50, dtype=np.float32)}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs with arrays."""
    row = (MAIN, "softmax")
    made_results(
        tmp_path / "bench", {row: [classified(accuracy=90.0)] * 2}, {row: [ARRAYS, ARRAYS]}
    )
    return tmp_path / "bench"


def error_of(folder: Path, capsys: Capture) -> str:
    """What `gemfi report` says of it: one line."""
    assert main(["report", str(folder)]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    return found


def packed(folder: Path) -> bytes:
    (folder / RECORDS).rename(folder / "moved")
    return gzip.compress((folder / "moved").read_bytes())


def second_line(**changes: Any) -> Damage:
    """A change of fields of the second record."""

    def damage(folder: Path) -> None:
        lines = (folder / RECORDS).read_text().splitlines()
        lines[1] = json.dumps(json.loads(lines[1]) | changes)
        (folder / RECORDS).write_text("\n".join(lines) + "\n")

    return damage


def written(name: str, data: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(data)


def appended(name: str, data: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + data)


@pytest.mark.parametrize(
    ("damage", "file", "remedy"),
    [
        (lambda f: (f / PACKED).write_bytes(packed(f)[:-20]), PACKED, "put a whole copy"),
        (written(PACKED, b"hello"), PACKED, "or delete it, and its runs are done again"),
        (lambda f: (f / PACKED).write_bytes(packed(f)[:30] + b"\0" * 40), PACKED, "whole copy"),
        (appended(RECORDS, b"\xff\xfe\n"), f"{RECORDS} line 3", "delete that line"),
        (second_line(data=None), f"{RECORDS} line 2", "the run is done again"),
        (second_line(numbers=None), f"{RECORDS} line 2", "the run is done again"),
        (second_line(numbers={"test": None}), f"{RECORDS} line 2", "the run is done again"),
        (second_line(members="ab"), f"{RECORDS} line 2", "the run is done again"),
        (written(GRID, b'[{"a": 1}]'), GRID, "run gemfi bench again"),
        (written(GRID, b"{}"), GRID, "run gemfi bench again"),
        (written(GRID, b"[{"), GRID, "run gemfi bench again"),
        (written(PROTOCOL, b"{}"), PROTOCOL, "run gemfi bench again"),
        (written(PROTOCOL, b"\xff"), PROTOCOL, "run gemfi bench again"),
    ],
)  # fmt: skip
def test_a_report_names_the_file_and_what_to_do(
    folder: Path, capsys: Capture, damage: Damage, file: str, remedy: str
) -> None:
    damage(folder)
    said = error_of(folder, capsys)
    assert f"{folder / file}" in said
    assert remedy in said


@pytest.mark.parametrize("data", [b"[]", b'{"rows": {"softmax": 3}}', b'{"rows": ['])
def test_a_damaged_measurement_of_costs_is_named(folder: Path, data: bytes) -> None:
    (folder / OVERHEAD).write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{OVERHEAD}.*; delete it and run gemfi bench"):
        _ = Results(folder).overhead


def test_arrays_of_any_damage_are_named(tmp_path: Path) -> None:
    path = tmp_path / "key.npz"
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [whole[:cut] for cut in range(0, len(whole), 7)]
    for _ in range(200):
        at = int(rng.integers(len(whole)))
        damaged.append(whole[:at] + bytes([int(rng.integers(256))]) + whole[at + 1 :])
    said = []
    for data in damaged:
        path.write_bytes(data)
        try:
            read_arrays(path)
        except CheckpointError as error:
            said.append(str(error))
    assert len(said) > len(damaged) / 2
    assert all(str(path) in each for each in said)
    assert all("delete it, and gemfi bench --arrays makes it again" in each for each in said)


def test_an_array_that_is_of_no_set_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "key.npz", x=np.zeros(3))
    with pytest.raises(CheckpointError, match="gemfi bench --arrays makes it again"):
        read_arrays(tmp_path / "key.npz")
    np.save(tmp_path / "other.npy", np.zeros(3))
    shutil.copy(tmp_path / "other.npy", tmp_path / "key.npz")
    with pytest.raises(CheckpointError, match="gemfi bench --arrays makes it again"):
        read_arrays(tmp_path / "key.npz")


def test_a_protocol_that_is_no_text_is_named(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "mine.toml").write_bytes(b'name = "\xff"')
    assert main(["bench", str(tmp_path / "mine.toml"), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "mine.toml is no TOML" in said
    assert "save it as UTF-8" in said


def test_a_record_without_its_data_is_of_other_data(folder: Path) -> None:
    protocol = Protocol("chosen", "Chosen", "digits", (Contestant("softmax"),))
    assert RecordFile(folder).read()["0" * 16].data == {}
    with pytest.raises(CheckpointError, match="its set 'train' was not recorded"):
        Bench(protocol, folder).work()
