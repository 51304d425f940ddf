"""A bench that is stopped, killed, shared or changed: no run is lost, and none is done twice."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch

from gemfi.data import TASKS, Split, Task
from gemfi.errors import CheckpointError
from gemfi.training.run_dir import CHECKPOINT
from gemfi_bench.protocol import Contestant, Protocol, find_protocol
from gemfi_bench.record_file import PACKED, RECORDS, read_arrays
from gemfi_bench.runner import Bench, Event

PROTOCOL = """
name = "tiny"
title = "digits, very short"
task = "digits"
seeds = [0]

[network]
backbone = "convnet"
options = ["channels=2"]

[train]
epochs = 2
batch_size = 128
learning_rate = 0.01

[[contestants]]
method = "softmax"

[[contestants]]
method = "gem-fi"
"""
SHARED = PROTOCOL.replace("seeds = [0]", "seeds = [0, 1, 2]").replace(
    "learning_rate = 0.01", "[rates]\nvalues = [0.01, 0.02]"
)
RATES, MAIN = 4, 6
WORKER = """
import sys, torch
from gemfi_bench.runner import Bench
from gemfi_bench.protocol import find_protocol
torch.set_num_threads(1)
tell = lambda event: print(event.kind, event.cell.key, flush=True)
bench = Bench(find_protocol(sys.argv[1]), sys.argv[2])
for _ in range(int(sys.argv[3])):
    bench.work(tell=tell)
"""
DEADLINE = 300.0  # seconds after which a test that waits has failed


@pytest.fixture(scope="module")
def task() -> Task:
    return TASKS["digits"]()


@pytest.fixture(scope="module")
def protocol(tmp_path_factory: pytest.TempPathFactory) -> Protocol:
    file = tmp_path_factory.mktemp("protocol") / "tiny.toml"
    file.write_text(PROTOCOL)
    return find_protocol(str(file))


@pytest.fixture(scope="module")
def finished(protocol: Protocol, task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bench that nobody disturbed; tests work on copies."""
    folder = tmp_path_factory.mktemp("bench") / "finished"
    begun = work(Bench(protocol, folder, task))
    assert begun == ["methods/softmax seed 0", "methods/gem-fi seed 0"]
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "bench"))


def work(bench: Bench) -> list[str]:
    """What was begun."""
    told: list[Event] = []

    def tell(event: Event) -> None:
        assert event.kind != "wait", f"alone, and it waits for {event.cell.title}"
        told.append(event)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the other processes: sums depend on it
    try:
        bench.work(tell=tell)
    finally:
        torch.set_num_threads(threads)
    begun = [event.cell.title for event in told if event.kind == "begin"]
    assert [event.cell.title for event in told if event.kind == "end"] == begun
    return begun


def numbers(bench: Bench) -> dict[str, tuple[Any, ...]]:
    """Everything of the records that another run of the same must reproduce."""
    return {
        key: (run.title, run.spec, run.data, run.numbers, run.training["steps"])
        for key, run in bench.file.read().items()
    }


# -- one process ----------------------------------------------------------------------------------


def test_what_is_there_is_not_run_again(folder: Path, protocol: Protocol, task: Task) -> None:
    text = (folder / RECORDS).read_bytes()
    times = {path: path.stat().st_mtime_ns for path in (folder / "arrays").iterdir()}
    assert len(times) == 2
    bench = Bench(protocol, folder, task)
    assert bench.missing() == []
    assert work(bench) == []
    assert (folder / RECORDS).read_bytes() == text
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_arrays_that_are_gone_are_made_again_where_they_are_asked_for(
    folder: Path, protocol: Protocol, task: Task
) -> None:
    bench = Bench(protocol, folder, task)
    before, text = numbers(bench), (folder / RECORDS).read_bytes()
    (gone, *_) = (cell for cell in bench.plan() if cell.spec.method == "gem-fi")
    path = bench.file.arrays(gone.key)
    arrays = read_arrays(path)
    path.unlink()
    assert bench.missing() == []
    again = Bench(protocol, folder, task, arrays=True)
    assert [cell.key for cell in again.missing()] == [gone.key]
    assert work(again) == [gone.title]
    assert again.missing() == []
    assert numbers(bench) == before
    assert (folder / RECORDS).read_bytes() == text  # the same numbers: the record that was there
    for name, each in read_arrays(path).items():
        for key, values in each.items():
            np.testing.assert_array_equal(values, arrays[name][key])


def test_arrays_of_runs_that_chose_a_learning_rate_are_not_made_again(
    folder: Path, protocol: Protocol, task: Task, tmp_path: Path
) -> None:
    """Their records say that they were evaluated on validation data alone."""
    lines = (folder / RECORDS).read_text().splitlines()
    records = [json.loads(line) for line in lines]
    del records[0]["numbers"]["test"]
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / RECORDS).write_text("".join(json.dumps(each) + "\n" for each in records))
    again = Bench(protocol, alone, task, arrays=True)
    assert [cell.key for cell in again.missing()] == [each["key"] for each in records[1:]]


