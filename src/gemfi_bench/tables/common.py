"""What the tables share: the runs behind a row, its cells, and the notes below a table.

A cell says why it has no number: a set that is not at hand is "data absent", a row without runs
"not run". Nothing is left out silently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, get_args

from gemfi.methods import PRESETS
from gemfi.scores import score_label
from gemfi_bench.grid import ABLATION, FULL, MAIN
from gemfi_bench.protocol import SEEN
from gemfi_bench.record_file import RunRecord, Sets
from gemfi_bench.results import Pick, Results, array_name, data_title, of_detector, of_set
from gemfi_bench.statistics import SEEDS_NEEDED, Detection, bootstrap_ood
from gemfi_bench.style import method_label
from gemfi_bench.tabular import Cell, Column, Row, Table, Value, has_few_runs
from gemfi_bench.unavailable import Unavailable

NOT_RUN: Final = "not run"
DATA_ABSENT: Final = "data absent"
NO_ARRAYS: Final = "no arrays"
KINDS: Final = {"aleatoric": "Alea.", "epistemic": "Epis."}
"""Kind of uncertainty -> head of its column."""

ID_POSITIVE: Final = (
    "AUPR is average precision with ID as the positive class, ranked by minus the score, as the "
    "numbers of the paper were really computed; its text says OOD positive."
)
FEW_RUNS: Final = "The best numbers are marked only where they rest on as many runs as any row has."
RESAMPLES: Final = 200
"""Enough for the ends of an interval of 95 %, and a twentieth of a second for 10,000 inputs."""

INTERVALS: Final = (
    f"[low, high], of a row with one run: 95 % interval over its inputs, by {RESAMPLES} bootstrap "
    "resamples of ID and of OOD inputs. It says what the inputs decide, and not how another seed "
    "would do."
)
PAPER_SETTINGS: Final = "GEM-FI (paper's settings)"
_LISTED: Final = 6  # methods in a note; of more it says "all others"

Maker = Callable[[Results], Table]
"""What makes a table from the results of a bench."""


@dataclass(frozen=True)
class Source:
    """The runs behind a row of a table.

    Attributes:
        results: of the bench.
        name: as shown.
        row: of the grid.
        group: of the grid.
        section: of the table.
        ours: shaded, as the paper shades its own methods.
        score: the score, or the detector, that this row of the table is about; empty for none.
        detector: whether `score` names a post-hoc detector.
    """

    results: Results
    name: str
    row: str
    group: str = MAIN
    section: str = ""
    ours: bool = False
    score: str = ""
    detector: bool = False

    @property
    def method(self) -> str:
        """The method of the row."""
        return self.results.method(self.row, self.group)

    @property
    def runs(self) -> list[RunRecord]:
        """The runs that are done."""
        return self.results.runs(self.row, self.group)

    def used_run(self) -> RunRecord | None:
        """The first run, which the table then rests on; None where none is done."""
        for run in self.runs:
            self.results.use(run)
            return run
        return None

    def to_row(self, cells: Iterable[Cell]) -> Row:
        """A row of a table with these cells."""
        return Row(self.name, tuple(cells), self.method, self.ours, self.section)

    def number(self, pick: Pick) -> Cell:
        """A number of the runs, "not run", or None where they have no such number."""
        return self.results.value(self.row, pick, self.group) if self.runs else NOT_RUN

    def ood(self, name: str, kind: str, metric: str) -> Cell:
        """A number of an OOD set, with the interval that its inputs allow.

        A single run shows that interval, several show their deviation. Of several it is made for
        the main tables alone.

        Args:
            name: the set; the cell is "data absent" where it was not at hand.
            kind: `aleatoric`, `epistemic`, a score, or a detector if the row is of a detector.
            metric: `auroc`, `aupr_id`, `aupr_ood` or `fpr95`.
        """
        runs = self.runs
        if self.results.is_absent(name) or (runs and not any(is_here(run, name) for run in runs)):
            return DATA_ABSENT
        pick = (of_detector if self.detector else of_set)(name, kind, metric)
        cell = self.number(pick)
        if not isinstance(cell, Value) or cell.missing or (len(runs) > 1 and self.group != MAIN):
            return cell
        return replace(cell, interval=self._sampling_interval(name, kind, metric))

    def _sampling_interval(self, name: str, kind: str, metric: str) -> tuple[float, float] | None:
        """The bootstrap over the inputs, the same draws for all runs; None without their arrays."""
        known: dict[str, Detection] = {name: name for name in get_args(Detection)}
        if metric not in known or not all(map(self.results.has_arrays, self.runs)):
            return None
        pairs = []
        for run in self.runs:
            sets, array = self.results.arrays(run), array_name(run, kind, detector=self.detector)
            if any(array not in sets.get(part, {}) for part in ("test", name)):
                return None
            pairs.append((sets["test"][array], sets[name][array]))
        interval = bootstrap_ood(pairs, known[metric], RESAMPLES)
        return interval.low, interval.high


def is_here(run: RunRecord, name: str) -> bool:
    """Whether a run was evaluated on an OOD set."""
    return name in run.numbers.get("ood", {})


def setting(run: RunRecord | None, *path: str) -> Any:
    """A value of the configuration of a run, None where it has none of that name."""
    value: Any = run and run.spec
    for name in path:
        value = value.get(name) if hasattr(value, "get") else None
    return value


def short(number: float) -> str:
    """A setting in few digits: 0.03, 1e-8."""
    mantissa, letter, exponent = f"{number:.3g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if letter else mantissa


# -- whose runs -----------------------------------------------------------------------------------


def contestants(results: Results) -> list[Source]:
    """The rows of the main tables: baselines first, the GEM family last, as in the paper."""
    known = results.rows()  # where what is assembled from others comes last
    sources = []
    for contestant in results.protocol.contestants:
        row = contestant.name
        if row in known:
            method = results.method(row)
            name = method_label(method) if row == method else row
            sources.append(Source(results, name, row, ours=method in PRESETS))
    order = list(PRESETS)
    return sorted(sources, key=lambda source: order.index(source.method) + 1 if source.ours else 0)


def gem_sources(results: Results, *more: str) -> list[Source]:
    """The GEM methods of the main tables, then those with the paper's settings; none is shaded.

    Args:
        results: of the bench.
        more: rows of the ablation beside the full one, in front of it.
    """
    names = {
        "ablation-core": "GEM-CORE (paper's settings)",
        "ablation-mix": "GEM-MIX (paper's settings)",
        FULL: PAPER_SETTINGS,
    }
    known = results.rows(ABLATION)
    sources = [replace(source, ours=False) for source in contestants(results) if source.ours]
    sources += [Source(results, names[row], row, ABLATION) for row in (*more, FULL) if row in known]
    if not sources:
        raise Unavailable("the protocol has no method of the GEM family")
    return sources


def both_settings(results: Results, here: str, paper: str) -> list[Source]:
    """GEM-FI with the settings here and with the paper's, each in a section of its own name."""
    places = (("gem-fi", MAIN, here), (FULL, ABLATION, paper))
    sources = [
        Source(results, name, row, group, section=name)
        for row, group, name in places
        if row in results.rows(group)
    ]
    if not sources:
        raise Unavailable("the protocol has no GEM-FI")
    return sources


