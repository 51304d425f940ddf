"""Records: whole lines, arrays that come back, and what a kill leaves behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemfi.errors import CheckpointError
from gemfi_bench.record_file import RecordFile, RunRecord, Sets, read_arrays, write_arrays


def record(key: str, **changes: object) -> RunRecord:
    fields: dict[str, object] = {
        "key": key, "title": f"methods/{key} seed 0", "spec": {"method": "softmax"}, "members": (),
        "data": {}, "sessions": ({"commit": None},), "training": {"seconds": 1.5},
        "seconds": {"train": 1.5}, "scores": {"epistemic": "entropy"},
        "numbers": {"test": {"id": {"accuracy": 97.0}}}, "absent": {}, "detectors": {},
    }  # fmt: skip
    return RunRecord(**(fields | changes))  # type: ignore[arg-type]


SETS: Sets = {
    "test": {"score/entropy": np.float32([0.25, 1e-30]), "label": np.int16([3, 1])},
    "shift/fog-1": {"score/entropy": np.float32([2.0])},
}


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    file.append(record("a"), SETS)
    file.append(record("b"), SETS)
    assert file.read() == {"a": record("a"), "b": record("b")}


def test_arrays_come_back_with_their_types(tmp_path: Path) -> None:
    path = tmp_path / "arrays" / "a.npz"
    write_arrays(path, SETS)
    found = read_arrays(path)
    assert {name: set(each) for name, each in found.items()} == {
        name: set(each) for name, each in SETS.items()
    }
    for name, arrays in SETS.items():
        for key, values in arrays.items():
            assert found[name][key].dtype == values.dtype
            np.testing.assert_array_equal(found[name][key], values)


def test_a_run_is_recorded_once(tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    file.append(record("a"), SETS)
    file.append(record("a", title="again"), SETS)
    assert (tmp_path / "records.jsonl").read_text().count("\n") == 1
    assert file.read()["a"].title == "methods/a seed 0"


def test_of_a_run_with_other_numbers_the_last_counts(tmp_path: Path) -> None:
    """Its arrays are those that are here."""
    file = RecordFile(tmp_path)
    numbers = {"test": {"nll": float("nan"), "ece": 1.0}}
    file.append(record("a", numbers=numbers), SETS)
    turned = {"test": dict(reversed(numbers["test"].items()))}
    file.append(record("a", numbers=turned, title="the same"), SETS)
    assert file.read()["a"].title == "methods/a seed 0"
    other = record("a", numbers={"test": {"nll": 0.5}})
    file.append(other, {"test": {"label": np.int16([7])}})
    assert file.read() == {"a": other}
    assert read_arrays(file.arrays("a"))["test"]["label"].tolist() == [7]


def test_what_is_left_of_a_line_is_not_read_and_is_cut_off(tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    file.append(record("a"), SETS)
    with (tmp_path / "records.jsonl").open("a") as torn:
        torn.write(record("b").line()[:40])
    assert list(file.read()) == ["a"]
    file.append(record("c"), SETS)
    assert list(file.read()) == ["a", "c"]


def test_a_spoilt_line_is_refused_by_its_number(tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    file.append(record("a"), SETS)
    with (tmp_path / "records.jsonl").open("a") as spoilt:
        spoilt.write('{"key": 1}\n')
    with pytest.raises(CheckpointError, match="line 2 is no record of a run"):
        file.read()


def test_a_spoilt_file_of_arrays_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"no zip")
    with pytest.raises(CheckpointError, match="gemfi bench --arrays makes it again"):
        read_arrays(path)


def test_a_claim_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    with file.claim("a") as mine, file.claim("a") as other, file.claim("b") as another:
        assert (mine, other, another) == (True, False, True)
    with file.claim("a") as again:
        assert again


def test_a_number_that_is_not_defined_is_null(tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    file.append(record("a", numbers={"test": {"nll": float("nan")}}), SETS)
    assert file.read()["a"].numbers == {"test": {"nll": None}}


def test_packed_records_are_read_like_the_others(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "bench")
    file.append(record("b"), SETS)
    file.append(record("a"), SETS)
    first = file.pack(tmp_path / "kept").read_bytes()
    kept = RecordFile(tmp_path / "kept")
    assert kept.read() == file.read()
    assert file.pack(tmp_path / "again").read_bytes() == first
    kept.append(record("c"), SETS)
    assert set(kept.read()) == {"a", "b", "c"}
    kept.pack(tmp_path / "some", {"a", "c", "d"})
    assert set(RecordFile(tmp_path / "some").read()) == {"a", "c"}