def test_a_set_that_came_later_is_evaluated_where_it_is_asked_for(
    folder: Path, protocol: Protocol, task: Task
) -> None:
    """The records of a folder in which the noise was absent."""
    lines = (folder / RECORDS).read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for each in records:
        each["absent"] = {"noise": "data absent"}
        del each["numbers"]["ood"]["noise"], each["data"]["noise"]
    (folder / RECORDS).write_text("".join(json.dumps(each) + "\n" for each in records))
    assert Bench(protocol, folder, task).missing() == []
    again = Bench(protocol, folder, task, arrays=True)
    checkpoints = list((folder / "runs").glob(f"*/{CHECKPOINT}"))
    before = [path.stat().st_mtime_ns for path in checkpoints]
    assert len(work(again)) == 2
    assert [path.stat().st_mtime_ns for path in checkpoints] == before  # evaluated, not trained
    assert all("noise" in each.numbers["ood"] for each in again.file.read().values())
    assert again.missing() == []


def test_an_ensemble_trains_members_again_whose_records_came_alone(
    protocol: Protocol, task: Task, tmp_path: Path
) -> None:
    """Packed records in an empty folder hold no models, and their runs are not done again."""
    rows = (Contestant("softmax"), Contestant("ensemble", assembled="softmax"))
    both = replace(protocol, contestants=rows, seeds=(0, 1))
    softmax = ["methods/softmax seed 0", "methods/softmax seed 1"]
    whole, alone = (Bench(both, tmp_path / name, task) for name in ("whole", "alone"))
    assert work(whole) == [*softmax, "methods/ensemble seed 0"]
    (ensemble,) = (run for run in whole.file.read().values() if run.members)
    assert ensemble.training["notes"] == ["assembled from 2 runs of softmax"]
    alone.folder.mkdir()
    whole.file.pack(alone.folder)
    text = gzip.decompress((alone.folder / PACKED).read_bytes()).decode()
    kept = [line for line in text.splitlines(keepends=True) if ensemble.key not in line]
    assert len(kept) == 2
    (alone.folder / PACKED).write_bytes(gzip.compress("".join(kept).encode()))
    assert work(alone) == ["methods/ensemble seed 0"]
    assert numbers(alone) == numbers(whole)
    assert [path.stem for path in (alone.folder / "arrays").iterdir()] == [ensemble.key]
    assert alone.file.read()[ensemble.key].training["notes"] == [
        "assembled from 2 runs of softmax",
        "2 of them trained again: their records came without models",
    ]


@pytest.mark.parametrize("kept", [1, 1000])
def test_a_torn_line_is_not_read_and_is_cut_off(
    kept: int, folder: Path, protocol: Protocol, task: Task
) -> None:
    """A process was killed as it wrote the record of gem-fi: its training is there."""
    bench = Bench(protocol, folder, task)
    whole = numbers(bench)
    first, second = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    (folder / RECORDS).write_bytes(first + second[:kept])
    assert [cell.title for cell in bench.missing()] == ["methods/gem-fi seed 0"]
    checkpoint = next((folder / "runs").glob("gem-fi-*")) / CHECKPOINT
    before = checkpoint.stat().st_mtime_ns
    assert work(bench) == ["methods/gem-fi seed 0"]
    assert checkpoint.stat().st_mtime_ns == before  # it was only evaluated again
    lines = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    assert lines[0] == first
    assert [json.loads(line)["title"] for line in lines] == [each[0] for each in whole.values()]
    assert numbers(bench) == whole


def test_a_torn_line_alone_is_cut_off(folder: Path, protocol: Protocol, task: Task) -> None:
    bench = Bench(protocol, folder, task)
    whole = numbers(bench)
    (folder / RECORDS).write_bytes((folder / RECORDS).read_bytes()[:1000])
    assert bench.file.read() == {}
    assert len(work(bench)) == 2
    assert numbers(bench) == whole


def test_a_whole_line_that_is_no_record_is_named(
    folder: Path, protocol: Protocol, task: Task
) -> None:
    with (folder / RECORDS).open("ab") as file:
        file.write(b'{"key": "torn"\n')
    with pytest.raises(CheckpointError, match=r"records\.jsonl line 3 is no record .* delete that"):
        Bench(protocol, folder, task).work()


def changed(task: Task, **splits: Any) -> Task:
    """A task with other splits."""
    kept = {
        "train": task.train,
        "validation": task.validation,
        "calibration": task.calibration,
        "test": task.test,
        "ood_validation": dict(task.ood_validation),
        "ood_test": dict(task.ood_test),
    }
    return Task(task.name, task.class_names, **kept | splits, normalisation=task.normalisation)


