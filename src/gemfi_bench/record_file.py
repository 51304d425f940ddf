"""Records: one JSON line a run, and its arrays in a compressed file beside them.

| file | holds |
|---|---|
| `protocol.json` | what is compared |
| `records.jsonl` | a line a run: configuration, data, environment, durations and every number |
| `records.jsonl.gz` | the same, packed: in the results that are kept under version control |
| `arrays/KEY.npz` | the arrays of a run, see `observation.py` |
| `runs/` | the training of each run, from which it is resumed |
| `locks/` | locks of the runs that are being done |
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi._config import from_plain
from gemfi._files import appending, hold_lock, to_json, try_lock, write_atomically
from gemfi.errors import CheckpointError
from gemfi.methods.upgrade import upgraded
from gemfi.training.config import upgraded_training

RECORDS: Final = "records.jsonl"
PACKED: Final = "records.jsonl.gz"
ARRAYS: Final = "arrays"
_LOCK: Final = ".records.lock"

Sets = dict[str, dict[str, npt.NDArray[Any]]]
"""Set -> array -> values."""

View = Mapping[str, Mapping[str, npt.NDArray[Any]]]
"""The same, to be read."""


@dataclass(frozen=True)
class RunRecord:
    """What is known of a run that was done."""

    key: str  # of its cell
    title: str  # of the cell for which it was done first
    spec: Mapping[str, Any]  # its configuration, as JSON values
    members: tuple[str, ...]  # keys of the runs it was assembled from; names, in old records
    data: Mapping[str, Mapping[str, Any]]  # set -> name, role, size and checksum
    sessions: tuple[Mapping[str, Any], ...]  # environments in which it was trained and evaluated
    training: Mapping[str, Any]  # steps, seconds, parameters, best epoch and notes
    seconds: Mapping[str, float]  # `train` and `evaluate`
    scores: Mapping[str, str]  # the scores that stand for `aleatoric` and `epistemic`
    numbers: Mapping[str, Mapping[str, Any]]  # set -> metrics, see `numbers.py`
    absent: Mapping[str, str]  # OOD sets that are not here -> why
    detectors: Mapping[str, Any]  # detector -> settings and notes

    def line(self) -> str:
        """One line of JSON."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return to_json(plain, sort_keys=True)

    @property
    def brief(self) -> bool:
        """Whether it was evaluated on validation data alone, to choose a learning rate."""
        return "test" not in self.numbers

    @classmethod
    def read(cls, line: str | bytes, where: str) -> RunRecord:
        """From one line of JSON."""
        try:
            text = line if isinstance(line, str) else line.decode()
            record = from_plain(cls, json.loads(text), "record")
            if "head" not in record.spec:
                return record
            name, head = upgraded(record.spec["method"], record.spec["head"])
            train = upgraded_training(record.spec["train"])
            spec = {**record.spec, "method": name, "head": head, "train": train}
            return replace(record, spec=spec)
        except ValueError as error:  # of UTF-8, of JSON, or of the fields
            raise CheckpointError(
                f"{where} is no record of a run ({error}); delete that line, and the run is done "
                "again"
            ) from error


class RecordFile:
    """The records of a folder.

    A line is written whole and flushed before the next begins. What a killed process left of a
    line, which has no end, is not read, and is cut off before the next line is written.

    Args:
        folder: of the bench; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / RECORDS

    def read(self) -> dict[str, RunRecord]:
        """Key -> record; those of a packed file, as `pack` writes it, too."""
        records = {}
        packed = self.folder / PACKED
        files = {packed: _unpacked(packed)} if packed.exists() else {}
        if self.path.exists():
            files[self.path] = self.path.read_bytes()
        for path, data in files.items():
            for number, line in enumerate(data.split(b"\n")[:-1], start=1):
                record = RunRecord.read(line, f"{path} line {number}")
                records[record.key] = record
        return records

    def pack(self, folder: Path, keys: Collection[str] | None = None) -> Path:
        """Write records (None: all) into one compressed file, the same bytes each time."""
        records = sorted(self.read().items())
        lines = [record.line() for key, record in records if keys is None or key in keys]
        data = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
        write_atomically(folder / PACKED, data)
        return folder / PACKED

    def append(self, record: RunRecord, sets: Sets) -> None:
        """Keep a run: its arrays first, so that a record always has them.

        A run that was done again keeps the record that it had, unless its numbers are others: then
        the new one counts, whose arrays are here.
        """
        write_arrays(self.arrays(record.key), sets)
        with hold_lock(self.folder / _LOCK):
            before = self.read().get(record.key)
            numbers = to_json(record.numbers, sort_keys=True)
            if before is not None and to_json(before.numbers, sort_keys=True) == numbers:
                return
            lines = self.path.read_bytes() if self.path.exists() else b""
            with appending(self.path) as file:
                file.truncate(lines.rfind(b"\n") + 1)
                file.write(record.line().encode() + b"\n")

    def arrays(self, key: str) -> Path:
        """The file of a run's arrays."""
        return self.folder / ARRAYS / f"{key}.npz"

    @contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Whether this process may do a run: no other one is doing it. Ends with the block."""
        folder = self.folder / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with try_lock(folder / key) as mine:
            yield mine


def _unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    try:
        return gzip.decompress(data)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CheckpointError(
            f"cannot read {path}: {error}; put a whole copy of it there, or delete it, and its "
            "runs are done again"
        ) from error


def write_arrays(path: Path, sets: Sets) -> None:
    """Every array as `set//array` in one compressed file, whole or not at all."""
    buffer = io.BytesIO()
    flat = {
        f"{name}//{key}": array for name, arrays in sets.items() for key, array in arrays.items()
    }
    np.savez_compressed(buffer, **flat)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def read_arrays(path: Path) -> Sets:
    """The inverse of `write_arrays`."""
    sets: Sets = {}
    try:
        with zipfile.ZipFile(path) as file:
            for member in file.namelist():
                name, key = member.removesuffix(".npy").split("//")
                with file.open(member) as opened:
                    sets.setdefault(name, {})[key] = np.lib.format.read_array(opened)
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(
            f"cannot read {path}: {error}; delete it, and gemfi bench --arrays makes it again"
        ) from error
    return sets
