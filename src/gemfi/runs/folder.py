"""A run is a folder: what it is, its log, its checkpoint, its model, its numbers.

| file | written by | holds |
|---|---|---|
| `run.json` | `begin` | spec, facts of the data, the sessions' environments |
| `log.jsonl` | `fit` | a line an epoch |
| `checkpoint.safetensors` | `fit` | weights, statistics, and all that resuming needs |
| `model.safetensors` | `train_run` | the trained model, as a bundle |
| `metrics.json` | `train_run`, `evaluate_run` | the numbers |
| `summary.md` | the same | the numbers, to read |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gemfi._config import decode, described, differences, from_plain, to_plain
from gemfi._environment import Environment, environment
from gemfi._files import read_json, write_json
from gemfi.bundle import Bundle, load, make_bundle, write_bundle
from gemfi.data import Split, Task
from gemfi.data.inputs import InputSpec
from gemfi.data.normalisation import Normalisation
from gemfi.errors import CheckpointError, InputError
from gemfi.evaluation import SplitFacts
from gemfi.model import Model
from gemfi.runs.spec import RunSpec
from gemfi.training import FitResult
from gemfi.training.checkpoint import Checkpoint
from gemfi.training.run_data import batches_per_epoch
from gemfi.training.run_dir import CHECKPOINT, LOCK, LOG, MEMBER

RECORD: Final = "run.json"
MODEL: Final = "model.safetensors"
METRICS: Final = "metrics.json"
SUMMARY: Final = "summary.md"
FILES: Final = (RECORD, LOG, CHECKPOINT, MODEL, METRICS, SUMMARY)

_MEMBER_FILES: Final = (LOG, CHECKPOINT, LOCK)  # of each member of an ensemble, in its own folder
_FORMAT: Final = 1


# -- what a run is ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TaskFacts(InputSpec):
    """A task as training sees it; its test and OOD sets are not looked at."""

    num_classes: int
    class_names: tuple[str, ...] = field()
    sample_shape: tuple[int, ...] = field()
    sample_dtype: str = field()
    class_counts: tuple[int, ...]  # training samples of each class
    normalisation: Normalisation | None  # that the model applies to its inputs
    train: SplitFacts
    validation: SplitFacts

    @classmethod
    def of(cls, task: Task, *, normalise: bool) -> TaskFacts:
        """Read the training and validation data of a task."""
        inputs = InputSpec(class_names=task.class_names).trained_on(task.train)
        return cls(
            **vars(inputs.with_columns(task.columns)),
            num_classes=task.num_classes,
            class_counts=tuple(task.train.class_counts.tolist()),
            normalisation=task.normalisation if normalise else None,
            train=SplitFacts.of(task.train),
            validation=SplitFacts.of(task.validation),
        )

    def check_alike(self, task: Task, split: Split) -> None:
        """Refuse to judge a model by data of another kind than it was trained on."""
        here = to_plain(InputSpec(class_names=task.class_names).trained_on(split))
        there = to_plain(replace(self.inputs, feature_names=None, columns=None))
        if changed := differences(there, here):
            raise InputError(
                f"task {task.name!r} is not what this run was trained on: {described(changed)}"
            )

    def check_unchanged(self, task: Task, where: str) -> None:
        """Refuse data that changed since training: what was learnt then may be test data now."""
        there = {"train": self.train, "validation": self.validation}
        here = {name: SplitFacts.of(getattr(task, name)) for name in there}
        if changed := differences(to_plain(there), to_plain(here)):
            raise CheckpointError(
                f"{where}: the data of task {task.name!r} are not those it was trained on "
                f"({described(changed)}), so that samples it has learnt may be test samples now; "
                "put the old data back, or train again with --fresh"
            )


@dataclass(frozen=True)
class Record:
    """The contents of `run.json`."""

    spec: RunSpec
    facts: TaskFacts
    sessions: tuple[Environment, ...]  # the first one, and later ones that differ

    def __post_init__(self) -> None:
        if not self.sessions:
            raise InputError("sessions: the list is empty")

    @property
    def batches(self) -> int:
        """Optimiser steps of an epoch."""
        return batches_per_epoch(self.facts.train.n, self.spec.train.samples_a_step)

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole run."""
        return self.batches * self.spec.train.epochs

    def write(self, folder: Path) -> None:
        """Whole or not at all."""
        write_json(folder / RECORD, {"format": _FORMAT, **to_plain(self)})

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read `run.json` back, strictly."""
        path = folder / RECORD
        remedy = f"delete {folder.name} or give --fresh to start the run again"
        plain = _read_json(path, remedy)
        if plain.get("format") != _FORMAT:
            raise CheckpointError(
                f"{path} is not a run of format {_FORMAT} (found {plain.get('format')!r}); {remedy}"
            )
        try:
            spec = RunSpec.from_plain(plain.get("spec"), "spec")
            facts = from_plain(TaskFacts, plain.get("facts"), "facts")
            sessions = decode(tuple[Environment, ...], plain.get("sessions"), "sessions")
            return cls(spec, facts, sessions)
        except InputError as error:
            raise CheckpointError(f"{path} cannot be read: {error}; {remedy}") from error


@dataclass(frozen=True)
class Run:
    """A finished run, with its model."""

    folder: Path
    record: Record
    bundle: Bundle  # without a policy

    @property
    def spec(self) -> RunSpec:
        """What was asked for."""
        return self.record.spec

    @property
    def model(self) -> Model:
        """Trained, in evaluation mode."""
        return self.bundle.model

    @property
    def training(self) -> dict[str, Any]:
        """Steps, seconds, parameters, best epoch and notes."""
        return dict(self.bundle.info.provenance["training"])

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Open a finished run and load its model; no data are needed."""
        folder = Path(folder)
        _check_folder(folder)
        if not (folder / RECORD).exists():
            raise InputError(f"{folder} is not a run: it has no {RECORD}; give a run's folder")
        record = Record.read(folder)
        _check_finished(folder, record)
        path = folder / MODEL
        if not path.exists():
            raise CheckpointError(f"{folder} has no {MODEL}; run gemfi train again to write it")
        bundle = load(path)
        origin = bundle.info.provenance
        spec = RunSpec.from_plain(origin.get("spec"), f"{path}: spec")
        facts = from_plain(TaskFacts, origin.get("facts"), f"{path}: facts")
        there, here = {"spec": spec, "facts": facts}, {"spec": record.spec, "facts": record.facts}
        changed = differences(to_plain(there), to_plain(here))
        if changed or "training" not in origin:
            words = described(changed)
            raise CheckpointError(f"{path} belongs to another run ({words}); delete it")
        return cls(folder, record, replace(bundle, name=folder.name, run=folder))

    @classmethod
    def finish(cls, folder: Path, record: Record, model: Model, result: FitResult) -> Run:
        """Keep the model of a run whose training has ended, unless it is kept already."""
        model.inputs = record.facts.inputs
        provenance = {
            "training": {
                "steps": result.steps,
                "seconds": round(result.seconds, 3),
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "best_epoch": result.best_epoch,
                "notes": result.notes,
            },
            "steps": record.steps,
            "environment": to_plain(record.sessions[-1]),
            "spec": to_plain(record.spec),
            "facts": to_plain(record.facts),
        }
        bundle = make_bundle(folder.name, model, provenance=provenance)
        if not (folder / MODEL).exists():
            write_bundle(folder / MODEL, bundle)
        return cls(folder, record, replace(bundle, run=folder))

    def metrics(self) -> dict[str, Any]:
        """The contents of `metrics.json`: the numbers so far, empty before there are any."""
        path, remedy = self.folder / METRICS, "delete it and run again"
        if not path.exists():
            return {}
        numbers = _read_json(path, remedy)
        try:
            for name in numbers.keys() & {"validation", "test"}:
                _check_section(numbers[name], _SECTION, name)
        except InputError as error:
            raise CheckpointError(f"{path} cannot be read: {error}; {remedy}") from error
        return numbers


