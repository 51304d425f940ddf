"""A run in words and numbers: on the terminal after training, and as `summary.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemfi._config import from_plain
from gemfi.diagnosis import Health
from gemfi.errors import CheckpointError, InputError
from gemfi.runs.folder import FILES, METRICS, Record, Run
from gemfi.runs.sections import CLASSIFICATION, DETECTION
from gemfi.runs.text import (
    aligned,
    conventions,
    duration,
    markdown_table,
    number,
    percent_or_nats,
)
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


def terminal(run: Run, metrics: Mapping[str, Any]) -> str:
    """What `gemfi train` prints at the end: training and validation."""
    section = metrics["validation"]
    lines = [_trained(run), "", f"Validation data, {_count(section['id']['n'], 'sample')}"]
    lines += aligned(_classification(section), left=0, indent="  ")
    if section["ood"]:
        lines += ["", f"Against unfamiliar data for tuning, by {section['scores']['epistemic']}"]
        lines += aligned(detection_table(section), left=2, indent="  ")
    if section["absent"]:
        lines += ["", f"OOD sets that are not here: {', '.join(section['absent'])}"]
    lines += ["", conventions([section])]
    if "health" in metrics:
        lines += ["", health_of(run, metrics).brief()]
    return "\n".join(lines)


def health_of(run: Run, metrics: Mapping[str, Any]) -> Health:
    """The health that `metrics.json` holds."""
    try:
        return from_plain(Health, metrics["health"], "health")
    except InputError as error:
        path = run.folder / METRICS
        raise CheckpointError(f"{path} cannot be read: {error}; delete it and run again") from error


def every_score(section: Mapping[str, Any]) -> str:
    """For each OOD set, every score that the method's belief allows, and every detector."""
    blocks = []
    for entry in section["ood"].values():
        lines = [set_title(entry), *aligned(_by_score(entry, section["scores"]), indent="  ")]
        if "by_detector" in entry:
            lines += ["", *aligned(_by_detector(entry), indent="  ")]
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, *score_notes(section), *detector_notes(section)])


def score_notes(section: Mapping[str, Any]) -> list[str]:
    """What is to be known of the scores of a section."""
    shown = any("differential_entropy" in each["by_score"] for each in section["ood"].values())
    return [DIFFERENTIAL_ENTROPY_NOTE] if shown else []


def detector_notes(section: Mapping[str, Any]) -> list[str]:
    """What fitting the detectors of a section said."""
    return [
        f"{name}: {note}."
        for name, entry in section.get("detectors", {}).items()
        for note in entry["notes"]
    ]


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
        if name == "validation" and "health" in metrics:
            lines += ["", *_markdown_health(health_of(run, metrics))]
    sections = [metrics[name] for name in ("validation", "test") if name in metrics]
    lines += ["", conventions(sections), "", f"Files: {', '.join(f'`{name}`' for name in FILES)}."]
    return "\n".join([*lines, ""])


def _markdown_section(name: str, section: Mapping[str, Any]) -> list[str]:
    inside = section["id"]
    lines = [f"## {name.capitalize()}: {inside['split']} (n {inside['n']:,})", ""]
    lines += markdown_table(_classification(section), left=0)
    if section["ood"]:
        lines += ["", f"By the epistemic score, `{section['scores']['epistemic']}`:", ""]
        lines += markdown_table(detection_table(section), left=2)
    if section["absent"]:
        lines += ["", f"Not here, so not measured: {', '.join(section['absent'])}."]
    if name == "test":
        for entry in section["ood"].values():
            lines += ["", f"### {set_title(entry)}", ""]
            lines += markdown_table(_by_score(entry, section["scores"]))
            if "by_detector" in entry:
                lines += ["", *markdown_table(_by_detector(entry))]
        for note in (*score_notes(section), *detector_notes(section)):
            lines += ["", note]
    return lines


def _markdown_health(health: Health) -> list[str]:
    lines = [f"## {health.title()}", ""]
    head = ["", "finding", "value", "limit", "meaning"]
    body = (
        [e.mark, e.name, e.shown, e.limit, e.meaning.replace("|", "\\|")] for e in health.findings
    )
    lines += markdown_table([head, *body], left=5)
    for each in health.warnings:
        lines += ["", f"Remedy for {each.name}: {each.remedy}."]
    if health.skipped:
        told = "; ".join(f"{', '.join(names)} ({why})" for why, names in health.reasons().items())
        lines += ["", f"Not measured: {told}."]
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


def detection_table(section: Mapping[str, Any]) -> Table:
    """A row for each OOD set, by the epistemic score."""
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


def _by_detector(entry: Mapping[str, Any]) -> Table:
    """Every post-hoc detector."""
    found = entry["by_detector"].items()
    body = ([name, *detection_cells(values)] for name, values in found)
    return [["detector", *DETECTION.values()], *body]


def detection_cells(values: Mapping[str, Any]) -> Sequence[str]:
    """AUROC, AUPR (ID positive) and FPR95."""
    return [number(values[name], 2) for name in DETECTION]


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
