"""What the tables share: whose runs a row shows, its cells, and the notes below it.

A cell says why it has no number: a set that is not at hand is "data absent", a row without runs
"not run". Nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gemfi.methods import PRESETS
from gemfi.scores import score_label
from gemfi_bench.grid import ABLATION, FULL, MAIN
from gemfi_bench.protocol import SEEN
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Pick, Results, data_title, of_detector, of_set
from gemfi_bench.statistics import SEEDS_NEEDED
from gemfi_bench.style import method_label
from gemfi_bench.table import Cell, Column, Row, Table, Value, has_few_runs
from gemfi_bench.tables.intervals import NOTE, sampling_interval
from gemfi_bench.unavailable import Unavailable

NOT_RUN: Final = "not run"
DATA_ABSENT: Final = "data absent"
KINDS: Final = {"aleatoric": "Alea.", "epistemic": "Epis."}
"""Kind of uncertainty -> head of its column."""

ID_POSITIVE: Final = (
    "AUPR is average precision with ID as the positive class, ranked by minus the score, as the "
    "numbers of the paper were really computed; its text says OOD positive."
)
FEW_RUNS: Final = "The best numbers are marked only where they rest on as many runs as any row has."
_LISTED: Final = 6  # methods in a note; of more it says "all others"


@dataclass(frozen=True)
class Origin:
    """The runs behind a row of a table.

    Attributes:
        name: as shown.
        row: of the grid.
        group: of the grid.
        section: of the table.
        ours: shaded, as the paper shades its own methods.
    """

    name: str
    row: str
    group: str = MAIN
    section: str = ""
    ours: bool = False

    def runs(self, results: Results) -> list[RunRecord]:
        """Those that are done."""
        return results.runs(self.row, self.group)

    def to_row(self, results: Results, cells: Iterable[Cell]) -> Row:
        """A row of a table with these cells."""
        method = results.method(self.row, self.group)
        return Row(self.name, tuple(cells), method, self.ours, self.section)


# -- whose runs -----------------------------------------------------------------------------------


def contestants(results: Results) -> list[Origin]:
    """The rows of the main tables: baselines first, the GEM family last, as in the paper."""
    found = []
    known = results.rows()  # where what is assembled from others comes last
    for row in [each.name for each in results.protocol.contestants if each.name in known]:
        method = results.method(row)
        name = method_label(method) if row == method else row
        found.append(Origin(name, row, ours=method in PRESETS))
    gem = [each for each in found if each.ours]
    gem.sort(key=lambda each: list(PRESETS).index(results.method(each.row)))
    return [each for each in found if not each.ours] + gem


def gem_sources(results: Results, *more: str) -> list[Origin]:
    """The GEM methods of the main tables, then those with the paper's settings.

    Args:
        results: of the bench.
        more: rows of the ablation beside the full one, in front of it.
    """
    found = [each for each in contestants(results) if each.ours]
    names = {
        "ablation-core": "GEM-CORE (paper's settings)",
        "ablation-mix": "GEM-MIX (paper's settings)",
        FULL: "GEM-FI (paper's settings)",
    }
    known = results.rows(ABLATION)
    found += [Origin(names[row], row, ABLATION) for row in (*more, FULL) if row in known]
    if not found:
        raise Unavailable("the protocol has no method of the GEM family")
    return found


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


# -- sets -----------------------------------------------------------------------------------------


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


# -- cells ----------------------------------------------------------------------------------------


def number(results: Results, source: Origin, pick: Pick) -> Cell:
    """A number of the runs of a row, "not run", or None where they have no such number."""
    if not source.runs(results):
        return NOT_RUN
    return results.value(source.row, pick, source.group)


def of_ood(
    results: Results,
    source: Origin,
    name: str,
    kind: str,
    metric: str,
    *,
    detector: bool = False,
) -> Cell:
    """As `number`, of an OOD set, with the interval that its inputs allow.

    Only a single run shows that interval, others show their deviation; of them it is made for the
    main tables alone.

    Args:
        results: of the bench.
        source: whose runs.
        name: of the set; "data absent" where it was not at hand.
        kind: of uncertainty, or the name of a score or a detector.
        metric: of the set.
        detector: whether `kind` is a detector's name.
    """
    runs = source.runs(results)
    if results.is_absent(name) or (runs and not any(is_here(run, name) for run in runs)):
        return DATA_ABSENT
    pick = of_detector(name, kind, metric) if detector else of_set(name, kind, metric)
    cell = number(results, source, pick)
    if not isinstance(cell, Value) or cell.missing or (len(runs) > 1 and source.group != MAIN):
        return cell
    interval = sampling_interval(results, runs, name, kind, metric, detector=detector)
    return replace(cell, interval=interval)


def is_here(run: RunRecord, name: str) -> bool:
    """Whether a run was evaluated on an OOD set."""
    return name in run.numbers.get("ood", {})


def detection_columns(results: Results, *kinds: str) -> list[Column]:
    """For each OOD set a column a kind of uncertainty; both kinds by default."""
    return [
        Column(KINDS[kind], pair_title(results, name), "high")
        for name in results.ood_sets
        for kind in kinds or KINDS
    ]


def detection_cells(results: Results, source: Origin, metric: str, *kinds: str) -> list[Cell]:
    """The cells of `detection_columns`."""
    return [
        of_ood(results, source, name, kind, metric)
        for name in results.ood_sets
        for kind in kinds or KINDS
    ]


# -- notes ----------------------------------------------------------------------------------------


def make_table(
    results: Results,
    label: str,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    notes: Sequence[str] = (),
    *,
    sources: Sequence[Origin],
    stub: str = "Method",
    inside: bool = False,
) -> Table:
    """A table with its own notes, then those that every table has.

    Args:
        results: of the bench.
        label: of the paper.
        title: of the table.
        columns: of the table.
        rows: of the table.
        notes: conventions, and what differs from the paper.
        sources: whose runs it shows.
        stub: head of the first column.
        inside: whether it is about ID data alone.
    """
    names = [] if inside else results.ood_sets
    standing = [
        sizes(results, names),
        *results.caveats(names),
        *results.protocol.notes,
        progress(results, sources),
    ]
    texts = [*notes, _intervals(rows), *standing, indicative(rows)]
    table = Table(
        label, title, tuple(columns), tuple(rows), stub, tuple(text for text in texts if text)
    )
    return replace(table, notes=(*table.notes, FEW_RUNS)) if has_few_runs(table) else table


def _intervals(rows: Sequence[Row]) -> str:
    """What the intervals are, if a cell shows one."""
    cells = [cell for row in rows for cell in row.cells if isinstance(cell, Value)]
    return NOTE if any(cell.interval and cell.std is None for cell in cells) else ""


def sizes(results: Results, names: Sequence[str]) -> str:
    """How many inputs the test data and these OOD sets have."""
    found = results.sizes
    if "test" not in found:
        return ""
    others = [f"{found[name]:,} {data_title(name)}" for name in names if name in found]
    return f"n: {found['test']:,} ID test" + "".join(f", {each}" for each in others) + "."


def progress(results: Results, sources: Sequence[Origin]) -> str:
    """How many of the runs are done, where it is not all of them."""
    wanted = {(each.group, each.row) for each in sources}
    keys = {each.key for each in results.grid if (each.group, each.row) in wanted}
    done = len(keys & results.records.keys())
    return "" if done == len(keys) else f"So far {done} of {len(keys)} runs are done."


def indicative(rows: Sequence[Row]) -> str:
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


def score_names(results: Results, sources: Sequence[Origin]) -> str:
    """Which score stands for each kind of uncertainty, by the runs themselves."""
    found: dict[str, dict[str, list[str]]] = {kind: {} for kind in KINDS}
    for source in sources:
        for run in source.runs(results)[:1]:
            for kind, by_score in found.items():
                by_score.setdefault(run.scores[kind], []).append(source.name)
    texts = [_score_text(KINDS[kind], by_score) for kind, by_score in found.items() if by_score]
    return " ".join(texts)


def _score_text(head: str, by_score: dict[str, list[str]]) -> str:
    """The scores with whose they are; the most frequent one, if it is of many, with no list."""
    if len(by_score) == 1:
        return f"{head}: {score_label(next(iter(by_score)))}."
    usual = max(by_score, key=lambda score: len(by_score[score]))
    many = len(by_score[usual]) > _LISTED
    texts = [
        f"{score_label(score)} ({', '.join(names)})"
        for score, names in by_score.items()
        if not (many and score == usual)
    ]
    texts += [f"{score_label(usual)} (all others)"] if many else []
    return f"{head}: {', '.join(texts)}."


def setting(run: RunRecord, *path: str) -> Any:
    """A value of the configuration of a run, None where it has none of that name."""
    value: Any = run.spec
    for name in path:
        value = value.get(name) if hasattr(value, "get") else None
    return value


Maker = Callable[[Results], Table]
"""What makes a table from the results of a bench."""


def short(number: float) -> str:
    """A setting in few digits: 0.03, 1e-8."""
    mantissa, letter, exponent = f"{number:.3g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if letter else mantissa
