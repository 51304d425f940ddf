"""Locks between processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from gemfi._files import hold_lock, try_lock
from gemfi.data import two_moons
from gemfi.errors import CheckpointError
from gemfi.model import build_model
from gemfi.training import TrainConfig, fit
from gemfi.training.run_dir import LOCK

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
