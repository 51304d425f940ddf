"""The runs of a grid on a Ray cluster: workers train and measure, this process keeps the records.

A worker needs neither the folder of the benchmark nor the data: both come with its task, and the
folder of its run goes back with the record. So the machines need not share a disk.
"""

from __future__ import annotations

import copy
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from gemfi._files import require_module, write_atomically
from gemfi.cluster import connected, failures, share_of
from gemfi.runs.folder import RECORD
from gemfi.training.run_dir import LOCK
from gemfi_bench.grid import Cell
from gemfi_bench.record_file import RunRecord, Sets
from gemfi_bench.runner import Bench, Event

_POLL: Final = 1.0  # seconds between two looks at what other processes have done

Files = dict[str, bytes]
"""Path in a folder -> content."""


class _Going(NamedTuple):
    cell: Cell
    claim: ExitStack
    begin: float


class Workers:
    """The runs that a cluster is doing; `turn` does what `Bench.work` asks for.

    Args:
        ray: the module, connected.
        bench: whose runs.
    """

    def __init__(self, ray: Any, bench: Bench) -> None:
        self.ray, self.bench = ray, bench
        self.threads = torch.get_num_threads()  # sums depend on it
        share, self.room = share_of(ray, bench.device or "cpu", self.threads)
        self.job = ray.put(copy.copy(bench))
        self.run = ray.remote(max_retries=-1, **share)(run_cell)
        self.going: dict[Any, _Going] = {}

    def turn(self, todo: Sequence[Cell], total: int, tell: Callable[[Event], None]) -> bool:
        """Hand out what can be done, and keep what was; whether there is anything of ours."""
        done = total - len(todo)
        self._hand_out(todo, lambda cell: tell(Event("begin", cell, done, total)))
        if not self.going:
            return False
        ready, _ = self.ray.wait(list(self.going), timeout=_POLL)
        for reference in ready:
            cell, claim, begin = self.going.pop(reference)
            with claim, failures(self.ray):
                record, sets, folders = self.ray.get(reference)
                _write(self.bench, folders)
                self.bench.file.append(record, sets)
            done += 1
            tell(Event("end", cell, done, total, time.perf_counter() - begin))
        return True

    def _hand_out(self, todo: Sequence[Cell], begins: Callable[[Cell], None]) -> None:
        bench = self.bench
        pending = {cell.key for cell in todo}
        for cell in todo:
            if len(self.going) >= self.room:
                return
            names = {going.cell.spec.name for going in self.going.values()}
            if cell.spec.name in names or not bench.can_begin(cell, pending):
                continue
            claim = ExitStack()
            if not claim.enter_context(bench.file.claim(cell.key)) or cell.key in bench.done():
                claim.close()
                continue
            begins(cell)
            reference = self.run.remote([self.job], cell, _read(bench, cell), self.threads)
            self.going[reference] = _Going(cell, claim, time.perf_counter())

    def stop(self) -> None:
        """Give up what is going on."""
        for reference, going in self.going.items():
            self.ray.cancel(reference, force=True)
            going.claim.close()


@contextmanager
def workers(address: str, bench: Bench) -> Iterator[Workers]:
    """The workers of the cluster at an address, as `gemfi.cluster.connected` takes it."""
    with connected(address) as ray:
        team = Workers(ray, bench)
        try:
            yield team
        finally:
            team.stop()


def run_cell(
    job: list[Any], cell: Cell, folders: Mapping[str, Files], threads: int
) -> tuple[RunRecord, Sets, dict[str, Files]]:
    """Do a run on a worker: its record, its arrays, and the folders of runs that have changed."""
    torch.set_num_threads(threads)
    bench = _bench(job[0])
    with tempfile.TemporaryDirectory(prefix=f"gemfi-{os.getpid()}-") as folder:
        bench.folder = Path(folder)
        _write(bench, folders)
        record, sets = bench.measure(cell, progress=False)
        after = _read(bench, cell)
    return (
        record,
        sets,
        {name: files for name, files in after.items() if files != folders.get(name)},
    )


@lru_cache(maxsize=1)
def _bench(reference: Any) -> Bench:
    """A worker's copy, which keeps the corrupted data from run to run."""
    bench: Bench = require_module("ray", "--ray").get(reference)
    return bench


def _read(bench: Bench, cell: Cell) -> dict[str, Files]:
    """The folders of the runs of a cell, as far as they are here."""
    folders = {spec.name: bench.run_folder(spec) for spec in cell.members or (cell.spec,)}
    return {
        name: {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != LOCK
        }
        for name, folder in folders.items()
        if folder.exists()
    }


def _write(bench: Bench, folders: Mapping[str, Files]) -> None:
    """The inverse. What says that a folder is a run's comes first."""
    for name, files in folders.items():
        for path in sorted(files, key=lambda path: path != RECORD):
            write_atomically(bench.runs / name / path, files[path])
