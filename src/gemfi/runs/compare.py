"""Several runs side by side: one line a run, and a mean where runs differ by their seed alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gemfi._config import differences
from gemfi._text import NUMBER, UNDEFINED, WIDTH, aligned, column_widths, percent_or_nats
from gemfi.detectors import DETECTORS
from gemfi.runs.folder import CLASSIFICATION, DETECTION, Run, TaskFacts
from gemfi.runs.spec import RunSpec
from gemfi.runs.summary import detection_table, set_title

SEEDS_FOR_DEVIATION: Final = 3

DETECTOR: Final = "detector "
"""Before the name of a detector, where numbers of scores and detectors are together."""

_KINDS: Final = ("epistemic", "aleatoric")
_COLUMNS: Final = 6  # detectors beside each other, so that lines fit the terminal
_LEADING: Final = ("", "method", "seed")
_FIRST_LINE: Final = [*_LEADING, "acc", *list(CLASSIFICATION.values())[1:]]

Key = tuple[str, str, str]
"""Set, score and metric; the first two are empty for the metrics of ID data."""


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        leading: number of the run in the list below the table (of a mean, those of its runs),
            method, and seed, or what the line is.
        single: whether it is a run, and not a mean.
        numbers: by set, score and metric.
    """

    leading: tuple[str, str, str]
    single: bool
    numbers: Mapping[Key, float]

    def cells(self, ood: str, kind: str, metrics: Sequence[str]) -> list[str]:
        """Some of the numbers, as text."""
        return [percent_or_nats(name, self.numbers.get((ood, kind, name))) for name in metrics]


def comparison(runs: Sequence[Run]) -> str:
    """One block per task and its test data, then the list of the runs.

    A run alone has its OOD sets in one short table: `every_score` has the rest.
    """
    tables = _grouped(dict(enumerate(runs, start=1)), _same_data)
    titles = [_first(table).spec.task for table in tables]
    blocks = [
        _task_block(task, table, several=titles.count(task) > 1, alone=len(runs) == 1)
        for task, table in zip(titles, tables, strict=True)
    ]
    return "\n\n".join([*blocks, "\n".join(_legend(runs))])


