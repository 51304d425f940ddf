"""Bench: the runs of a protocol in a folder, done once each, by one process or by several."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from gemfi._config import to_plain
from gemfi._environment import environment
from gemfi._files import hold_lock, read_json, to_json, write_atomically
from gemfi.data import OOD_SETS, Split, Task
from gemfi.errors import CheckpointError, InputError
from gemfi.evaluation import SplitFacts
from gemfi.model import Model
from gemfi.runs import Run, RunSpec, find_task, train_run
from gemfi.runs.folder import is_finished
from gemfi_bench.evaluate import TEST, TRAIN, VALIDATION, assembled, evaluate_cell
from gemfi_bench.grid import MAIN, RATES, Cell, plan
from gemfi_bench.protocol import Protocol
from gemfi_bench.record_file import RecordFile, RunRecord, Sets
from gemfi_bench.shift import check_shift, shifted_sets

PROTOCOL: Final = "protocol.json"
GRID: Final = "grid.json"
RUNS: Final = "runs"
_LOCK: Final = ".bench.lock"
_POLL: Final = 1.0  # seconds between two looks at what other processes have done
_DIGITS: Final = 6  # of a number in the records
_AGAIN: Final = "delete it and run gemfi bench again, which writes it anew"


@dataclass(frozen=True)
class Event:
    """Something to tell the user."""

    kind: str  # `begin` or `end` of a run, or `wait` for another process
    cell: Cell  # which run; of `wait`, the first that is being done elsewhere
    done: int  # runs that are done
    total: int  # runs of the grid, as far as it is known
    seconds: float = 0.0  # of `end`, what the run took


Turn = Callable[[list[Cell], int, Callable[[Event], None]], bool]
"""Does some cells of those to do, of so many, and tells of them; whether any was done."""


class Bench:
    """The runs of a protocol.

    Args:
        protocol: what to compare.
        folder: for runs, records and arrays; it is created.
        task: the data, if at hand; otherwise found by the protocol's name for it.
        arrays: also do runs again whose records are here without their arrays, or without an OOD
            set that was absent then and is here now.
    """

    def __init__(
        self,
        protocol: Protocol,
        folder: Path | str,
        task: Task | None = None,
        *,
        arrays: bool = False,
        device: str | None = None,
    ) -> None:
        self.protocol, self.folder, self.arrays = protocol, Path(folder), arrays
        self.device = device
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; give a folder for the benchmark")
        _check_folder(self.folder, protocol)
        self.task = find_task(protocol.task, protocol.own) if task is None else task
        _check_sets(self.task, protocol)
        check_shift(self.task, protocol.shift)
        self.file = RecordFile(self.folder)
        self._shifted: dict[str, Split] | None = None

    # -- what there is to do ----------------------------------------------------------------------

    def plan(self) -> list[Cell]:
        """Every cell, with the learning rates that are known."""
        records = self.file.read()

        def nll(cell: Cell) -> float | None:
            if cell.key not in records:
                return None
            value = records[cell.key].numbers.get(VALIDATION, {}).get("id", {}).get("nll")
            return math.inf if value is None else float(value)  # null is what was not finite

        return plan(self.protocol, self.task, nll)

    def done(self) -> dict[str, RunRecord]:
        """Key -> record of the runs that need not be done; with `arrays` those that have all.

        Nothing is made from the arrays of runs that chose a learning rate.
        """
        records = self.file.read()
        if not self.arrays:
            return records
        here = self.task.ood_test.keys()
        return {
            key: run
            for key, run in records.items()
            if run.brief or (self.file.arrays(key).exists() and here.isdisjoint(run.absent))
        }

    def missing(self) -> list[Cell]:
        """The cells whose runs are not done, each run once."""
        return self._missing(self.plan())

    def untrained(self, cell: Cell) -> dict[str, RunSpec]:
        """Key -> spec of the members of an assembled ensemble whose models are not here.

        Of those with a record the folder is gone, as records that were put into an empty folder
        come without their runs: nobody but the ensemble trains them again.
        """
        members = zip(cell.member_keys, cell.members, strict=True)
        return {key: spec for key, spec in members if not is_finished(self.run_folder(spec))}

    def _missing(self, cells: list[Cell]) -> list[Cell]:
        done = self.done()
        first = {cell.key: cell for cell in reversed(cells) if cell.key not in done}
        return [cell for cell in cells if first.get(cell.key) is cell]

    # -- doing it ---------------------------------------------------------------------------------

    def work(
        self,
        *,
        only: Callable[[Cell], bool] = lambda _cell: True,
        tell: Callable[[Event], None] = lambda _event: None,
        progress: bool | None = False,
        turn: Turn | None = None,
    ) -> None:
        """Do what is missing; what others are doing is waited for.

        Args:
            only: which cells to do; the learning rates that they wait for are chosen first, and the
                members of an assembled ensemble are done with it.
            tell: called as runs begin and end.
            progress: a bar for each training: yes, no, or (None) if standard error is a terminal.
            turn: does some of what is to be done, in place of this process.
        """
        self._begin()
        turn = partial(self._pass, progress=progress) if turn is None else turn
        waiting = False
        while True:
            cells = self.plan()
            self._write_grid(cells)
            wanted = _wanted(cells, only)
            todo = self._missing(wanted)
            if not todo:
                return
            total = len({cell.key for cell in wanted})
            done = turn(todo, total, tell)
            if not done:
                if not waiting:
                    tell(Event("wait", todo[0], total - len(todo), total))
                time.sleep(_POLL)
            waiting = not done

    def can_begin(self, cell: Cell, pending: Collection[str]) -> bool:
        """Whether a run waits neither for a learning rate nor for a member that is not done."""
        return cell.ready and self.untrained(cell).keys().isdisjoint(pending)

    def _pass(
        self, todo: list[Cell], total: int, tell: Callable[[Event], None], progress: bool | None
    ) -> bool:
        """Go through the cells once; whether any was done."""
        worked = False
        pending = {cell.key for cell in todo}
        for cell in todo:
            if not self.can_begin(cell, pending):
                continue
            with self.file.claim(cell.key) as mine:
                if not mine or cell.key in self.done():
                    continue
                done = total - len(self._missing(todo))
                tell(Event("begin", cell, done, total))
                begin = time.perf_counter()
                self.file.append(*self.measure(cell, progress))
                tell(Event("end", cell, done + 1, total, time.perf_counter() - begin))
                worked = True
        return worked

    def measure(self, cell: Cell, progress: bool | None) -> tuple[RunRecord, Sets]:
        """Train and evaluate: what is to be kept of a run, and its arrays."""
        begin = time.perf_counter()
        model, training, sessions = self._trained(cell, progress)
        seconds = round(time.perf_counter() - begin, 3)
        brief = bool(cell.evaluation.get("brief"))
        shifted = self.shifted() if cell.evaluation.get("shift") else {}
        evaluated = evaluate_cell(model, self.task, shifted, cell.detectors, brief=brief)
        record = RunRecord(
            key=cell.key,
            title=cell.title,
            spec=cell.spec.to_plain(),
            members=cell.member_keys,
            data=evaluated.data,
            sessions=(*sessions, to_plain(environment())),
            training=training,
            seconds={"train": training.get("seconds", seconds), "evaluate": evaluated.seconds},
            scores=model.head.named_scores,
            numbers=_rounded(evaluated.numbers),
            absent=dict.fromkeys(self.task.absent, "data absent"),
            detectors=evaluated.detectors,
        )
        return record, evaluated.sets

    def _trained(
        self, cell: Cell, progress: bool | None
    ) -> tuple[Model, dict[str, Any], list[dict[str, Any]]]:
        """The model of a cell, what its training was, and in which sessions."""
        if not cell.members:
            folder = self.run_folder(cell.spec)
            run = train_run(
                cell.spec, folder, progress=progress, task=self.task, device=self.device
            )
            return run.model, run.training, list(map(to_plain, run.record.sessions))
        lost = self.untrained(cell)
        for spec in lost.values():
            train_run(
                spec,
                self.run_folder(spec),
                progress=progress,
                task=self.task,
                device=self.device,
            )
        runs = [Run.open(self.run_folder(spec)) for spec in cell.members]
        model = assembled(cell.spec, [run.model for run in runs])
        notes = [f"assembled from {len(runs)} runs of {runs[0].spec.method}"]
        if lost:
            notes.append(f"{len(lost)} of them trained again: their records came without models")
        training = {
            "steps": runs[0].training["steps"],
            "seconds": round(sum(run.training["seconds"] for run in runs), 3),
            "parameters": sum(run.training["parameters"] for run in runs),
            "best_epoch": None,
            "notes": notes,
        }
        return model, training, []

    # -- files ------------------------------------------------------------------------------------

    @property
    def runs(self) -> Path:
        """Where runs are trained, each in a folder of its name."""
        return self.folder / RUNS

    def run_folder(self, spec: RunSpec) -> Path:
        """Where a run is trained."""
        return self.runs / spec.name

    def shifted(self) -> dict[str, Split]:
        """Corrupted test sets, made once."""
        if self._shifted is None:
            self._shifted = dict(shifted_sets(self.task, self.protocol.shift))
        return self._shifted

    def _begin(self) -> None:
        """Refuse data that are not those of the records, then say what is being done here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        task, records = self.task, self.file.read().values()
        for name in (name for run in records for name in run.numbers.get("ood", {})):
            if name not in task.ood_test and name not in task.absent:
                raise CheckpointError(
                    f"{self.folder} has records of other data: its OOD set {name!r} is none of "
                    f"the task {task.name!r} today; use another folder"
                )
        sets = {TRAIN: task.train, VALIDATION: task.validation, TEST: task.test}
        for name, split in {**sets, **task.ood_validation, **task.ood_test}.items():
            seen = [run.data.get(name, {}) for run in records if name in {*run.data, TRAIN}]
            here = to_plain(SplitFacts.of(split)) if seen else {}
            for there in seen:
                if there != here:
                    raise CheckpointError(
                        f"{self.folder} has records of other data: its set {name!r} was "
                        f"{_described(there)}, now {_described(here)}; use another folder, or put "
                        "the old data back"
                    )
        self._write(PROTOCOL, to_json(self.protocol.to_plain(), indent=1))

    def _write_grid(self, cells: list[Cell]) -> None:
        """Group, row, seed and key of every cell, so that a report needs no data."""
        names = ("group", "row", "seed", "key")
        plain = [
            {name: getattr(cell, name) for name in names}
            | {"method": cell.spec.method, "ready": cell.ready}
            for cell in cells
        ]
        self._write(GRID, to_json(plain, indent=0))

    def _write(self, name: str, text: str) -> None:
        """A file that every process writes: one at a time, as they share its temporary file."""
        with hold_lock(self.folder / _LOCK):
            write_atomically(self.folder / name, text.encode() + b"\n")


