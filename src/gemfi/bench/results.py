"""Results: the records of a bench, as tables, figures and claims read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from gemfi.bench.bench import GRID, PROTOCOL
from gemfi.bench.grid import MAIN
from gemfi.bench.protocol import Protocol
from gemfi.bench.records import RecordFile, RunRecord, Sets, read_arrays
from gemfi.bench.table import Value
from gemfi.data.registry.tasks import AGAINST
from gemfi.errors import CheckpointError, InputError

OVERHEAD: Final = "overhead.json"

Pick = Callable[[RunRecord], float | None]
"""A number of a run; None where it has none."""


@dataclass(frozen=True)
class Planned:
    """A cell of the grid, as `grid.json` holds it."""

    group: str
    row: str
    seed: int
    key: str
    method: str
    ready: bool


class Results:
    """What a bench has found so far; nothing is trained, and no data set is read.

    Args:
        folder: of the bench.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        for name in (PROTOCOL, GRID):
            if not (self.folder / name).is_file():
                raise InputError(
                    f"{self.folder} is no folder of a benchmark: it has no {name}; give one that "
                    "gemfi bench has written"
                )
        self.protocol = Protocol.from_plain(_json(self.folder / PROTOCOL), PROTOCOL)
        self.grid = [Planned(**each) for each in _json(self.folder / GRID)]
        self.file = RecordFile(self.folder)
        self.records = self.file.read()
        self._arrays = lru_cache(maxsize=32)(self._read)

    # -- rows and runs ----------------------------------------------------------------------------

    def rows(self, group: str = MAIN) -> list[str]:
        """The rows of a group, in the order of the grid."""
        return list(dict.fromkeys(each.row for each in self.grid if each.group == group))

    def method(self, row: str, group: str = MAIN) -> str:
        """The method of a row."""
        for each in self.grid:
            if (each.group, each.row) == (group, row):
                return each.method
        raise InputError(f"no row {row!r} in the group {group!r} of {self.folder}")

    def runs(self, row: str, group: str = MAIN) -> list[RunRecord]:
        """The runs of a row that are done, in the order of their seeds."""
        return list(self.by_seed(row, group).values())

    def by_seed(self, row: str, group: str = MAIN) -> dict[int, RunRecord]:
        """Seed -> the run of a row, where it is done."""
        return {
            each.seed: self.records[each.key]
            for each in self.grid
            if (each.group, each.row) == (group, row) and each.key in self.records
        }

    def missing(self) -> list[Planned]:
        """What the grid has and the records have not."""
        return [each for each in self.grid if each.key not in self.records]

    # -- numbers ----------------------------------------------------------------------------------

    def value(self, row: str, pick: Pick, group: str = MAIN) -> Value | None:
        """Mean and deviation of a number over the runs of a row; None without any.

        Args:
            row: of the group.
            pick: the number of a run; runs without one are left out.
            group: of the grid.
        """
        found = {run.key: pick(run) for run in self.runs(row, group)}
        known = {key: each for key, each in found.items() if each is not None}
        return Value.of(list(known.values()), list(known)) if known else None

    # -- sets -------------------------------------------------------------------------------------

    @property
    def ood_sets(self) -> list[str]:
        """OOD test sets: near ones, far ones, then the rest; those that are absent too."""
        known = [name for record in self.records.values() for name in record.numbers.get("ood", {})]
        against = AGAINST.get(self.protocol.task)
        listed = [*self.protocol.near, *self.protocol.far, *(against.test if against else ())]
        return list(dict.fromkeys([*listed, *known]))

    def is_absent(self, name: str) -> bool:
        """Whether an OOD set was not at hand in any run."""
        return not any(name in each.numbers.get("ood", {}) for each in self.records.values())

    def arrays(self, run: RunRecord) -> Sets:
        """The arrays of a run: `["test"]["score/entropy"]` and so on; see `observation.py`."""
        return self._arrays(run.key)

    def has_arrays(self, run: RunRecord) -> bool:
        """Whether the arrays of a run are here; committed records go without."""
        return self.file.arrays(run.key).exists()

    @property
    def overhead(self) -> Mapping[str, Any] | None:
        """What training and inference cost, see `overhead.py`; None where it was not measured."""
        path = self.folder / OVERHEAD
        found: Mapping[str, Any] | None = _json(path) if path.exists() else None
        return found

    def _read(self, key: str) -> Sets:
        path = self.file.arrays(key)
        if not path.exists():
            raise InputError(
                f"the arrays of run {key} are not in {path.parent}; run gemfi bench again there"
            )
        return read_arrays(path)


# -- picks ----------------------------------------------------------------------------------------


def of_test(metric: str) -> Pick:
    """A number of the test data: `accuracy`, `nll`, `brier`, `ece`, `aupr_correct`, ..."""
    return lambda run: run.numbers.get("test", {}).get("id", {}).get(metric)


def of_set(name: str, kind: str, metric: str) -> Pick:
    """A number of an OOD test set.

    Args:
        name: of the set.
        kind: `aleatoric` or `epistemic` for what the method names, or a score's own name, or a
            detector's.
        metric: `auroc`, `aupr_id`, `aupr_ood` or `fpr95`.
    """

    def pick(run: RunRecord) -> float | None:
        entry = run.numbers.get("ood", {}).get(name)
        return None if entry is None else _of_entry(run, entry, kind, metric)

    return pick


def of_shift(severity: int | None, kind: str, metric: str) -> Pick:
    """A number of corrupted data, averaged over the types at a severity (None: all of them).

    Args:
        severity: 1 to 5.
        kind: as in `of_set`, or `id` for a number of the classifier itself.
        metric: of it.
    """

    def pick(run: RunRecord) -> float | None:
        found = []
        for name, entry in run.numbers.get("shift", {}).items():
            if severity is not None and not name.endswith(f"-{severity}"):
                continue
            value = entry["id"].get(metric) if kind == "id" else _of_entry(run, entry, kind, metric)
            found += [] if value is None else [value]
        return sum(found) / len(found) if found else None

    return pick


def mean_of(picks: Sequence[Pick]) -> Pick:
    """The mean of several numbers of a run; None if one is not there."""

    def pick(run: RunRecord) -> float | None:
        found = [each(run) for each in picks]
        known = [each for each in found if each is not None]
        return sum(known) / len(known) if known and len(known) == len(found) else None

    return pick


def _of_entry(run: RunRecord, entry: Mapping[str, Any], kind: str, metric: str) -> float | None:
    name = run.scores.get(kind, kind)
    for section in ("by_score", "by_detector"):
        if name in entry.get(section, {}):
            value: float | None = entry[section][name].get(metric)
            return value
    return None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"cannot read {path}: {error}; run gemfi bench again") from error
