"""A run in words and numbers: on the terminal after training, and as `summary.md`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemfi._config import from_plain
from gemfi._text import aligned, conventions, duration, number, percent_or_nats
from gemfi.data import Task
from gemfi.diagnosis import Health
from gemfi.errors import CheckpointError, InputError
from gemfi.runs.folder import CLASSIFICATION, DETECTION, FILES, METRICS, Record, Run
from gemfi.scores import DIFFERENTIAL_ENTROPY_NOTE

Table = list[list[str]]


def headline(record: Record) -> str:
    """Task, method, backbone and length of a run, in one line."""
    spec, facts = record.spec, record.facts
    return (
        f"{spec.method} on {spec.task}: {spec.backbone}, {_count(facts.train.n, 'sample')} of "
        f"{facts.num_classes} classes, {_count(spec.train.epochs, 'epoch')}, "
        f"{_count(record.steps, 'step')}, seed {spec.train.seed}"
    )


def table_notes(task: Task, *, labelled: bool) -> list[str]:
    """Of a table: its label, which the user has named if `labelled`, and its other columns."""
    if task.columns is None:
        return []
    columns = task.columns.columns
    taken = "" if labelled else ", the last column; --label names another"
    categories = sum(column.kind == "category" for column in columns)
    lacking = sum(column.missing for column in columns)
    inputs = [f"{len(columns)} columns"]
    inputs += [f"{categories} of them categories"] if categories else []
    inputs += [f"{lacking} with missing cells"] if lacking else []
    return [f"Label: {task.label_name}{taken}.", f"Inputs: {', '.join(inputs)}."]


def terminal(run: Run, metrics: Mapping[str, Any]) -> str:
    """What `gemfi train` prints at the end: training and validation."""
    section = metrics["validation"]
    lines = [_trained(run), "", f"Validation data, {_count(section['id']['n'], 'sample')}"]
    lines += [*_section(section), "", conventions([section])]
    if "health" in metrics:
        lines += ["", _health(run, metrics).brief()]
    return "\n".join(lines)


def markdown(run: Run, metrics: Mapping[str, Any]) -> str:
    """The contents of `summary.md`: headings, and below them what a terminal shows."""
    spec = run.spec
    sections = {name: metrics[name] for name in ("validation", "test") if name in metrics}
    lines = [f"# {spec.method} on {spec.task}", "", f"{headline(run.record)}.", "", _trained(run)]
    for name, section in sections.items():
        title = f"{name.capitalize()}: {section['id']['split']} (n {section['id']['n']:,})"
        shown = "\n".join(_section(section))
        scores = every_score(section) if name == "test" else ""
        lines += _fenced(title, f"{shown}\n\n{scores}" if scores else shown)
        if name == "validation" and "health" in metrics:
            lines += _fenced(*_health(run, metrics).text().split("\n", 1))
    files = ", ".join(f"`{name}`" for name in FILES)
    return "\n".join([*lines, "", conventions(sections.values()), "", f"Files: {files}.", ""])


def _fenced(title: str, text: str) -> list[str]:
    return ["", f"## {title}", "", "```text", text, "```"]


def _section(section: Mapping[str, Any]) -> list[str]:
    values = [percent_or_nats(name, section["id"][name]) for name in CLASSIFICATION]
    lines = aligned([list(CLASSIFICATION.values()), values], left=0, indent="  ")
    if section["ood"]:
        lines += ["", *against(section)]
    if section["absent"]:
        lines += ["", f"OOD sets that are not here: {', '.join(section['absent'])}"]
    return lines


def against(section: Mapping[str, Any]) -> list[str]:
    """A row for each OOD set, by the epistemic score."""
    rows = [
        [entry["split"], entry["role"], f"{entry['n']:,}", *_cells(entry["epistemic"])]
        for entry in section["ood"].values()
    ]
    table = [["set", "role", "n", *DETECTION.values()], *rows]
    title = f"Against unfamiliar data, by {section['scores']['epistemic']}"
    return [title, *aligned(table, left=2, indent="  ")]


def every_score(section: Mapping[str, Any]) -> str:
    """For each OOD set, every score that the method's belief allows, and every detector."""
    blocks = []
    for entry in section["ood"].values():
        tables = ["\n".join(aligned(table, indent="  ")) for table in _score_tables(entry, section)]
        blocks.append(f"{set_title(entry)}\n" + "\n\n".join(tables))
    return "\n\n".join([*blocks, *_notes(section)])


def _health(run: Run, metrics: Mapping[str, Any]) -> Health:
    try:
        return from_plain(Health, metrics["health"], "health")
    except InputError as error:
        path = run.folder / METRICS
        raise CheckpointError(f"{path} cannot be read: {error}; delete it and run again") from error


def _trained(run: Run) -> str:
    facts = run.training
    best = facts["best_epoch"]
    kept = "" if best is None else f", weights of epoch {best + 1} kept"
    done = f"{_count(facts['steps'], 'step')}, {duration(facts['seconds'])}{kept}"
    notes = [f"Note: {note}." for note in facts["notes"]]
    return "\n".join([f"Trained {facts['parameters']:,} parameters in {done}.", *notes])


# -- tables ----------------------------------------------------------------------------------------


def set_title(entry: Mapping[str, Any]) -> str:
    """The real name of an OOD set, its role and its size."""
    return f"{entry['split']} ({entry['role']}, n {entry['n']:,})"


def _score_tables(entry: Mapping[str, Any], section: Mapping[str, Any]) -> list[Table]:
    """Every score of an OOD set, the method's own two marked; and every post-hoc detector."""
    scores: Table = [["score", *DETECTION.values()]]
    for score, values in entry["by_score"].items():
        kinds = ", ".join(kind for kind, own in section["scores"].items() if own == score)
        scores.append([f"{score} ({kinds})" if kinds else score, *_cells(values)])
    detectors = [[name, *_cells(values)] for name, values in entry.get("by_detector", {}).items()]
    return [scores, [["detector", *DETECTION.values()], *detectors]] if detectors else [scores]


def _cells(values: Mapping[str, Any]) -> list[str]:
    """AUROC, AUPR (ID positive) and FPR95."""
    return [number(values[name], 2) for name in DETECTION]


def _notes(section: Mapping[str, Any]) -> list[str]:
    """What is to be known of the scores of a section, and what fitting its detectors said."""
    shown = any("differential_entropy" in entry["by_score"] for entry in section["ood"].values())
    return [DIFFERENTIAL_ENTROPY_NOTE] * shown + [
        f"{name}: {note}."
        for name, entry in section.get("detectors", {}).items()
        for note in entry["notes"]
    ]


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