def means(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For runs that share everything but the seed: mean and sample deviation of each number."""
    return [
        {
            "task": _first(group).spec.task,
            "method": _first(group).spec.method,
            "seeds": [run.spec.train.seed for run in group.values()],
            "values": [
                {
                    "set": ood,
                    "score": kind,
                    "metric": metric,
                    "mean": mean if math.isfinite(mean) else None,
                    "sd": deviation if math.isfinite(deviation) else None,
                }
                for (ood, kind, metric), (mean, deviation) in _statistics(group).items()
            ],
        }
        for group in _repeats(dict(enumerate(runs, start=1)))
    ]


def all_numbers(runs: Sequence[Run]) -> dict[str, Any]:
    """Every number of the runs and of their means, as JSON values."""
    rows = [{"folder": str(r.folder), "spec": r.spec.to_plain(), **r.metrics()} for r in runs]
    return {"runs": rows, "means": means(runs)}


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, neighbours drawn together: `1-3,5`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


# -- which runs belong together --------------------------------------------------------------------


def _grouped(runs: Mapping[int, Run], alike: Callable[[Run, Run], bool]) -> list[dict[int, Run]]:
    """Runs by number, those together that are all alike."""
    groups: list[dict[int, Run]] = []
    for index, run in runs.items():
        for group in groups:
            if all(alike(run, other) for other in group.values()):
                group[index] = run
                break
        else:
            groups.append({index: run})
    return groups


def _same_data(one: Run, other: Run) -> bool:
    """Whether two runs learnt the same files and were judged by the same samples.

    An OOD set that only one of them met is no difference: the other has dashes there.
    """
    if (one.spec.task, one.spec.own) != (other.spec.task, other.spec.own):
        return False
    first, second = one.metrics()["test"], other.metrics()["test"]
    shared = first["ood"].keys() & second["ood"].keys()
    return first["id"]["checksum"] == second["id"]["checksum"] and all(
        first["ood"][name]["checksum"] == second["ood"][name]["checksum"] for name in shared
    )


def _repeats(runs: Mapping[int, Run]) -> list[dict[int, Run]]:
    """Runs that share data and everything but the seed, two or more of them, each seed once."""

    def unseeded(run: Run) -> tuple[RunSpec, TaskFacts]:
        return replace(run.spec, train=replace(run.spec.train, seed=0)), run.record.facts

    def alike(one: Run, other: Run) -> bool:
        return unseeded(one) == unseeded(other) and _same_data(one, other)

    groups = []
    for group in _grouped(runs, alike):
        by_seed: dict[int, int] = {}
        for index, run in group.items():
            by_seed.setdefault(run.spec.train.seed, index)
        if len(by_seed) > 1:
            groups.append({index: group[index] for index in by_seed.values()})
    return groups


def _first(group: Mapping[int, Run]) -> Run:
    return next(iter(group.values()))


# -- their numbers ---------------------------------------------------------------------------------


def _numbers(run: Run) -> dict[Key, float]:
    section = run.metrics()["test"]
    numbers = {("", "", name): section["id"][name] for name in CLASSIFICATION}
    for ood, entry in section["ood"].items():
        values = {kind: entry[kind] for kind in _KINDS}
        values |= {f"{DETECTOR}{name}": v for name, v in entry.get("by_detector", {}).items()}
        numbers |= {(ood, kind, name): values[kind][name] for kind in values for name in DETECTION}
    return {key: math.nan if value is None else value for key, value in numbers.items()}


def _statistics(group: Mapping[int, Run]) -> dict[Key, tuple[float, float]]:
    """Mean and sample deviation of the numbers that all of the runs have.

    The deviation is NaN below three seeds, or where a value is not defined.
    """
    first, *others = map(_numbers, group.values())
    found = {}
    for key in first:
        if all(key in other for other in others):
            values = [first[key], *(other[key] for other in others)]
            enough = len(values) >= SEEDS_FOR_DEVIATION and all(map(math.isfinite, values))
            deviation = statistics.stdev(values) if enough else math.nan
            found[key] = (statistics.fmean(values), deviation)
    return found


def _rows(runs: Mapping[int, Run]) -> list[Row]:
    """The runs, then the means of those that differ by their seed, with deviations if there are."""
    rows = [
        Row((str(index), run.spec.method, str(run.spec.train.seed)), True, _numbers(run))
        for index, run in runs.items()
    ]
    for group in _repeats(runs):
        numbers, count = _statistics(group), len(group)
        leading = (ranges(list(group)), _first(group).spec.method, f"mean of {count}")
        rows.append(Row(leading, False, {key: mean for key, (mean, _) in numbers.items()}))
        if count >= SEEDS_FOR_DEVIATION:
            spread = {key: deviation for key, (_, deviation) in numbers.items()}
            rows.append(Row(("", "", "± sd"), False, spread))
    return rows


# -- as text ---------------------------------------------------------------------------------------


def _task_block(task: str, runs: Mapping[int, Run], *, several: bool, alone: bool) -> str:
    """Runs on one task and test data: one wide table, or a table per OOD set.

    Args:
        task: its name.
        runs: by number.
        several: whether there are blocks of other test data of this task.
        alone: whether no other run is shown; then its OOD sets are one short table.
    """
    sections, rows = [run.metrics()["test"] for run in runs.values()], _rows(runs)
    sets: dict[str, Any] = {}
    for section in sections:
        sets |= {name: entry for name, entry in section["ood"].items() if name not in sets}
    inside = sections[0]["id"]
    title = f"{task}: test data {inside['split']}, n {inside['n']:,}"
    title += f", checksum {inside['checksum']}" if several else ""
    wide = _wide_table(rows, sets)
    if wide is not None:
        lines = [title, "", *wide]
    else:
        lines = [title, "", *_ruled(aligned(_id_cells(rows), left=3, least=NUMBER), rows)]
        if alone:
            lines += ["", f"Against unfamiliar data, by {sections[0]['scores']['epistemic']}"]
            lines += aligned(detection_table(sections[0]), left=2, indent="  ")
        else:
            lines += [line for ood in sets for line in ("", *_set_block(rows, ood, sets[ood]))]
    return "\n".join([*lines, *(_detector_blocks(rows, sets) if len(runs) > 1 else [])])


def _id_cells(rows: Sequence[Row]) -> list[list[str]]:
    metrics = list(CLASSIFICATION)
    return [_FIRST_LINE, *([*row.leading, *row.cells("", "", metrics)] for row in rows)]


def _wide_table(rows: Sequence[Row], sets: Mapping[str, Any]) -> list[str] | None:
    """Everything in one table, or None if it does not fit: at most two sets, and `WIDTH`."""
    if len(sets) > 2:
        return None
    shown = ("auroc", "aupr_id")
    columns = [["", "", *aligned(_id_cells(rows), left=3)]]
    for name, entry in sets.items():
        cells = [row.cells(name, "epistemic", shown) for row in rows]
        part = aligned([[DETECTION[metric] for metric in shown], *cells], left=0)
        columns.append([entry["split"], f"{entry['role']}, n {entry['n']:,}", *part])
    widths = [max(map(len, column)) for column in columns]
    if sum(widths) + 3 * len(sets) > WIDTH:
        return None
    lines = []
    for line in zip(*columns, strict=True):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        lines.append("   ".join(padded).rstrip())
    return [*(lines[:2] if sets else []), *_ruled(lines[2:], rows)]


def _set_block(rows: Sequence[Row], name: str, entry: Mapping[str, Any]) -> list[str]:
    """One OOD set: the epistemic and the aleatoric score."""
    cells = [[*_LEADING, *DETECTION.values(), *DETECTION.values()]]
    for row in rows:
        numbers = [cell for kind in _KINDS for cell in row.cells(name, kind, list(DETECTION))]
        cells.append([*row.leading, *numbers])
    widths = column_widths(cells, 3, NUMBER)
    first, span = sum(widths[:3]) + 2 * 3, sum(widths[3:6]) + 2 * 3
    over = " " * first + _KINDS[0].ljust(span) + _KINDS[1]
    return [set_title(entry), over, *_ruled(aligned(cells, left=3, least=NUMBER), rows)]


def _detector_blocks(rows: Sequence[Row], sets: Mapping[str, Any]) -> list[str]:
    """AUROC by detector, a column for each."""
    lines = []
    for ood, entry in sets.items():
        kinds = {kind for row in rows for name, kind, _ in row.numbers if name == ood}
        names = [name for name in DETECTORS if f"{DETECTOR}{name}" in kinds]
        for start in range(0, len(names), _COLUMNS):
            shown = names[start : start + _COLUMNS]
            cells = [[*_LEADING, *shown]]
            for row in rows:
                numbers = [row.cells(ood, f"{DETECTOR}{name}", ["auroc"])[0] for name in shown]
                cells.append([*row.leading, *numbers])
            table = aligned(cells, left=3, least=NUMBER)
            lines += ["", f"{set_title(entry)}: AUROC by detector", *_ruled(table, rows)]
    return lines


def _ruled(lines: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """A rule below the head, and one between the runs and their means."""
    rule = "─" * max(map(len, lines))
    runs = 1 + sum(row.single for row in rows)
    below = [rule, *lines[runs:]] if lines[runs:] else []
    return [lines[0], rule, *lines[1:runs], *below]


def _legend(runs: Sequence[Run]) -> list[str]:
    """Which line is which folder, and how runs of one method and task differ."""
    lines = []
    first: dict[tuple[str, str], tuple[int, RunSpec]] = {}
    width = len(str(len(runs)))
    for index, run in enumerate(runs, start=1):
        spec = run.spec
        before, base = first.setdefault((spec.task, spec.method), (index, spec))
        changes = [
            f"{name}={UNDEFINED if here is None else here}"
            for name, (_, here) in differences(base.to_plain(), spec.to_plain()).items()
            if name != "train.seed"
        ]
        lines.append(f"{index:<{width}}  {run.folder}")
        if changes:
            lines.append(f"{'':<{width}}  differs from {before}: {', '.join(changes)}")
    return lines
