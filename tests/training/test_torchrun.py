"""`torchrun -m gemfi train`: killed ranks, restarts, and another number of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gemfi.training.run_dir import CHECKPOINT, LOG

pytestmark = pytest.mark.slow
TRAIN = ["-m", "gemfi", "train", "digits", "--epochs", "6", "--checkpoint-steps", "5"]


def torchrun(folder: Path, processes: int = 2) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    many = ["--nproc-per-node", str(processes), "--max-restarts", "3", "--monitor-interval", "0.2"]
    return [*launcher, *many, *TRAIN, "--out", str(folder)]


def start(command: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def ranks_of(launcher: int) -> list[int]:
    command = ["pgrep", "-P", str(launcher)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(line) for line in listed.stdout.split()]


def test_a_killed_rank_is_restarted_and_the_run_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = start(torchrun(whole))
    said, _ = undisturbed.communicate(timeout=300)
    assert undisturbed.returncode == 0, said
    run = start(torchrun(killed))
    deadline = time.monotonic() + 200
    while not (killed / LOG).exists() or not (killed / LOG).read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(ranks_of(run.pid)[-1], signal.SIGKILL)
    said, _ = run.communicate(timeout=300)
    assert run.returncode == 0, said
    one, other = load_file(whole / CHECKPOINT), load_file(killed / CHECKPOINT)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    first = start(torchrun(tmp_path))
    said, _ = first.communicate(timeout=300)
    assert first.returncode == 0, said
    assert said.count("Trained ") == 1  # the first process speaks for all
    (tmp_path / "model.safetensors").unlink()
    alone = start([sys.executable, *TRAIN, "--out", str(tmp_path)])
    said, _ = alone.communicate(timeout=100)
    assert alone.returncode == 2
    assert "belongs to another run (processes: 2 there" in said
