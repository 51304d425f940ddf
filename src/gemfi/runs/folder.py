"""A run is a folder: what it is, its log, its checkpoint, its numbers.

| file | written by | holds |
|---|---|---|
| `run.json` | `begin` | spec, facts of the data, the sessions' environments |
| `log.jsonl` | `fit` | a line an epoch |
| `checkpoint.safetensors` | `fit` | weights, statistics, and all that resuming needs |
| `metrics.json` | `train_run`, `evaluate_run` | the numbers |
| `summary.md` | the same | the numbers, to read |
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from gemfi._config import decode, described, differences, from_plain, to_plain
from gemfi._files import to_json, write_atomically
from gemfi.data import Task
from gemfi.errors import CheckpointError, InputError
from gemfi.methods.base import DataFacts
from gemfi.model import Model
from gemfi.runs.facts import TaskFacts
from gemfi.runs.record import Environment, environment
from gemfi.runs.sections import check_section
from gemfi.runs.spec import RunSpec
from gemfi.training.checkpoint import Checkpoint, RunState, fingerprint
from gemfi.training.objective import Objective
from gemfi.training.run_data import batches_per_epoch
from gemfi.training.run_dir import CHECKPOINT, LOCK, LOG, MEMBER

RECORD: Final = "run.json"
METRICS: Final = "metrics.json"
SUMMARY: Final = "summary.md"
FILES: Final = (RECORD, LOG, CHECKPOINT, METRICS, SUMMARY)

MEMBER_FILES: Final = (LOG, CHECKPOINT, LOCK)
"""Of each member of an ensemble, in a folder of its own."""

_FORMAT = 1


@dataclass(frozen=True)
class Record:
    """The contents of `run.json`.

    Attributes:
        spec: what was asked for.
        facts: of the data.
        sessions: environments of the first session, and of later ones that differ.
    """

    spec: RunSpec
    facts: TaskFacts
    sessions: tuple[Environment, ...]

    @property
    def batches(self) -> int:
        """Optimiser steps of an epoch."""
        return batches_per_epoch(self.facts.train.n, self.spec.train.batch_size)

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole run."""
        return self.batches * self.spec.train.epochs

    def write(self, folder: Path) -> None:
        """Whole or not at all."""
        plain = {"format": _FORMAT, **to_plain(self)}
        write_atomically(folder / RECORD, to_json(plain, indent=1).encode() + b"\n")

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read `run.json` back, strictly."""
        path = folder / RECORD
        remedy = f"delete {folder.name} or give --fresh to start the run again"
        found = read_json(path, remedy)
        if found.get("format") != _FORMAT:
            raise CheckpointError(
                f"{path} is not a run of format {_FORMAT} (found {found.get('format')!r}); {remedy}"
            )
        try:
            spec = RunSpec.from_plain(found.get("spec"), "spec")
            facts = from_plain(TaskFacts, found.get("facts"), "facts")
            sessions = decode(tuple[Environment, ...], found.get("sessions"), "sessions")
        except InputError as error:
            raise CheckpointError(f"{path} cannot be read: {error}; {remedy}") from error
        if not sessions:
            raise CheckpointError(f"{path} cannot be read: sessions: the list is empty; {remedy}")
        return cls(spec, facts, sessions)


@dataclass(frozen=True)
class Run:
    """A finished run, with its model.

    Attributes:
        folder: where it is.
        record: what it is.
        model: trained, in evaluation mode.
        training: steps, seconds, parameters, best epoch and notes.
    """

    folder: Path
    record: Record
    model: Model
    training: dict[str, Any]

    @property
    def spec(self) -> RunSpec:
        """What was asked for."""
        return self.record.spec

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Read a finished run and rebuild its model exactly; no data is needed.

        Args:
            folder: of the run, as `gemfi train` prints it.
        """
        folder = Path(folder)
        check_folder(folder, "the run")
        if not (folder / RECORD).exists():
            raise InputError(f"{folder} is not a run: it has no {RECORD}; give a run's folder")
        record = Record.read(folder)
        path = folder / CHECKPOINT
        if not path.exists():
            raise CheckpointError(f"{folder}: {_unfinished(0, record.steps)}")
        checkpoint = Checkpoint.load(path)
        checkpoint.check_state(record.spec.train.epochs, record.batches)
        state = checkpoint.state
        if not state.finished:
            raise CheckpointError(f"{folder}: {_unfinished(state.step, record.steps)}")
        model = _rebuild(checkpoint, record)
        return cls(folder, record, model, training_facts(model, state))

    def metrics(self) -> dict[str, Any]:
        """The contents of `metrics.json`."""
        return read_metrics(self.folder)


