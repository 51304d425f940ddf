"""What the tables share: the runs behind a row, its cells, and the notes below a table.

A cell says why it has no number: a set that is not at hand is "data absent", a row without runs
"not run". Nothing is left out silently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
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
from gemfi_bench.words import one_line, read_words

NOT_RUN: Final = "not run"
DATA_ABSENT: Final = "data absent"
NO_ARRAYS: Final = "no arrays"
KINDS: Final = {"aleatoric": "Alea.", "epistemic": "Epis."}
"""Kind of uncertainty -> head of its column."""

RESAMPLES: Final = 200
"""Enough for the ends of an interval of 95 %, and a twentieth of a second for 10,000 inputs."""

WORDS: Final = read_words("tables")
_SHARED: Final = {
    name: one_line(text, resamples=RESAMPLES) for name, text in WORDS["shared"].items()
}
INTERVALS: Final = _SHARED["intervals"]
PAPER_SETTINGS: Final = "GEM-FI (paper's settings)"
_LISTED: Final = 6  # methods in a note; of more it says "all others"

Maker = Callable[[Results], Table]


@dataclass(frozen=True)
class Source:
    """The runs behind a row of a table."""

    results: Results
    name: str  # as shown
    row: str  # of the grid
    group: str = MAIN  # of the grid
    section: str = ""  # of the table
    ours: bool = False  # shaded, as the paper shades its own methods
    score: str = ""  # the score, detector or part of the data that the row is about
    detector: bool = False  # whether `score` names a post-hoc detector

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

    def number(self, pick: Pick) -> Cell:
        """A number of the runs, "not run", or None where they have no such number."""
        return self.results.value(self.row, pick, self.group) if self.runs else NOT_RUN

    def ood(self, name: str, kind: str, metric: str) -> Cell:
        """A number of an OOD set, as `of_set` picks it, with the interval that its inputs allow.

        A single run shows that interval, several show their deviation. Of several it is made for
        the main tables alone. If the row is of a detector, `kind` is its name.
        """
        runs = self.runs
        if self.results.lacks(name, runs):
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
    for row in (contestant.name for contestant in results.protocol.contestants):
        if row in known:
            method = results.method(row)
            name = method_label(method) if row == method else row
            sources.append(Source(results, name, row, ours=method in PRESETS))
    order = list(PRESETS)
    return sorted(sources, key=lambda source: order.index(source.method) + 1 if source.ours else 0)


def gem_sources(results: Results, *more: str) -> list[Source]:
    """The GEM methods of the main tables, then those with the paper's settings; none is shaded.

    `more` are rows of the ablation, in front of the full one.
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
    """The rows of a group of sweeps; `why` is the setting of the protocol that plans them."""
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
    """Columns for each OOD set: one for each number, by its name in `heads`.

    `cell` makes a cell from its row, the OOD set and the name of the number; the best are marked of
    the numbers named in `marked` alone, if it is given.
    """
    require_outside(results)
    inside = data_title(results.protocol.task)
    return [
        Field(
            Column(
                head,
                f"{inside} → {set_title(results, name)}",
                "high",
                marked=marked is None or key in marked,
            ),
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


def set_title(results: Results, name: str) -> str:
    """A set with what the protocol says of it, such as `SVHN (first 5,000, far)`."""
    protocol = results.protocol
    said = {"near": protocol.near, "far": protocol.far, SEEN: protocol.seen}
    return results.title(name, ", ".join(words for words, names in said.items() if name in names))


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

    `numbers` is name -> key of a run -> number, of the runs whose arrays are here; what a run does
    not define, NaN, is left out.
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


def worded_table(
    label: str,
    columns: Iterable[Column],
    rows: Iterable[Row],
    *more: str,
    values: Mapping[str, object] = MappingProxyType({}),
) -> Table:
    """A table with the title, the stub and the notes that `words.toml` has for it.

    `more` are further notes, `values` what stands in the braces; empty notes are left out.
    """
    words = WORDS[label]
    notes = [one_line(note, **_SHARED, **values) for note in words["notes"]]
    stub = words.get("stub", "Method")
    kept = tuple(filter(None, [*notes, *more]))
    return Table(label, words["title"], tuple(columns), tuple(rows), stub, kept)


def make_table(
    results: Results,
    label: str,
    sources: Sequence[Source],
    fields: Sequence[Field],
    notes: Sequence[str] = (),
    *,
    inside: bool = False,
    **values: object,
) -> Table:
    """A row for each source, a column for each field, and the notes.

    The notes are those of `words.toml`, whose braces `values` fill beside `scores`, then `notes`,
    then those of every table. `inside` is for a table about ID data alone.
    """
    rows = [
        Row(
            source.name,
            tuple(field.cell(source) for field in fields),
            source.method,
            source.ours,
            source.section,
        )
        for source in sources
    ]
    names = [] if inside else results.ood_sets
    cells = [cell for row in rows for cell in row.cells if isinstance(cell, Value)]
    has_intervals = any(cell.interval and cell.std is None for cell in cells)
    table = worded_table(
        label,
        [field.column for field in fields],
        rows,
        *notes,
        INTERVALS if has_intervals else "",
        _sizes(results, names),
        *results.caveats(names),
        *results.protocol.notes,
        _progress(results, sources),
        _indicative(rows),
        values={"scores": score_names(sources), **values},
    )
    if not has_few_runs(table):
        return table
    return replace(table, notes=(*table.notes, _SHARED["few_runs"]))


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
        by_score: dict[str, list[str]] = {}
        for source in sources:
            for run in source.runs[:1]:
                by_score.setdefault(run.scores[kind], []).append(source.name)
        if by_score:
            texts.append(f"{head}: {_score_text(by_score)}.")
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
    return ", ".join([*texts, *([f"{score_label(usual)} (all others)"] if many else [])])