def planned(results: Results, group: str, why: str) -> list[str]:
    """The rows of a group of sweeps.

    Args:
        results: of the bench.
        group: of the grid.
        why: the setting of the protocol that plans them, for the reason where there are none.
    """
    rows = results.rows(group)
    if not rows:
        raise Unavailable(f"the protocol plans no runs for this table: {why} is not set")
    return rows


# -- columns with their cells ---------------------------------------------------------------------


class Field(NamedTuple):
    """A column of a table, and what makes its cell in each row."""

    column: Column
    cell: Callable[[Source], Cell]


def number_field(column: Column, pick: Pick) -> Field:
    """A column with a number of the runs."""
    return Field(column, lambda source: source.number(pick))


def ood_fields(
    results: Results,
    heads: Mapping[str, str],
    cell: Callable[[Source, str, str], Cell],
    *,
    marked: Sequence[str] | None = None,
) -> list[Field]:
    """Columns for each OOD set.

    Args:
        results: of the bench.
        heads: name of a number -> head of its column.
        cell: makes the cell from its row, the OOD set and the name of the number.
        marked: names whose best numbers are marked; None for all of them.
    """
    require_outside(results)
    return [
        Field(
            Column(head, pair_title(results, name), "high", marked=marked is None or key in marked),
            lambda source, name=name, key=key: cell(source, name, key),  # type: ignore[misc]
        )
        for name in results.ood_sets
        for key, head in heads.items()
    ]