def read_protocol(folder: Path) -> Protocol:
    """What a folder compares, as `protocol.json` in it says."""
    path = folder / PROTOCOL
    try:
        return Protocol.from_plain(read_json(path, _AGAIN), PROTOCOL)
    except InputError as error:
        raise CheckpointError(f"{path} is no protocol: {error}; {_AGAIN}") from error


def _check_folder(folder: Path, protocol: Protocol) -> None:
    """Refuse the folder of another benchmark: its grid would be overwritten."""
    if not (folder / PROTOCOL).exists():
        return
    there = read_protocol(folder)
    for what in ("name", "task"):
        old, new = getattr(there, what), getattr(protocol, what)
        if old != new:
            raise InputError(
                f"{folder} is the folder of another benchmark: its {what} is {old!r}, that of the "
                f"given protocol {new!r}; use another folder"
            )


def _check_sets(task: Task, protocol: Protocol) -> None:
    """Refuse a set that the protocol names and the task does not have, here or elsewhere."""
    against = OOD_SETS.get(task.name.removesuffix("-frozen"))
    tuning = against.validation if against else ()
    known = [name for name in (*task.ood_test, *task.absent) if name not in tuning]
    for field in ("near", "far", "seen"):
        for name in getattr(protocol, field):
            if name not in known:
                raise InputError(
                    f"{field}: {name!r} is no OOD test set of the task {task.name!r}; "
                    + (f"there are: {', '.join(known)}" if known else "it has none")
                )


def _wanted(cells: Sequence[Cell], only: Callable[[Cell], bool]) -> list[Cell]:
    """The cells that were asked for, and those that they wait for."""
    chosen = [cell for cell in cells if cell.group != RATES and only(cell)]
    members = {spec.name for cell in chosen for spec in cell.members}
    methods = {spec.method for cell in chosen for spec in (cell.members or (cell.spec,))}
    return [
        cell
        for cell in cells
        if only(cell)
        or (cell.group == RATES and cell.spec.method in methods)
        or (not cell.members and cell.group == MAIN and cell.spec.name in members)
    ]


def _described(split: Mapping[str, Any]) -> str:
    if not {"split", "n", "checksum"} <= split.keys():
        return "not recorded"
    return f"{split['split']} ({split['n']:,} samples, checksum {split['checksum'][:12]})"


def _rounded(value: Any) -> Any:
    """Numbers as people can use them: more digits would be the noise of the machine."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return value
