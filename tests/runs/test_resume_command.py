"""`gemfi train` that is stopped, damaged or short of room, and what reads its folder then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from gemfi.cli import main
from gemfi.errors import CheckpointError
from gemfi.methods.gem import GEM
from gemfi.runs import Run, train_run, work
from gemfi.runs.folder import METRICS, MODEL, is_finished
from gemfi.training.checkpoint import Checkpoint
from gemfi.training.run_dir import CHECKPOINT
from support.checkpoints import rewrite
from support.commands import Capture, printed, quiet, refused
from support.disks import full_disk

from .conftest import assert_same_checkpoint, contents, toy_spec

QUICK = ["--epochs", "1", "--backbone-options", "width=16", "depth=1"]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs go below the test's own folder."""
    monkeypatch.setenv("GEMFI_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


# -- damage ----------------------------------------------------------------------------------------


def flip(path: Path, from_the_end: int = 400) -> None:
    """One bit of the tensors."""
    data = bytearray(path.read_bytes())
    data[-from_the_end] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("name", [CHECKPOINT, MODEL])
def test_no_command_takes_a_damaged_file(
    name: str, copy: Path, tmp_path: Path, capsys: Capture
) -> None:
    flip(copy / name)
    before, rows = contents(copy), tmp_path / "rows.csv"
    rows.write_text("a,b\n0,1\n")
    out = tmp_path / "model.safetensors"
    for command in (
        ["bundle", str(copy), str(out)],
        ["show", str(copy)],
        ["evaluate", str(copy)],
        ["predict", str(copy), str(rows), "--out", str(tmp_path / "out.csv")],
    ):
        said = refused(command, capsys)
        assert f"{copy / name} is damaged: its bytes do not have the checksum" in said
    assert not out.exists()
    assert contents(copy) == before
    if name == MODEL:
        return  # training has its model in memory
    with pytest.raises(CheckpointError, match="is damaged"):
        train_run(toy_spec(), copy, progress=False)
    with pytest.raises(CheckpointError, match="is damaged"):
        is_finished(copy)


@pytest.mark.parametrize(
    ("name", "value"), [("step", 10**9), ("finished", "yes"), ("seconds", -1.0), ("notes", None)]
)
def test_counters_that_cannot_be_are_refused(copy: Path, name: str, value: Any) -> None:
    rewrite(copy / CHECKPOINT, lambda header: header["counters"].update({name: value}))
    with pytest.raises(CheckpointError, match=f"{CHECKPOINT} is damaged: counters"):
        Run.open(copy)


def test_counters_without_an_end_are_refused(copy: Path) -> None:
    rewrite(copy / CHECKPOINT, lambda header: header["counters"].pop("finished"))
    for read in (Run.open, is_finished):
        with pytest.raises(CheckpointError, match=r"counters\.finished is missing; delete it"):
            read(copy)


# -- how often it is saved -------------------------------------------------------------------------


def test_checkpoint_steps_save_in_the_middle_of_an_epoch(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective, seen = GEM.objective, []

    def watching(self: GEM, batch: Any, at: Any) -> Any:
        (path,) = runs.rglob(CHECKPOINT)
        seen.append((at.step, Checkpoint.load_state(path).step))
        return objective(self, batch, at)

    runs = Path(os.environ["GEMFI_RUNS"])
    monkeypatch.setattr(GEM, "objective", watching)
    often = quiet(["two-moons", *QUICK, "--checkpoint-steps", "5"], capsys)
    assert seen == [(step, step // 5 * 5) for step in range(32)]
    assert Run.open(often).spec.train.checkpoint_steps == 5


def test_a_run_goes_on_with_another_number_of_checkpoint_steps(capsys: Capture) -> None:
    folder = quiet(["two-moons", *QUICK], capsys)
    text = printed(["train", "two-moons", *QUICK, "--checkpoint-steps", "5"], capsys)
    assert f"Run: {folder}" in text
    assert "This run had finished" in text
    assert "checkpoint_steps must be an integer of at least 1, got 0" in refused(
        ["train", "two-moons", "--checkpoint-steps", "0"], capsys
    )


# -- signals, threads, room ------------------------------------------------------------------------


def test_sigterm_while_a_run_is_judged_is_like_ctrl_c(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("it went on")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(work, "evaluate", terminated)
    assert main(["train", "two-moons", *QUICK]) == 143
    assert "the same command resumes\ngemfi: stopped\n" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_full_disk_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "run"
    with full_disk(5_000):
        assert main(["train", "two-moons", *QUICK, "--out", str(out), "--quiet"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"gemfi: error: cannot write {out / CHECKPOINT}: File too large; make room there and run "
        "again"
    )
    assert not list(out.glob("*.tmp"))
    assert main(["train", "two-moons", *QUICK, "--out", str(out), "--quiet"]) == 0


@pytest.mark.filterwarnings("default:.*saved by a run with")
def test_other_threads_are_a_warning_and_a_note_of_the_run(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective, command = GEM.objective, ["train", "two-moons", *QUICK, "--out", str(tmp_path / "a")]

    def interrupting(self: GEM, batch: Any, at: Any) -> Any:
        if at.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return objective(self, batch, at)

    with monkeypatch.context() as patch:
        patch.setattr(GEM, "objective", interrupting)
        assert main(command) == 143
    capsys.readouterr()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert main(command) == 0
    finally:
        torch.set_num_threads(threads)
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert said.startswith("gemfi: warning: ")
    assert "saved by a run with" in said
    (note,) = [each for each in Run.open(tmp_path / "a").training["notes"] if "thread" in each]
    assert f"up to step 4 and {threads + 1} threads from there" in note
    assert note in (tmp_path / "a" / "summary.md").read_text()


DIGITS = ["digits", "--epochs", "8", "--backbone-options", "channels=8", "--batch-size", "64"]


@pytest.mark.slow
def test_sigterm_to_a_process_saves_the_step_and_changes_no_bit(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def launched(out: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gemfi", "train", *DIGITS, "--out", str(out)]
        return subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment)

    with launched(whole) as process:
        assert process.wait() == 0
    with launched(stopped) as process:
        log = stopped / "log.jsonl"
        while not (log.exists() and len(log.read_text().splitlines()) >= 3):
            assert process.poll() is None, "the run ended before the signal"
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
    assert process.returncode == 143
    assert said.splitlines()[-2:] == [
        f"gemfi: what was done is in {stopped}; the same command resumes",
        "gemfi: stopped",
    ]
    assert not (stopped / METRICS).exists()
    assert not list(stopped.glob("*.tmp"))
    with launched(stopped) as process:
        assert process.wait() == 0
    assert_same_checkpoint(whole, stopped)