def detection_fields(results: Results, metric: str) -> list[Field]:
    """For each OOD set a column a kind of uncertainty; none where the task has no OOD set."""
    if not results.ood_sets:
        return []
    return ood_fields(results, KINDS, lambda source, name, kind: source.ood(name, kind, metric))


def require_outside(results: Results) -> None:
    """Refuse a table about OOD data alone where the task has none."""
    if not results.ood_sets:
        raise Unavailable("the task has no OOD test sets")


def place(results: Results, name: str) -> str:
    """Whether a set is `near` or `far`, and whether it was seen; empty where nothing is said."""
    protocol = results.protocol
    said = {"near": protocol.near, "far": protocol.far, SEEN: protocol.seen}
    return ", ".join(words for words, names in said.items() if name in names)


def set_title(results: Results, name: str) -> str:
    """A set with what the protocol says of it, such as `SVHN (first 5,000, far)`."""
    return results.title(name, place(results, name))


def pair_title(results: Results, name: str) -> str:
    """The ID set and an OOD set as the paper writes them, `MNIST → KMNIST (near)`."""
    return f"{data_title(results.protocol.task)} → {set_title(results, name)}"


# -- numbers from the arrays ----------------------------------------------------------------------


def require_arrays(results: Results, sources: Sequence[Source]) -> None:
    """Refuse a table whose runs are done, but none of them with its arrays at hand."""
    runs = [run for source in sources for run in source.runs]
    if runs and not any(results.has_arrays(run) for run in runs):
        raise Unavailable(
            "the arrays of these runs are not here, which committed records go without; "
            "gemfi bench --arrays makes them again"
        )


class Measured:
    """Numbers that the records do not hold: each run's, from the arrays that it kept.

    Args:
        source: whose runs; each file is read once.
        measure: named numbers of a run; NaN for what the run does not define.

    Attributes:
        numbers: name -> key of a run -> number, of the runs whose arrays are here.
    """

    def __init__(self, source: Source, measure: Callable[[Sets], Mapping[str, float]]) -> None:
        results = source.results
        self.runs = source.runs
        here = [run for run in self.runs if results.has_arrays(run)]
        self.here = len(here)
        self.numbers: dict[str, dict[str, float]] = {}
        for run in here:
            for name, value in measure(results.arrays(run)).items():
                by_run = self.numbers.setdefault(name, {})
                if not math.isnan(value):
                    by_run[run.key] = value

    def cell(self, name: str) -> Cell:
        """Mean and deviation, with how many runs lack the number, or arrays; None if all do."""
        if not self.runs:
            return NOT_RUN
        if not self.here:
            return NO_ARRAYS
        values = self.numbers.get(name)
        if not values:
            return None
        cell = Value.of(list(values.values()), list(values), self.here - len(values))
        return replace(cell, unseen=len(self.runs) - self.here)


# -- the table ------------------------------------------------------------------------------------


