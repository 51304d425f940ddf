"""`gemfi evaluate`: one line a run, and a mean where runs differ by their seed alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import tyro

from gemfi._config import differences
from gemfi._files import write_json
from gemfi._text import NUMBER, UNDEFINED, aligned, conventions, percent_or_nats
from gemfi.cli.options import Device, Folder, check_target, shown_as
from gemfi.detectors import DETECTORS, detector_names
from gemfi.devices import place
from gemfi.errors import InputError
from gemfi.processes import process_group, together
from gemfi.runs import evaluate_run
from gemfi.runs.folder import CLASSIFICATION, DETECTION, Run, TaskFacts
from gemfi.runs.spec import RunSpec, task_of
from gemfi.runs.summary import against, every_score, set_title

SEEDS_FOR_DEVIATION: Final = 3

_KINDS: Final = ("epistemic", "aleatoric")
_DETECTOR: Final = "detector "  # before its name, where scores and detectors are together
_BESIDE: Final = 6  # columns of detectors that fit the terminal

Key = tuple[str, str, str]
"""Set, score and metric; the first two are empty for the metrics of ID data."""
Numbered = dict[int, Run]
"""Runs by their number in the list below the table."""


@dataclass(frozen=True)
class Row:
    """A line of the table: a run, or a mean of some."""

    leading: tuple[str, str, str]  # numbers of its runs, method, and seed or what the line is
    single: bool
    numbers: Mapping[Key, float]


def evaluate(
    runs: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("RUN ...")],
    json: Folder = None,
    detectors: Annotated[tuple[str, ...], shown_as("NAME ...")] = (),
    device: Device = "auto",
) -> None:
    """Evaluate finished runs on test data and on every OOD set that is here.

    One run is shown with every score; several are one table, a line a run, with the mean of runs
    that differ by their seed alone. The numbers go into each run's metrics.json and summary.md, in
    place of those of an earlier evaluation.

    Args:
        runs: folders, as gemfi train prints them.
        json: also write all the numbers to this file.
        detectors: post-hoc detectors to fit on the training and validation data and to compare:
            maxp, energy, odin, mahalanobis, lts, temperature, ddu, knn; or all. They share one
            pass over each set, but odin goes through the model twice more, and once backwards.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    if not runs:
        raise InputError("give the folder of a run, or of several")
    if json is not None:
        check_target("--json", Path(json))
    detector_names(detectors)  # unknown ones are refused before a run is opened
    opened = [Run.open(folder) for folder in runs]  # all of them, before the first is evaluated
    for run in opened:
        place(run.model, device)
    wanted = {(run.spec.task, run.spec.own): run.spec for run in opened}
    tasks = {data: task_of(spec) for data, spec in wanted.items()}
    with process_group(device) as is_first, together():
        evaluated = [
            evaluate_run(run, tasks[run.spec.task, run.spec.own], detectors, progress=None)
            for run in opened
        ]
    if not is_first:
        return
    sections = [run.metrics()["test"] for run in evaluated]
    blocks = [comparison(evaluated)]
    if len(evaluated) == 1:
        blocks.append(every_score(sections[0]))
    absent = [
        f"Left out, {task.name} against {ood}: {reason}"
        for task in tasks.values()
        for ood, reason in task.absent.items()
    ]
    blocks += ["\n".join(absent)] if absent else []
    print("\n\n".join([*filter(None, blocks), conventions(sections)]))
    if json is not None:
        write_json(Path(json), all_numbers(evaluated))
        print(f"Wrote {json}.")


def comparison(runs: Sequence[Run]) -> str:
    """One block per task and its test data, then the list of the runs.

    A run alone has its OOD sets in one short table: `every_score` has the rest.
    """
    groups = _grouped(dict(enumerate(runs, start=1)), _same_data)
    tasks = [_first(group).spec.task for group in groups]
    blocks = [
        _block(group, several=tasks.count(task) > 1, alone=len(runs) == 1)
        for task, group in zip(tasks, groups, strict=True)
    ]
    return "\n\n".join([*blocks, "\n".join(_legend(runs))])


