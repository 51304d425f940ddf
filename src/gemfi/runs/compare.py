"""Several runs side by side: one line a run, and a mean where runs differ by their seed alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemfi._config import differences
from gemfi._text import NUMBER, UNDEFINED, WIDTH, aligned, column_widths, percent_or_nats
from gemfi.detectors import DETECTORS
from gemfi.runs.folder import CLASSIFICATION, DETECTION, Run, TaskFacts
from gemfi.runs.spec import RunSpec
from gemfi.runs.summary import detection_table, set_title

SEEDS_FOR_DEVIATION = 3

DETECTOR = "detector "
"""Before the name of a detector, where numbers of scores and detectors are together."""

_COLUMNS = 6  # detectors beside each other, so that lines fit the terminal

Cells = list[str]


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        label: number of the run in the list below the table; of a mean, those of its runs.
        method: its name.
        seed: of the run, or what the line is.
        single: whether it is a run, and not a mean.
        numbers: (set, kind, metric) -> value; the set and kind of ID metrics are empty.
    """

    label: str
    method: str
    seed: str
    single: bool
    numbers: Mapping[tuple[str, str, str], float]


def comparison(runs: Sequence[Run]) -> str:
    """One block for each task and its test data, then the list of the runs.

    A run alone has its OOD sets in one short table: `every_score` has the rest.
    """
    tables: list[dict[int, Run]] = []
    for index, run in enumerate(runs, start=1):
        fitting = (
            each for each in tables if all(_same_data(run, other) for other in each.values())
        )
        table = next(fitting, None)
        if table is None:
            tables.append({index: run})
        else:
            table[index] = run
    titles = [next(iter(members.values())).spec.task for members in tables]
    blocks = [
        _task_block(task, members, several=titles.count(task) > 1, alone=len(runs) == 1)
        for task, members in zip(titles, tables, strict=True)
    ]
    return "\n\n".join([*blocks, "\n".join(_legend(runs))])


