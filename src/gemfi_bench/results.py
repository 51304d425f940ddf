"""Results: the records of a bench, as tables, figures and claims read them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from gemfi._config import from_plain
from gemfi._files import read_json
from gemfi.data.registry import DATA_SETS, OOD_SETS, OodSets
from gemfi.errors import CheckpointError, InputError
from gemfi_bench.grid import MAIN
from gemfi_bench.protocol import SEEN
from gemfi_bench.record_file import RecordFile, RunRecord, Sets, read_arrays
from gemfi_bench.runner import GRID, PROTOCOL, read_protocol
from gemfi_bench.tabular import Value

OVERHEAD: Final = "overhead.json"
_AGAIN: Final = "delete it and run gemfi bench again, which writes it anew"
_AGAIN_OVERHEAD: Final = "delete it and run gemfi bench again, which measures it anew"

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

    `used` are the keys of the runs that something was made from so far, in that order, `lacking` is
    row -> how many of its runs have no arrays here, and of how many, where it was asked for.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        require_bench(self.folder)
        self.protocol = read_protocol(self.folder)
        self.grid = _read_grid(self.folder / GRID)
        self.used: dict[str, None] = {}
        self.lacking: dict[str, tuple[int, int]] = {}
        self.file = RecordFile(self.folder)
        planned = {cell.key for cell in self.grid}  # beside them, runs of an earlier grid may lie
        self.records = {key: run for key, run in self.file.read().items() if key in planned}
        self._arrays = lru_cache(maxsize=32)(self._read)

    def watched(self) -> Results:
        """The same results, read once, with lists of their own of what they are asked for."""
        twin = copy.copy(self)
        twin.used, twin.lacking = {}, {}
        return twin

    def use(self, run: RunRecord) -> None:
        """Remember that something was made from a run; `arrays` and `value` do so themselves."""
        self.used[run.key] = None

    # -- rows and runs ----------------------------------------------------------------------------

    def rows(self, group: str = MAIN) -> list[str]:
        """The rows of a group, in the order of the grid."""
        return list(dict.fromkeys(cell.row for cell in self.grid if cell.group == group))

    def method(self, row: str, group: str = MAIN) -> str:
        """The method of a row."""
        for cell in self.grid:
            if (cell.group, cell.row) == (group, row):
                return cell.method
        raise InputError(f"no row {row!r} in the group {group!r} of {self.folder}")

    def runs(self, row: str, group: str = MAIN) -> list[RunRecord]:
        """The runs of a row that are done, in the order of their seeds."""
        return list(self.by_seed(row, group).values())

    def by_seed(self, row: str, group: str = MAIN) -> dict[int, RunRecord]:
        """Seed -> the run of a row, where it is done."""
        return {
            cell.seed: self.records[cell.key]
            for cell in self.grid
            if (cell.group, cell.row) == (group, row) and cell.key in self.records
        }

    def value(self, row: str, pick: Pick, group: str = MAIN) -> Value | None:
        """Mean and deviation of a number over the runs of a row; None without any.

        The value says how many runs have no such number.
        """
        numbers = {run.key: pick(run) for run in self.runs(row, group)}
        known = {key: number for key, number in numbers.items() if number is not None}
        self.used |= dict.fromkeys(known)
        missing = len(numbers) - len(known)
        return Value.of(list(known.values()), list(known), missing) if known else None

    # -- sets -------------------------------------------------------------------------------------

    @property
    def ood_sets(self) -> list[str]:
        """OOD test sets: near ones, far ones, then the rest; those that are absent too.

        The rest are those that the runs have sought, as the sets of a task may have changed since;
        before the first run, those of the task today.
        """
        against = OOD_SETS.get(self.protocol.task, OodSets())
        rest = against.test
        runs = [run for run in self.records.values() if "ood" in run.numbers]
        if runs:
            sought = (name for run in runs for name in (*run.numbers["ood"], *run.absent))
            rest = tuple(name for name in sought if name not in against.validation)
        return list(dict.fromkeys([*self.protocol.near, *self.protocol.far, *rest]))

    @property
    def unseen_sets(self) -> list[str]:
        """Those of `ood_sets` that no pretrained network has seen: they can judge."""
        return [name for name in self.ood_sets if name not in self.protocol.seen]

    def title(self, name: str, *more: str) -> str:
        """A set by its own name with the part that was at hand, `SVHN (first 5,000)`.

        A set of the user's own is its title; `more` is said in the brackets as well.
        """
        shown, said = name, list(more)
        if name in DATA_SETS:
            entry = DATA_SETS[name]
            _, *parts = self._split_name(name).split(", ")
            here = [part for part in parts if part != SEEN]
            shown, said = entry.title, [entry.variant, *here, *more]
        words = ", ".join(filter(None, said))
        return f"{shown} ({words})" if words else shown

    def caveats(self, names: Iterable[str]) -> list[str]:
        """A sentence for each thing to know of the images of OOD sets; they stand in captions.

        Where the files come from, if not from their publisher, and what a set shares with the ID
        data.
        """
        said = []
        for name in names:
            split = self._split_name(name)
            if name not in DATA_SETS or not split:
                continue
            entry, title = DATA_SETS[name], self.title(name)
            label = split.removeprefix(f"{name}/").removesuffix(f", {SEEN}")
            forms = [form for part in entry.parts.values() for form in part.forms]
            facts = [form.provenance for form in forms if form.label == label]
            facts.append(entry.overlaps.get(self.protocol.task.removesuffix("-frozen"), ""))
            said += [f"{title}: {fact}." for fact in facts if fact]
        return said

    def _split_name(self, name: str) -> str:
        """The name of the split that a set was in the runs, `svhn/test, first 5,000`, or ""."""
        names = (run.data[name]["split"] for run in self.records.values() if name in run.data)
        return str(next(names, ""))

    @property
    def sizes(self) -> dict[str, int]:
        """Set -> how many inputs it has."""
        runs = self.records.values()
        return {name: facts["n"] for run in runs for name, facts in run.data.items()}

    def is_absent(self, name: str) -> bool:
        """Whether an OOD set was not at hand in any run; False while no run looked for it."""
        runs = [run for run in self.records.values() if "ood" in run.numbers or name in run.absent]
        return bool(runs) and not any(name in run.numbers.get("ood", {}) for run in runs)

    def lacks(self, name: str, runs: Sequence[RunRecord]) -> bool:
        """Whether an OOD set was not at hand in any run, or in none of these."""
        without = [name not in run.numbers.get("ood", {}) for run in runs]
        return self.is_absent(name) or (bool(without) and all(without))

    # -- arrays and costs -------------------------------------------------------------------------

    def arrays(self, run: RunRecord) -> Sets:
        """The arrays of a run: `["test"]["score/entropy"]` and so on; see `observation.py`."""
        self.use(run)
        return self._arrays(run.key)

    def runs_with_arrays(self, row: str, group: str = MAIN) -> list[RunRecord]:
        """The runs of a row whose arrays are here; `lacking` counts the others."""
        runs = self.runs(row, group)
        here = [run for run in runs if self.has_arrays(run)]
        if len(here) < len(runs):
            self.lacking[row] = len(runs) - len(here), len(runs)
        return here

    def has_arrays(self, run: RunRecord) -> bool:
        """Whether the arrays of a run are here; committed records go without."""
        return self.file.arrays(run.key).exists()

    @property
    def overhead(self) -> Mapping[str, Any] | None:
        """What training and inference cost, see `overhead.py`; None where it was not measured."""
        path = self.folder / OVERHEAD
        if not path.exists():
            return None
        measured = read_json(path, _AGAIN_OVERHEAD)
        rows = measured.get("rows", {}) if isinstance(measured, Mapping) else None
        if not isinstance(rows, Mapping) or not all(isinstance(e, Mapping) for e in rows.values()):
            raise CheckpointError(f"{path} holds no measured overhead; {_AGAIN_OVERHEAD}")
        return dict(measured)

    def _read(self, key: str) -> Sets:
        path = self.file.arrays(key)
        if not path.exists():
            raise InputError(
                f"the arrays of run {key} are not in {path.parent}; gemfi bench --arrays makes "
                "them again"
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
    return lambda run: _of_entry(run, run.numbers.get("ood", {}).get(name, {}), kind, metric)


def of_detector(name: str, detector: str, metric: str) -> Pick:
    """A number of an OOD test set by a detector, even where a score has the same name."""

    def pick(run: RunRecord) -> float | None:
        entry = run.numbers.get("ood", {}).get(name, {}).get("by_detector", {})
        value: float | None = entry.get(detector, {}).get(metric)
        return value

    return pick


def of_shift(severity: int | None, kind: str, metric: str) -> Pick:
    """A number of corrupted data, averaged over the types at a severity (None: all of them).

    A run that lacks it for one of the types has none: a mean over the others would hide that.
    `kind` is as in `of_set`, or `id` for a number of the classifier itself.
    """

    def pick(run: RunRecord) -> float | None:
        return _mean(
            _of_entry(run, entry, kind, metric)
            for name, entry in run.numbers.get("shift", {}).items()
            if severity is None or name.endswith(f"-{severity}")
        )

    return pick


def mean_of(picks: Sequence[Pick]) -> Pick:
    """The mean of several numbers of a run; None if one is not there."""
    return lambda run: _mean(pick(run) for pick in picks)


def _mean(values: Iterable[float | None]) -> float | None:
    known: list[float] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return sum(known) / len(known) if known else None


def _of_entry(run: RunRecord, entry: Mapping[str, Any], kind: str, metric: str) -> float | None:
    """A number that a set has in the record of a run; of the same name the score counts."""
    numbers = {"id": entry.get("id", {})} | entry.get("by_detector", {}) | entry.get("by_score", {})
    value: float | None = numbers.get(run.scores.get(kind, kind), {}).get(metric)
    return value


def array_name(run: RunRecord, kind: str, *, detector: bool = False) -> str:
    """Where the arrays of a run hold a score, a kind of uncertainty or a detector."""
    return f"detector/{kind}" if detector else f"score/{run.scores.get(kind, kind)}"


def data_title(name: str) -> str:
    """A task or a known set by its own name; of a path the last part."""
    return DATA_SETS[name].full_title if name in DATA_SETS else Path(name).name


# -- files ----------------------------------------------------------------------------------------


def require_bench(folder: Path) -> None:
    """Refuse a folder that no benchmark has written."""
    for name in (PROTOCOL, GRID):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder} is no folder of a benchmark: it has no {name}; give one that "
                "gemfi bench has written"
            )


def _read_grid(path: Path) -> list[Planned]:
    cells = read_json(path, _AGAIN)
    if not isinstance(cells, list):
        raise CheckpointError(f"{path} is no grid: it holds no list; {_AGAIN}")
    try:
        return [from_plain(Planned, cell, f"cell {at}") for at, cell in enumerate(cells)]
    except InputError as error:
        raise CheckpointError(f"{path} is no grid: {error}; {_AGAIN}") from error
