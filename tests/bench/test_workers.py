"""`gemfi bench --ray`: the records of a cluster are those of one process, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gemfi_bench.protocol import find_protocol
from gemfi_bench.record_file import RECORDS
from gemfi_bench.runner import RUNS, Bench
from support.ray_cluster import ray_cluster

# Rates that are chosen, rows that wait for them, and an ensemble that waits for two of these.
PROTOCOL = """
name = "tiny"
title = "digits, very short"
task = "digits"
seeds = [0, 1]

[network]
backbone = "convnet"
options = ["channels=2"]

[train]
epochs = 3
batch_size = 64

[rates]
values = [0.01, 0.02]

[[contestants]]
method = "softmax"

[[contestants]]
method = "gem-fi"

[[contestants]]
method = "ensemble"
assembled = "softmax"
"""
RUNS_OF_IT = 4 + 4 + 1
DEADLINE = 500.0  # seconds after which a test that waits has failed


def start(folder: Path, environment: dict[str, str], *options: str) -> subprocess.Popen[str]:
    command = ["bench", str(folder.with_name("tiny.toml")), "--out", str(folder), "--no-render"]
    limits = ["--only", "methods", "--threads", "1", "--device", "cpu", "--quiet"]
    return subprocess.Popen(
        [sys.executable, "-m", "gemfi", *command, *limits, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def records(folder: Path) -> dict[str, Any]:
    """Key -> record without its times; each run once."""
    found = [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]
    for record in found:
        del record["seconds"], record["training"]["seconds"]
        for session in record["sessions"]:
            del session["date"]
    assert len({record["key"] for record in found}) == len(found)
    return {record["key"]: record for record in found}


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """SIGKILL in the middle of a training, after its first epoch."""
    (tmp_path / "tiny.toml").write_text(PROTOCOL)
    with ray_cluster() as (address, environment):
        workers = Path(environment["TMPDIR"])
        with start(tmp_path / "plain", environment) as process:
            assert process.wait(DEADLINE) == 0, process.communicate()[1]
        with start(tmp_path / "rays", environment, "--ray", address) as process:
            end, killed = time.monotonic() + DEADLINE, ""
            while not killed:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < end, "no worker has trained"
                for log in workers.glob(f"gemfi-*/{RUNS}/gem-fi-*/log.jsonl"):
                    killed = log.parents[2].name
                time.sleep(0.01)
            os.kill(int(killed.split("-")[1]), signal.SIGKILL)
            assert process.wait(DEADLINE) == 0, process.communicate()[1]
        assert (workers / killed).exists()  # nobody was left to tidy it up
    expected = records(tmp_path / "plain")
    assert len(expected) == RUNS_OF_IT
    assert records(tmp_path / "rays") == expected
    for key in expected:
        arrays = [tmp_path / name / "arrays" / f"{key}.npz" for name in ("plain", "rays")]
        assert arrays[0].read_bytes() == arrays[1].read_bytes()
    bench = Bench(find_protocol(str(tmp_path / "tiny.toml")), tmp_path / "rays")
    assert bench.missing() == []
    assert [bench.untrained(cell) for cell in bench.plan() if cell.members] == [{}]