def begin(spec: RunSpec, folder: Path, task: Task) -> Record:
    """Begin a run in a folder, or find that it is the same run that began there.

    Args:
        spec: what to run.
        folder: of the run, as `require_run_folder` lets it pass; it is created.
        task: the data.
    """
    facts, now = TaskFacts.of(task, spec), environment()
    if not (folder / RECORD).exists():
        record = Record(spec, facts, (now,))
        record.write(folder)
        return record
    record = Record.read(folder)
    differing = differences(record.spec.identity(), spec.identity())
    differing |= differences(to_plain(record.facts), to_plain(facts))
    if differing:
        raise CheckpointError(
            f"{folder} holds another run ({described(differing)}); use another folder, or --fresh "
            "to replace it"
        )
    if replace(record.sessions[-1], date=now.date) != now and not is_finished(folder):
        record = replace(record, sessions=(*record.sessions, now))
        record.write(folder)
    return record


def require_run_folder(folder: Path) -> None:
    """Refuse a file, and a folder with files that are not a run's."""
    if not folder.exists():
        return
    check_folder(folder, "the run")
    if (folder / RECORD).exists():
        return
    strangers = _strangers(folder)
    if strangers:
        raise InputError(
            f"{folder} is not empty and holds no run (it has {strangers[0]}); give a new folder"
        )


def is_finished(folder: Path | str) -> bool:
    """Whether a folder holds a run whose training has ended."""
    path = Path(folder) / CHECKPOINT
    return path.exists() and Checkpoint.load_state(path).finished


def clear(folder: Path | str) -> None:
    """Delete the files of a run, and nothing else; the record last, as it makes them ours."""
    folder = Path(folder)
    require_run_folder(folder)
    members = [path for path in folder.iterdir() if re.fullmatch(rf"{MEMBER}\d+", path.name)]
    for member in members:
        _check_member(member)
    for member in members:
        _unlink(member, MEMBER_FILES)
        member.rmdir()
    _unlink(folder, FILES)


def _check_member(folder: Path) -> None:
    """Refuse to delete what an ensemble did not write."""
    ours = {*MEMBER_FILES, *(f"{name}.tmp" for name in MEMBER_FILES)}
    strangers = (
        [folder] if not folder.is_dir() else [p for p in folder.iterdir() if p.name not in ours]
    )
    if strangers:
        raise InputError(
            f"{strangers[0]} is not of a run, and --fresh deletes nothing else; move it, or give "
            "another folder"
        )


def _unlink(folder: Path, names: Sequence[str]) -> None:
    for name in reversed(names):
        for path in (folder / name, folder / f"{name}.tmp"):
            path.unlink(missing_ok=True)


def check_folder(folder: Path, what: str) -> None:
    """Refuse what is not a folder."""
    if not folder.exists():
        raise InputError(f"{what} {folder} does not exist")
    if not folder.is_dir():
        raise InputError(f"{what} {folder} is a file; give a folder")


def read_metrics(folder: Path) -> dict[str, Any]:
    """The numbers of a run so far; empty before there are any."""
    path = folder / METRICS
    if not path.exists():
        return {}
    remedy = "delete it and run again"
    found = read_json(path, remedy)
    try:
        for name in found.keys() & {"validation", "test"}:
            check_section(found[name], name)
    except InputError as error:
        raise CheckpointError(f"{path} cannot be read: {error}; {remedy}") from error
    return found


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """A JSON object, or an error that says what to do."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; {remedy}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} does not hold a JSON object; {remedy}")
    return found


def training_facts(model: Model, state: RunState) -> dict[str, Any]:
    """What training did, from the counters of its checkpoint."""
    return {
        "steps": state.step,
        "seconds": round(state.seconds, 3),
        "parameters": sum(each.numel() for each in model.parameters()),
        "best_epoch": state.best_epoch,
        "notes": state.notes,
    }


def _rebuild(checkpoint: Checkpoint, record: Record) -> Model:
    """The model of a checkpoint: built as before training, then every weight and buffer loaded."""
    facts = record.facts
    model = record.spec.build(facts.num_classes, facts.normalisation)
    model.head.prepare(DataFacts(torch.tensor(facts.class_counts), record.steps))
    objective = Objective(model)
    wanted = fingerprint(objective, record.spec.train) | {
        "data": {"train": facts.train.checksum, "validation": facts.validation.checksum}
    }
    checkpoint.check_fingerprint(wanted)
    checkpoint.load_weights(objective)
    model.sample_shape = facts.sample_shape
    model.sample_dtype = getattr(torch, facts.sample_dtype)
    return model.eval()


def _unfinished(step: int, steps: int) -> str:
    return (
        f"the run is not finished, {step:,} of {steps:,} steps; run gemfi train again to finish it"
    )


def _strangers(folder: Path) -> Sequence[str]:
    """Files that are not ours. Without a record, even a file with one of our names is not."""
    ours = {LOCK, *(f"{name}.tmp" for name in FILES)}
    return sorted(path.name for path in folder.iterdir() if path.name not in ours)
