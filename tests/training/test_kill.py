"""Real kills: a training process is sent SIGKILL at random moments until it gets through."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gemfi.training.run_dir import CHECKPOINT, LOCK, LOG

SCRIPT = """
import sys, torch
from gemfi import OutlierConfig, TrainConfig, build_model, fit
from gemfi.data import digits
torch.set_num_threads(1)
task = digits()
torch.manual_seed(0)
model = build_model("gem-fi", "convnet", 7, size=8, channels=8, dropout=0.1)
config = TrainConfig(epochs=6, batch_size=64, learning_rate=3e-3, select="best",
                     checkpoint_steps={every})
print("ready", flush=True)
fit(model, task.train, task.validation, config, run_dir=sys.argv[1], progress=False,
    outliers=OutlierConfig(start=0.1, ramp=0.2))
print("done", flush=True)
"""


@contextmanager
def launched(folder: Path, every: int | None) -> Iterator[subprocess.Popen[str]]:
    """A training process that has begun to train."""
    script = SCRIPT.replace("{every}", str(every))
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def run_whole(folder: Path, every: int | None) -> float:
    with launched(folder, every) as process:
        begin = time.monotonic()
        assert process.wait() == 0
        return time.monotonic() - begin


def run_with_kills(folder: Path, every: int | None, typical: float, chance: random.Random) -> int:
    """Kill the run at random moments, at most six times, then let it end; returns the kills."""
    for kills in range(6):
        with launched(folder, every) as process:
            try:
                process.wait(timeout=chance.uniform(0.05, 0.5) * typical)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                continue
        assert process.returncode == 0
        return kills
    run_whole(folder, every)
    return 6


@pytest.mark.slow
@pytest.mark.parametrize("every", [None, 1, 7])
def test_sigkill_at_random_moments_changes_no_bit(tmp_path: Path, every: int | None) -> None:
    typical = run_whole(tmp_path / "whole", every)
    expected = load_file(tmp_path / "whole" / CHECKPOINT)
    chance = random.Random(every or 0)  # noqa: S311 - no secret
    folder = tmp_path / "killed"
    kills = run_with_kills(folder, every, typical, chance)
    assert kills >= 1, "no kill hit the run: the test shows nothing"
    found = load_file(folder / CHECKPOINT)
    assert found.keys() == expected.keys()
    different = [name for name in found if not torch.equal(found[name], expected[name])]
    assert not different
    assert len((folder / LOG).read_text().splitlines()) == 6 + 1
    left = {path.name for path in folder.iterdir() if not path.name.endswith(".tmp")}
    assert left == {CHECKPOINT, LOCK, LOG}