def _check_finished(folder: Path, record: Record) -> None:
    """Refuse a run whose training has not ended, and a damaged checkpoint."""
    path, step, finished = folder / CHECKPOINT, 0, False
    if path.exists():
        checkpoint = Checkpoint.load(path)
        checkpoint.check_state(record.spec.train.epochs, record.batches)
        step, finished = checkpoint.state.step, checkpoint.state.finished
    if not finished:
        done = f"{step:,} of {record.steps:,} steps"
        raise CheckpointError(f"{folder}: the run is not finished, {done}; run gemfi train again")


# -- its folder ------------------------------------------------------------------------------------


def begin(spec: RunSpec, folder: Path, task: Task) -> Record:
    """Begin a run in a folder that `require_run_folder` lets pass, or see that it began there."""
    facts, now = TaskFacts.of(task, normalise=spec.normalise), environment()
    if not (folder / RECORD).exists():
        record = Record(spec, facts, (now,))
        record.write(folder)
        return record
    record = Record.read(folder)
    changed = differences(record.spec.identity(), spec.identity())
    changed |= differences(to_plain(record.facts), to_plain(facts))
    if changed:
        remedy = "use another folder, or --fresh to replace it"
        raise CheckpointError(f"{folder} holds another run ({described(changed)}); {remedy}")
    if replace(record.sessions[-1], date=now.date) != now and not is_finished(folder):
        record = replace(record, sessions=(*record.sessions, now))
        record.write(folder)
    return record