def test_other_data_are_refused(folder: Path, protocol: Protocol, task: Task) -> None:
    fewer = task.train.subset(range(len(task.train) - 1))
    train = Split(fewer.x, fewer.y, fewer.role, fewer.name, task.num_classes)
    other = changed(task, train=train)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(
        CheckpointError, match=r"other data: .*\(759 samples.* now digits \(758 samples"
    ):
        Bench(replace(protocol, seeds=(0, 1)), folder, other).work()
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_another_test_set_is_refused_too(folder: Path, protocol: Protocol, task: Task) -> None:
    fewer = task.ood_test["noise"].subset(range(9))
    ood_test = dict(task.ood_test) | {"noise": Split(fewer.x, None, fewer.role, fewer.name)}
    with pytest.raises(CheckpointError, match=r"its set 'noise' was .*, now .* \(9 samples"):
        Bench(replace(protocol, seeds=(0, 1)), folder, changed(task, ood_test=ood_test)).work()


def test_a_changed_protocol_runs_what_is_new(folder: Path, protocol: Protocol, task: Task) -> None:
    before = numbers(Bench(protocol, folder, task))
    wider = Bench(replace(protocol, seeds=(0, 1)), folder, task)
    assert work(wider) == ["methods/softmax seed 1", "methods/gem-fi seed 1"]
    assert {key: numbers(wider)[key] for key in before} == before
    assert len(numbers(wider)) == 4
    narrower = Bench(replace(protocol, contestants=protocol.contestants[:1]), folder, task)
    assert work(narrower) == []
    assert len(numbers(narrower)) == 4  # what is not asked for now is kept
    assert [each["row"] for each in json.loads((folder / "grid.json").read_text())] == ["softmax"]


# -- several processes ----------------------------------------------------------------------------


def start(file: Path, folder: Path, times: int = 1) -> subprocess.Popen[str]:
    """Another process that works on a bench, so many times."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(file), str(folder), str(times)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def stream(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@pytest.mark.slow
def test_two_processes_share_a_grid(tmp_path: Path, task: Task) -> None:
    file, folder = tmp_path / "tiny.toml", tmp_path / "bench"
    file.write_text(SHARED)
    processes = [start(file, folder) for _ in range(2)]
    told = [process.communicate(timeout=DEADLINE) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    lines = [line.split() for out, _ in told for line in out.splitlines()]
    bench = Bench(find_protocol(str(file)), folder, task)
    keys = Counter(cell.key for cell in bench.plan())
    assert len(keys) == RATES + MAIN
    assert Counter(key for kind, key in lines if kind == "begin") == keys
    assert Counter(key for kind, key in lines if kind == "end") == keys
    assert all("begin" in out for out, _ in told), "one process did everything"
    assert len((folder / RECORDS).read_bytes().splitlines()) == len(keys)
    assert bench.missing() == []
    alone = Bench(find_protocol(str(file)), tmp_path / "alone", task)
    work(alone)
    assert numbers(alone) == numbers(bench)


@pytest.mark.slow
def test_processes_that_have_nothing_to_do_leave_each_other_alone(
    tmp_path: Path, folder: Path, protocol: Protocol, task: Task
) -> None:
    """Each writes the grid as it begins, and again as it waits: often at the same time."""
    (tmp_path / "tiny.toml").write_text(PROTOCOL)
    before = numbers(Bench(protocol, folder, task))
    processes = [start(tmp_path / "tiny.toml", folder, times=200) for _ in range(2)]
    told = [process.communicate(timeout=DEADLINE) for process in processes]
    assert told == [("", "")] * 2
    assert [process.returncode for process in processes] == [0, 0]
    assert numbers(Bench(protocol, folder, task)) == before


@pytest.mark.slow
def test_a_killed_bench_goes_on_where_it_was(
    tmp_path: Path, finished: Path, protocol: Protocol, task: Task
) -> None:
    """SIGKILL in the middle of the training of gem-fi, after its first epoch."""
    file, folder = tmp_path / "tiny.toml", tmp_path / "bench"
    file.write_text(PROTOCOL)
    bench = Bench(protocol, folder, task)
    softmax, gem = bench.plan()
    with start(file, folder) as process:
        log = bench.run_folder(gem.spec) / "log.jsonl"
        try:
            wait_until(lambda: log.exists() and b"\n" in log.read_bytes())
        finally:
            process.send_signal(signal.SIGKILL)
        out = stream(process.stdout).read().splitlines()
    assert process.returncode == -signal.SIGKILL
    assert out == [f"begin {softmax.key}", f"end {softmax.key}", f"begin {gem.key}"]
    assert list(bench.file.read()) == [softmax.key]
    line = (folder / RECORDS).read_bytes()
    assert work(bench) == ["methods/gem-fi seed 0"]
    assert (folder / RECORDS).read_bytes().startswith(line)
    assert numbers(bench) == numbers(Bench(protocol, finished, task))
