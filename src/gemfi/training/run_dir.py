"""The folder of a run: its files, its log, and one process in it at a time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gemfi._files import appending, hold_lock, to_json, write_atomically
from gemfi.errors import CheckpointError, InputError

CHECKPOINT: Final = "checkpoint.safetensors"
LOG: Final = "log.jsonl"
LOCK: Final = ".lock"
FEATURES: Final = "features"
"""The folder of the features of a frozen backbone."""
MEMBER: Final = "member-"
"""The folder of an ensemble member's own run, followed by its number."""

_EPOCH_NUMBERS: Final = ("epoch", "loss", "learning_rate", "seconds")


@contextlib.contextmanager
def lock_run_dir(folder: Path) -> Iterator[None]:
    """Keep others out of the folder of a run, which is created; a second process is refused."""

    def refuse() -> None:
        raise CheckpointError(
            f"another process is training in {folder}; wait for it, or use another folder"
        )

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(
            f"run_dir {folder} cannot be created: a file is in its place, or in that of a folder "
            "above it; give another one (--out, or GEMFI_RUNS)"
        ) from None
    with hold_lock(folder / LOCK, refuse):
        yield


class RunLog:
    """A JSONL file, one line an event, in step with the checkpoint; in memory without a path."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The records of epochs."""
        return [record for record in self.records if "loss" in record]

    def write(self, **record: Any) -> None:
        """Add one record; it must have a `step`."""
        self.records.append(record)
        if self.path is not None:
            with appending(self.path) as file:
                file.write(to_json(record).encode() + b"\n")

    def rewind(self, step: int, *, finished: bool) -> None:
        """Keep the records up to a step; what a killed run wrote after its checkpoint goes.

        A last line that was cut off by the kill is dropped with them; any other line that is no
        record is a CheckpointError.
        """
        if self.path is None or not self.path.exists():
            return
        lines = self.path.read_bytes().split(b"\n")[:-1]
        records = [_record(line, f"{self.path} line {n}") for n, line in enumerate(lines, start=1)]
        epochs = [set(record) for record in records if "finished" not in record]
        for number, keys in enumerate(epochs, start=1):
            if keys != epochs[0]:
                lacking = min(keys ^ epochs[0])
                raise _damaged(f"{self.path} line {number}", f"{lacking} is not in every epoch")
        self.records = [
            record
            for record in records
            if record["step"] <= step and (finished or "finished" not in record)
        ]
        text = "".join(to_json(record) + "\n" for record in self.records)
        write_atomically(self.path, text.encode())


def _record(line: bytes, where: str) -> dict[str, Any]:
    """A line of the log, or an error that says which one is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # the first of UTF-8 as well
        raise _damaged(where, "it is no JSON") from error
    if not isinstance(record, dict) or not _is_number(record.get("step")):
        raise _damaged(where, "it has no step")
    if "finished" in record:
        return record
    for name in _EPOCH_NUMBERS:
        if not _is_number(record.get(name)):
            raise _damaged(where, f"it has no {name}")
    terms = record.get("terms")
    if not isinstance(terms, dict) or not all(map(_is_number, terms.values())):
        raise _damaged(where, "it has no terms of the loss")
    return record


def _damaged(where: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{where} is damaged: {why}; put a whole copy of the file there, or delete it and the "
        "checkpoint beside it to start the run again"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