def make_table(
    results: Results,
    label: str,
    title: str,
    sources: Sequence[Source],
    fields: Sequence[Field],
    notes: Sequence[str] = (),
    *,
    stub: str = "Method",
    inside: bool = False,
) -> Table:
    """A row for each source, a column for each field, and the notes.

    Args:
        results: of the bench.
        label: of the paper.
        title: of the table.
        sources: the rows.
        fields: the columns.
        notes: conventions, and what differs from the paper; those of every table follow them.
        stub: head of the first column.
        inside: whether it is about ID data alone.
    """
    columns = [field.column for field in fields]
    rows = [source.to_row(field.cell(source) for field in fields) for source in sources]
    return with_notes(
        results, label, title, columns, rows, notes, sources=sources, stub=stub, inside=inside
    )


def with_notes(
    results: Results,
    label: str,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    notes: Sequence[str],
    *,
    sources: Sequence[Source],
    stub: str = "Method",
    inside: bool = False,
) -> Table:
    """A table of rows that are no sources, with its own notes and those that every table has."""
    names = [] if inside else results.ood_sets
    cells = [cell for row in rows for cell in row.cells if isinstance(cell, Value)]
    texts = [
        *notes,
        INTERVALS if any(cell.interval and cell.std is None for cell in cells) else "",
        _sizes(results, names),
        *results.caveats(names),
        *results.protocol.notes,
        _progress(results, sources),
        _indicative(rows),
    ]
    kept = tuple(text for text in texts if text)
    table = Table(label, title, tuple(columns), tuple(rows), stub, kept)
    return replace(table, notes=(*kept, FEW_RUNS)) if has_few_runs(table) else table


def _sizes(results: Results, names: Sequence[str]) -> str:
    """How many inputs the test data and these OOD sets have."""
    sizes = results.sizes
    if "test" not in sizes:
        return ""
    others = [f", {sizes[name]:,} {data_title(name)}" for name in names if name in sizes]
    return f"n: {sizes['test']:,} ID test{''.join(others)}."


def _progress(results: Results, sources: Sequence[Source]) -> str:
    """How many of the runs are done, where it is not all of them."""
    wanted = {(source.group, source.row) for source in sources}
    keys = {cell.key for cell in results.grid if (cell.group, cell.row) in wanted}
    done = len(keys & results.records.keys())
    return "" if done == len(keys) else f"So far {done} of {len(keys)} runs are done."


def _indicative(rows: Sequence[Row]) -> str:
    """Which rows rest on too few seeds to be relied on."""
    few, enough = [], 0
    for row in rows:
        counts = [cell.n for cell in row.cells if isinstance(cell, Value)]
        if counts and max(counts) < SEEDS_NEEDED:
            few.append(f"{row.section}: {row.name}" if row.section else row.name)
        else:
            enough += bool(counts)
    if not few:
        return ""
    text = f"Indicative: fewer than {SEEDS_NEEDED} seeds"
    return f"{text} for {', '.join(few)}." if enough else f"{text}."


def score_names(sources: Sequence[Source]) -> str:
    """Which score stands for each kind of uncertainty, by the runs themselves."""
    texts = []
    for kind, head in KINDS.items():
        names: dict[str, list[str]] = {}  # by score
        for source in sources:
            for run in source.runs[:1]:
                names.setdefault(run.scores[kind], []).append(source.name)
        if names:
            texts.append(f"{head}: {_score_text(names)}.")
    return " ".join(texts)


def _score_text(by_score: dict[str, list[str]]) -> str:
    """The scores with whose they are; the most frequent one, if it is of many, with no list."""
    if len(by_score) == 1:
        return score_label(next(iter(by_score)))
    usual = max(by_score, key=lambda score: len(by_score[score]))
    many = len(by_score[usual]) > _LISTED
    texts = [
        f"{score_label(score)} ({', '.join(names)})"
        for score, names in by_score.items()
        if not (many and score == usual)
    ]
    texts += [f"{score_label(usual)} (all others)"] if many else []
    return ", ".join(texts)