def means(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For runs that share everything but the seed: mean and sample deviation of each number."""
    groups = _repeats(dict(enumerate(runs, start=1)))
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
        for group in groups
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


def _grouped(runs: Numbered, alike: Callable[[Run, Run], bool]) -> list[Numbered]:
    """Those together that are all alike."""
    groups: list[Numbered] = []
    for index, run in runs.items():
        fitting = (group for group in groups if all(alike(run, one) for one in group.values()))
        group = next(fitting, None)
        if group is None:
            groups.append({index: run})
        else:
            group[index] = run
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


def _repeats(runs: Numbered) -> list[Numbered]:
    """Runs that share data and everything but the seed, two or more of them, each seed once."""

    def unseeded(run: Run) -> tuple[RunSpec, TaskFacts]:
        return replace(run.spec, train=replace(run.spec.train, seed=0)), run.record.facts

    def alike(one: Run, other: Run) -> bool:
        return unseeded(one) == unseeded(other) and _same_data(one, other)

    repeats = []
    for group in _grouped(runs, alike):
        by_seed: dict[int, int] = {}
        for index, run in group.items():
            by_seed.setdefault(run.spec.train.seed, index)
        if len(by_seed) > 1:
            repeats.append({index: group[index] for index in by_seed.values()})
    return repeats


def _first(group: Numbered) -> Run:
    return next(iter(group.values()))


# -- their numbers ---------------------------------------------------------------------------------


def _numbers(run: Run) -> dict[Key, float]:
    section = run.metrics()["test"]
    numbers = {("", "", name): section["id"][name] for name in CLASSIFICATION}
    for ood, entry in section["ood"].items():
        values = {kind: entry[kind] for kind in _KINDS}
        values |= {f"{_DETECTOR}{name}": v for name, v in entry.get("by_detector", {}).items()}
        numbers |= {(ood, kind, name): values[kind][name] for kind in values for name in DETECTION}
    return {key: math.nan if value is None else value for key, value in numbers.items()}


def _statistics(group: Numbered) -> dict[Key, tuple[float, float]]:
    """Mean and sample deviation of the numbers that all of the runs have.

    The deviation is NaN below three seeds, or where a value is not defined.
    """
    rows = [_numbers(run) for run in group.values()]
    result = {}
    for key in rows[0]:
        values = [row[key] for row in rows if key in row]
        if len(values) == len(rows):
            enough = len(rows) >= SEEDS_FOR_DEVIATION and all(map(math.isfinite, values))
            deviation = statistics.stdev(values) if enough else math.nan
            result[key] = (statistics.fmean(values), deviation)
    return result


def _rows(runs: Numbered) -> list[Row]:
    """The runs, then the means of those that differ by their seed, with deviations if there are."""
    rows = [
        Row((str(index), run.spec.method, str(run.spec.train.seed)), True, _numbers(run))
        for index, run in runs.items()
    ]
    for group in _repeats(runs):
        numbers = _statistics(group)
        leading = (ranges(list(group)), _first(group).spec.method, f"mean of {len(group)}")
        rows.append(Row(leading, False, {key: mean for key, (mean, _) in numbers.items()}))
        if len(group) >= SEEDS_FOR_DEVIATION:
            spread = {key: deviation for key, (_, deviation) in numbers.items()}
            rows.append(Row(("", "", "± sd"), False, spread))
    return rows


# -- as text ---------------------------------------------------------------------------------------


def _block(runs: Numbered, *, several: bool, alone: bool) -> str:
    """Runs on one task and test data: a table of ID metrics, and one for each OOD set.

    Args:
        runs: by number.
        several: whether there are blocks of other test data of this task.
        alone: whether no other run is shown.
    """
    first, rows = _first(runs).metrics()["test"], _rows(runs)
    inside = first["id"]
    title = f"{_first(runs).spec.task}: test data {inside['split']}, n {inside['n']:,}"
    title += f", checksum {inside['checksum']}" if several else ""
    lines = [
        title,
        "",
        *_table(rows, {("", "", key): name for key, name in CLASSIFICATION.items()}),
    ]
    if alone and first["ood"]:
        return "\n".join([*lines, "", *against(first)])
    sets: dict[str, Any] = {}
    for run in runs.values():
        sets |= {ood: v for ood, v in run.metrics()["test"]["ood"].items() if ood not in sets}
    for ood, entry in sets.items():
        lines += ["", set_title(entry), *_scores(rows, ood)]
    for ood, entry in sets.items():
        lines += _detectors(rows, ood, set_title(entry))
    return "\n".join(lines)


def _table(rows: Sequence[Row], columns: Mapping[Key, str]) -> list[str]:
    """Some of the numbers, with a rule below the head and one between the runs and their means."""
    cells = [["", "method", "seed", *columns.values()]]
    for row in rows:
        numbers = [percent_or_nats(key[-1], row.numbers.get(key)) for key in columns]
        cells.append([*row.leading, *numbers])
    lines = aligned(cells, left=3, least=NUMBER)
    rule, runs = "─" * max(map(len, lines)), 1 + sum(row.single for row in rows)
    below = [rule, *lines[runs:]] if lines[runs:] else []
    return [lines[0], rule, *lines[1:runs], *below]


def _scores(rows: Sequence[Row], ood: str) -> list[str]:
    """One OOD set by the epistemic and by the aleatoric score."""
    columns = {(ood, kind, name): text for kind in _KINDS for name, text in DETECTION.items()}
    head, *lines = _table(rows, columns)
    start, second = head.index("AUROC"), head.rindex("AUROC")
    return [f"{'':<{start}}{_KINDS[0]:<{second - start}}{_KINDS[1]}", head, *lines]


def _detectors(rows: Sequence[Row], ood: str, title: str) -> list[str]:
    """AUROC by detector, a column for each."""
    kinds = {kind for row in rows for name, kind, _ in row.numbers if name == ood}
    names = [name for name in DETECTORS if f"{_DETECTOR}{name}" in kinds]
    lines = []
    for start in range(0, len(names), _BESIDE):
        shown = names[start : start + _BESIDE]
        table = _table(rows, {(ood, f"{_DETECTOR}{name}", "auroc"): name for name in shown})
        lines += ["", f"{title}: AUROC by detector", *table]
    return lines


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