def is_finished(folder: Path | str) -> bool:
    """Whether a folder holds a run whose training has ended, and its model."""
    path = Path(folder) / CHECKPOINT
    finished = path.exists() and Checkpoint.load_state(path).finished
    return finished and (Path(folder) / MODEL).exists()


def require_run_folder(folder: Path) -> None:
    """Refuse a file, and a folder with files that are not a run's.

    Without a record, even a file with one of our names is not ours.
    """
    if not folder.exists():
        return
    _check_folder(folder)
    if (folder / RECORD).exists():
        return
    ours = {LOCK, *(f"{name}.tmp" for name in FILES)}
    strangers = sorted(path.name for path in folder.iterdir() if path.name not in ours)
    if strangers:
        raise InputError(
            f"{folder} is not empty and holds no run (it has {strangers[0]}); give a new folder"
        )


def _check_folder(folder: Path) -> None:
    if not folder.exists():
        raise InputError(f"the run {folder} does not exist")
    if not folder.is_dir():
        raise InputError(f"the run {folder} is a file; give a folder")


def clear(folder: Path | str) -> None:
    """Delete the files of a run, and nothing else; the record last, as it makes them ours."""
    folder = Path(folder)
    require_run_folder(folder)
    members = [path for path in folder.iterdir() if re.fullmatch(rf"{MEMBER}\d+", path.name)]
    ours = {*_MEMBER_FILES, *(f"{name}.tmp" for name in _MEMBER_FILES)}
    for member in members:
        for path in member.iterdir() if member.is_dir() else [member]:
            if path.name not in ours:
                raise InputError(
                    f"{path} is not of a run, and --fresh deletes nothing else; move it away"
                )
    for member in members:
        _unlink(member, _MEMBER_FILES)
        member.rmdir()
    _unlink(folder, FILES)


def drop_orphans(folder: Path) -> None:
    """Delete the model and the numbers of a checkpoint that somebody has deleted."""
    if not (folder / CHECKPOINT).exists():
        _unlink(folder, (MODEL, METRICS, SUMMARY))


def _unlink(folder: Path, names: Sequence[str]) -> None:
    for name in reversed(names):
        for path in (folder / name, folder / f"{name}.tmp"):
            path.unlink(missing_ok=True)


# -- its numbers -----------------------------------------------------------------------------------

CLASSIFICATION: Final = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE"}
DETECTION: Final = {"auroc": "AUROC", "aupr_id": "AUPR", "fpr95": "FPR95"}
"""Metric -> its title in a table."""

_FACTS: Final = {"split": str, "role": str, "checksum": str, "n": int}
_METRICS: Final = dict.fromkeys(DETECTION, float | None)
_SECTION: Final[Mapping[str, Any]] = {
    "id": {**_FACTS, **dict.fromkeys(CLASSIFICATION, float | None)},
    "scores": {"aleatoric": str, "epistemic": str},
    "ood": {
        "*": {**_FACTS, "aleatoric": _METRICS, "epistemic": _METRICS, "by_score": {"*": _METRICS}}
    },
    "absent": list[str],
}
"""What tables and summaries need of a section of `metrics.json`; `*` is any name."""


def _check_section(value: Any, expected: Any, where: str) -> None:
    """Refuse a section without the fields of `_SECTION`; others may be there."""
    if not isinstance(expected, Mapping):
        decode(expected, value, where)
        return
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected a mapping")
    for key, inner in expected.items():
        for name in value if key == "*" else (key,):
            if name not in value:
                raise InputError(f"{where}: field {name} is missing")
            _check_section(value[name], inner, f"{where}.{name}")


def _read_json(path: Path, remedy: str) -> dict[str, Any]:
    plain = read_json(path, remedy)
    if not isinstance(plain, dict):
        raise CheckpointError(f"{path} does not hold a JSON object; {remedy}")
    return plain