def means(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For runs that share everything but the seed: mean and sample deviation of each number."""
    found = []
    for group in _groups(dict(enumerate(runs, start=1))):
        members = list(group.values())
        seeds = [run.spec.train.seed for run in members]
        values = [
            {
                "set": ood,
                "score": kind,
                "metric": metric,
                "mean": _finite(_mean(each)),
                "sd": _finite(_deviation(each)),
            }
            for (ood, kind, metric), each in _collected(members).items()
        ]
        spec = members[0].spec
        found.append({"task": spec.task, "method": spec.method, "seeds": seeds, "values": values})
    return found


def _same_data(one: Run, other: Run) -> bool:
    """Whether two runs learnt the same files and were judged by the same samples.

    An OOD set that only one of them met is no difference: the other has dashes there.
    """
    if (one.spec.task, one.spec.own) != (other.spec.task, other.spec.own):
        return False
    first, second = one.metrics()["test"], other.metrics()["test"]
    shared = first["ood"].keys() & second["ood"].keys()
    return first["id"]["checksum"] == second["id"]["checksum"] and all(
        first["ood"][key]["checksum"] == second["ood"][key]["checksum"] for key in shared
    )


def _task_block(task: str, runs: Mapping[int, Run], *, several: bool, alone: bool) -> str:
    sections = [run.metrics()["test"] for run in runs.values()]
    first = sections[0]["id"]
    sets = {key: entry for section in sections[::-1] for key, entry in section["ood"].items()}
    sets = {key: sets[key] for key in dict.fromkeys([*sections[0]["ood"], *sets])}
    rows = [_row(str(index), run) for index, run in runs.items()]
    rows += [row for group in _groups(runs) for row in _mean_rows(group)]
    title = f"{task}: test data {first['split']}, n {first['n']:,}"
    if several:
        title += f", checksum {first['checksum']}"
    whole = _wide(rows, sets)
    if whole is not None:
        return "\n".join([title, "", *whole, *_detector_blocks(rows, sets)])
    lines = [title, "", *_ruled(aligned([_head(), *map(_cells, rows)], left=3, least=NUMBER), rows)]
    if alone:
        lines += ["", f"Against unfamiliar data, by {sections[0]['scores']['epistemic']}"]
        return "\n".join([*lines, *aligned(detection_table(sections[0]), left=2, indent="  ")])
    for key, entry in sets.items():
        lines += ["", *_set_block(rows, key, entry)]
    return "\n".join([*lines, *_detector_blocks(rows, sets)])


def _wide(rows: Sequence[Row], sets: Mapping[str, Any]) -> list[str] | None:
    """Everything in one table, or None if it does not fit: at most two sets, and `WIDTH`."""
    if len(sets) > 2:
        return None
    shown = ("auroc", "aupr_id")
    parts = [aligned([_head(), *map(_cells, rows)], left=3)]
    titles = [("", "")]
    for key, entry in sets.items():
        cells = [_set_cells(row, key, "epistemic", shown) for row in rows]
        parts.append(aligned([[DETECTION[name] for name in shown], *cells], left=0))
        titles.append((entry["split"], f"{entry['role']}, n {entry['n']:,}"))
    columns = [[*title, *part] for title, part in zip(titles, parts, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    if sum(widths) + 3 * len(sets) > WIDTH:
        return None
    lines = []
    for line in zip(*columns, strict=True):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        lines.append("   ".join(padded).rstrip())
    titled = lines[:2] if sets else []
    return [*titled, *_ruled(lines[2:], rows)]


def _set_block(rows: Sequence[Row], key: str, entry: Mapping[str, Any]) -> list[str]:
    """One OOD set: the epistemic and the aleatoric score."""
    kinds = ("epistemic", "aleatoric")
    head = ["", "method", "seed", *(DETECTION[name] for _ in kinds for name in DETECTION)]
    body = [
        [
            *(row.label, row.method, row.seed),
            *(cell for kind in kinds for cell in _set_cells(row, key, kind, tuple(DETECTION))),
        ]
        for row in rows
    ]
    widths = column_widths([head, *body], 3, NUMBER)
    first = sum(widths[:3]) + 2 * 3
    span = sum(widths[3:6]) + 2 * 3
    over = " " * first + kinds[0].ljust(span) + kinds[1]
    return [set_title(entry), over, *_ruled(aligned([head, *body], left=3, least=NUMBER), rows)]


def _detector_blocks(rows: Sequence[Row], sets: Mapping[str, Any]) -> list[str]:
    """AUROC by detector, a column each, for several runs; one run is shown with every metric."""
    if sum(row.single for row in rows) < 2:
        return []
    lines = []
    for key, entry in sets.items():
        found = [kind for row in rows for each, kind, _ in row.numbers if each == key]
        names = [name for name in DETECTORS if f"{DETECTOR}{name}" in found]
        for start in range(0, len(names), _COLUMNS):
            shown = names[start : start + _COLUMNS]
            cells = [
                [row.label, row.method, row.seed]
                + [_set_cells(row, key, f"{DETECTOR}{name}", ("auroc",))[0] for name in shown]
                for row in rows
            ]
            table = aligned([["", "method", "seed", *shown], *cells], left=3, least=NUMBER)
            lines += ["", f"{set_title(entry)}: AUROC by detector", *_ruled(table, rows)]
    return lines


def _ruled(lines: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """A rule below the head, and one between the runs and their means."""
    rule = "─" * max(map(len, lines))
    runs = 1 + sum(row.single for row in rows)
    below = [rule, *lines[runs:]] if lines[runs:] else []
    return [lines[0], rule, *lines[1:runs], *below]


def _head() -> Cells:
    return ["", "method", "seed", "acc", *list(CLASSIFICATION.values())[1:]]


def _cells(row: Row) -> Cells:
    numbers = (percent_or_nats(name, row.numbers.get(("", "", name))) for name in CLASSIFICATION)
    return [row.label, row.method, row.seed, *numbers]


def _set_cells(row: Row, key: str, kind: str, shown: Sequence[str]) -> Cells:
    return [percent_or_nats(name, row.numbers.get((key, kind, name))) for name in shown]


def _row(label: str, run: Run) -> Row:
    return Row(label, run.spec.method, str(run.spec.train.seed), True, _numbers(run))


def _mean_rows(group: Mapping[int, Run]) -> list[Row]:
    """The mean, and from three seeds on the sample standard deviation."""
    members = list(group.values())
    collected = _collected(members)
    method = members[0].spec.method
    mean = {key: _mean(values) for key, values in collected.items()}
    rows = [Row(ranges(list(group)), method, f"mean of {len(members)}", False, mean)]
    if len(members) >= SEEDS_FOR_DEVIATION:
        spread = {key: _deviation(values) for key, values in collected.items()}
        rows.append(Row("", "", "± sd", False, spread))
    return rows


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, neighbours drawn together: `1-3,5`."""
    runs: list[list[int]] = []
    for each in numbers:
        if runs and runs[-1][-1] == each - 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _numbers(run: Run) -> dict[tuple[str, str, str], float]:
    section = run.metrics()["test"]
    found = {("", "", name): section["id"][name] for name in CLASSIFICATION}
    for key, entry in section["ood"].items():
        for kind in ("epistemic", "aleatoric"):
            found |= {(key, kind, name): entry[kind][name] for name in DETECTION}
        for detector, values in entry.get("by_detector", {}).items():
            found |= {(key, f"{DETECTOR}{detector}", name): values[name] for name in DETECTION}
    return {key: math.nan if value is None else value for key, value in found.items()}


def _groups(runs: Mapping[int, Run]) -> list[dict[int, Run]]:
    """Runs that share data and everything but the seed, two or more of them, each seed once."""
    groups: list[dict[int, Run]] = []
    for index, run in runs.items():
        group = next((each for each in groups if _alike(run, each.values())), None)
        if group is None:
            groups.append({index: run})
        elif all(run.spec.train.seed != other.spec.train.seed for other in group.values()):
            group[index] = run
    return [group for group in groups if len(group) > 1]


def _alike(run: Run, group: Iterable[Run]) -> bool:
    return all(_unseeded(run) == _unseeded(each) and _same_data(run, each) for each in group)


def _unseeded(run: Run) -> tuple[RunSpec, TaskFacts]:
    spec = run.spec
    return replace(spec, train=replace(spec.train, seed=0)), run.record.facts


def _collected(members: Sequence[Run]) -> dict[tuple[str, str, str], list[float]]:
    """The numbers that all of the runs have."""
    first, *others = (_numbers(run) for run in members)
    shared = (key for key in first if all(key in other for other in others))
    return {key: [first[key], *(other[key] for other in others)] for key in shared}


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _deviation(values: Sequence[float]) -> float:
    """Sample standard deviation; NaN below three seeds, or where a value is not defined."""
    if len(values) < SEEDS_FOR_DEVIATION or not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
