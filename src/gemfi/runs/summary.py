"""A run in words and numbers: on the terminal after training, and as `summary.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemfi.runs.folder import FILES, Record, Run
from gemfi.runs.sections import CLASSIFICATION, DETECTION
from gemfi.runs.text import (
    CONVENTIONS,
    aligned,
    duration,
    markdown_table,
    number,
    percent_or_nats,
)

Table = list[list[str]]


def headline(record: Record) -> str:
    """Task, method, backbone and length of a run, in one line."""
    spec, facts = record.spec, record.facts
    return (
        f"{spec.method} on {spec.task}: {spec.backbone}, {_count(facts.train.n, 'sample')} of "
        f"{facts.num_classes} classes, {_count(spec.train.epochs, 'epoch')}, "
        f"{_count(record.steps, 'step')}, seed {spec.train.seed}"
    )


def terminal(run: Run, metrics: Mapping[str, Any]) -> str:
    """What `gemfi train` prints at the end: training and validation."""
    section = metrics["validation"]
    lines = [_trained(run), "", f"Validation data, {_count(section['id']['n'], 'sample')}"]
    lines += aligned(_classification(section), left=0, indent="  ")
    if section["ood"]:
        lines += ["", f"Against unfamiliar data for tuning, by {section['scores']['epistemic']}"]
        lines += aligned(_detection(section), left=2, indent="  ")
    if section["absent"]:
        lines += ["", f"OOD sets that are not here: {', '.join(section['absent'])}"]
    lines += ["", CONVENTIONS]
    return "\n".join(lines)


def every_score(section: Mapping[str, Any]) -> str:
    """For each OOD set, every score that the method's belief allows."""
    blocks = []
    for entry in section["ood"].values():
        lines = [set_title(entry), *aligned(_by_score(entry, section["scores"]), indent="  ")]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def set_title(entry: Mapping[str, Any]) -> str:
    """The real name of an OOD set, its role and its size."""
    return f"{entry['split']} ({entry['role']}, n {entry['n']:,})"


def markdown(run: Run, metrics: Mapping[str, Any]) -> str:
    """The contents of `summary.md`."""
    spec = run.spec
    lines = [f"# {spec.method} on {spec.task}", "", f"{headline(run.record)}.", "", _trained(run)]
    for name in ("validation", "test"):
        if name in metrics:
            lines += ["", *_markdown_section(name, metrics[name])]
    lines += ["", CONVENTIONS, "", f"Files: {', '.join(f'`{name}`' for name in FILES)}."]
    return "\n".join([*lines, ""])


def _markdown_section(name: str, section: Mapping[str, Any]) -> list[str]:
    inside = section["id"]
    lines = [f"## {name.capitalize()}: {inside['split']} (n {inside['n']:,})", ""]
    lines += markdown_table(_classification(section), left=0)
    if section["ood"]:
        lines += ["", f"By the epistemic score, `{section['scores']['epistemic']}`:", ""]
        lines += markdown_table(_detection(section), left=2)
    if section["absent"]:
        lines += ["", f"Not here, so not measured: {', '.join(section['absent'])}."]
    if name == "test":
        for entry in section["ood"].values():
            lines += ["", f"### {set_title(entry)}", ""]
            lines += markdown_table(_by_score(entry, section["scores"]))
    return lines


def _trained(run: Run) -> str:
    facts = run.training
    best = facts["best_epoch"]
    kept = "" if best is None else f", weights of epoch {best + 1} kept"
    done = f"{_count(facts['steps'], 'step')}, {duration(facts['seconds'])}{kept}"
    trained = f"Trained {facts['parameters']:,} parameters in {done}."
    return "\n".join([trained, *(f"Note: {note}." for note in facts["notes"])])


def _classification(section: Mapping[str, Any]) -> Table:
    values = [percent_or_nats(name, section["id"][name]) for name in CLASSIFICATION]
    return [list(CLASSIFICATION.values()), values]


def _detection(section: Mapping[str, Any]) -> Table:
    head = ["set", "role", "n", *DETECTION.values()]
    return [head, *(_detection_row(entry) for entry in section["ood"].values())]


def _detection_row(entry: Mapping[str, Any]) -> list[str]:
    values = detection_cells(entry["epistemic"])
    return [entry["split"], entry["role"], f"{entry['n']:,}", *values]


def _by_score(entry: Mapping[str, Any], named: Mapping[str, str]) -> Table:
    """Every score, the method's own two marked."""
    marks = {
        score: f" ({', '.join(kind for kind, own in named.items() if own == score)})"
        for score in named.values()
    }
    return [
        ["score", *DETECTION.values()],
        *(
            [score + marks.get(score, ""), *detection_cells(values)]
            for score, values in entry["by_score"].items()
        ),
    ]


def detection_cells(values: Mapping[str, Any]) -> Sequence[str]:
    """AUROC, AUPR (ID positive) and FPR95."""
    return [number(values[name], 2) for name in DETECTION]


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
