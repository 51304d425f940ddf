"""Files: whole or not at all, strict JSON, locks, and where data and runs live."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gemfi import TrainConfig, build_model, fit
from gemfi._files import (
    DEEPEST,
    appending,
    data_root,
    hold_lock,
    named,
    replacing,
    runs_root,
    strict_json,
    try_lock,
    write_atomically,
)
from gemfi.data import two_moons
from gemfi.errors import CheckpointError, InputError, WriteError
from gemfi.scoring import writer
from gemfi.training.features import GrowingFile
from gemfi.training.run_dir import LOCK
from gemfi_bench.record_file import write_arrays
from support.disks import full_disk

# ---------------------------------------------------------------- full disks and strict JSON


LIMIT = 4096
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    write_atomically(path, b"old")
    with full_disk(LIMIT), pytest.raises(WriteError) as error:
        write_atomically(path, b"x" * (LIMIT + 1))
    assert str(error.value) == f"cannot write {path}: File too large; make room there and run again"
    assert error.value.errno == errno.EFBIG
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_space_left_is_told_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(WriteError, match=r"cannot write .*/a: No space left on device; make room"):
        write_atomically(tmp_path / "a", b"x" * 99)
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    def fail(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "a") as temporary:
        fail(temporary)
    assert list(tmp_path.iterdir()) == []


def test_other_errors_keep_their_names(tmp_path: Path) -> None:
    """An error of reading, in the middle of writing, is not taken for one of writing."""
    with pytest.raises(FileNotFoundError, match="absent"), named(tmp_path / "a"):
        (tmp_path / "absent").read_bytes()


def test_what_is_appended_is_named_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with (
        full_disk(LIMIT),
        pytest.raises(WriteError, match=f"cannot write {path}: "),
        appending(path) as file,
    ):
        file.write(b"x" * (LIMIT + 1))


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("rows", [300, 20_000])  # refused when it is closed, and on the way
def test_results_are_whole_or_not_there(tmp_path: Path, ending: str, rows: int) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out{ending}"
    with (
        full_disk(LIMIT),
        pytest.raises(WriteError, match=f"cannot write {path}: "),
        writer(path, [("name", str), ("value", float)]) as write,
    ):
        write([[f"{index} {'x' * 40}", index / 7] for index in range(rows)])
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_a_bench_are_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    noise = torch.rand(5_000).numpy()
    with full_disk(LIMIT), pytest.raises(WriteError, match=f"cannot write {path}: "):
        write_arrays(path, {"test": {"score": noise}})
    assert list(tmp_path.iterdir()) == []


def test_features_that_did_not_fit_go_on_when_there_is_room(tmp_path: Path) -> None:
    rows = torch.arange(40 * 64, dtype=torch.float32).view(40, 64)  # 10 KB
    growing = GrowingFile(tmp_path / "z.safetensors", 40, 64)
    growing.append(rows[:10])
    with full_disk(LIMIT), pytest.raises(WriteError, match=r"cannot write .*/z\.part: "):
        growing.append(rows[10:])
    again = GrowingFile(tmp_path / "z.safetensors", 40, 64)
    assert again.done == 10
    again.append(rows[10:])
    again.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["z.safetensors"]


@given(VALUES)
def test_ordinary_json_is_read(value: Any) -> None:
    assert strict_json(json.dumps(value)) == value
    assert strict_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9223372036854775808", "an integer of 19 digits is beyond 64 bits"),
        ("-9223372036854775809", "beyond 64 bits"),
        ("[1" + "0" * 9000 + "]", "an integer of 9001 digits"),
        ("1e400", "the number 1e400 is too large"),
        ("[NaN]", "NaN is no number of JSON"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ("[" * 34 + "]" * 34, f"nested deeper than {DEEPEST}"),
        ("[" * 99_999 + "]" * 99_999, f"nested deeper than {DEEPEST}"),
        ('{"a":' * 34 + "1" + "}" * 34, f"nested deeper than {DEEPEST}"),
        (r'["\ud800"]', "surrogates not allowed"),
        (r'{"\ud800": 1}', "surrogates not allowed"),
        ("{", "Expecting"),
        (b"\xff\xfe\xfd", "decode"),
    ],
)
def test_what_nobody_can_use_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strict_json(text)


def test_the_deepest_is_read() -> None:
    strict_json("[" * DEEPEST + "]" * DEEPEST)


# ---------------------------------------------------------------- locks


HOLDER = """
import sys
from pathlib import Path
from gemfi._files import hold_lock
with hold_lock(Path(sys.argv[1]), lambda: sys.exit("taken")):
    print("held", flush=True)
    sys.stdin.readline()
"""


def never() -> None:
    pytest.fail("nobody else has the lock")


def test_a_lock_that_is_taken_is_waited_for(tmp_path: Path) -> None:
    path, told, entered = tmp_path / "lock", threading.Event(), threading.Event()

    def second() -> None:
        with hold_lock(path, told.set):
            entered.set()

    with hold_lock(path, never):
        waiting = threading.Thread(target=second)
        waiting.start()
        assert told.wait(20)
        assert not entered.wait(0.25)
    waiting.join(20)
    assert entered.is_set()


def test_it_ends_with_the_block_and_with_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), hold_lock(tmp_path / "lock", never):
            raise ZeroDivisionError
    with try_lock(tmp_path / "lock") as mine:
        assert mine


def test_two_processes_do_not_train_in_one_folder_and_a_killed_one_frees_it(tmp_path: Path) -> None:
    task = two_moons(n=40)
    torch.manual_seed(0)
    model = build_model("softmax", "mlp", 2, in_features=2, width=4, depth=1)
    config = TrainConfig(epochs=1)
    command = [sys.executable, "-c", HOLDER, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(CheckpointError, match="another process is training in"):
            fit(model, task.train, None, config, run_dir=tmp_path, progress=False)
        assert [path.name for path in tmp_path.iterdir()] == [LOCK]
        other.kill()
    result = fit(model, task.train, None, config, run_dir=tmp_path, progress=False)
    assert result.steps == 1


# ---------------------------------------------------------------- where data and runs live


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMFI_DATA", "GEMFI_RUNS", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_where_the_platform_has_them() -> None:
    assert data_root() == platformdirs.user_cache_path("gemfi", False) / "data"
    assert runs_root() == platformdirs.user_data_path("gemfi", False) / "runs"


def test_the_customs_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/fast")
    monkeypatch.setenv("XDG_DATA_HOME", "/large")
    assert data_root() == Path("/fast/gemfi/data")
    assert runs_root() == Path("/large/gemfi/runs")


@pytest.mark.parametrize(("name", "root"), [("GEMFI_DATA", data_root), ("GEMFI_RUNS", runs_root)])
def test_the_variables_go_before_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, root: Callable[[], Path]
) -> None:
    monkeypatch.setenv("HOME", "/people/me")
    for value, expected in (("/mine/here", "/mine/here"), ("~/x", "/people/me/x"), ("rel", "rel")):
        monkeypatch.setenv(name, value)
        assert root() == Path(expected)
    (tmp_path / "file").touch()
    for value, words in (("file", "which is a file"), ("file/below", "is a file; name a folder")):
        monkeypatch.setenv(name, str(tmp_path / value))
        with pytest.raises(InputError, match=words):
            root()
