"""The health of a run: stored with its numbers, in its summary, and printed after training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemfi import diagnose
from gemfi._config import from_plain
from gemfi.data import Role, Split, Task, two_moons
from gemfi.diagnosis import Health, checks
from gemfi.errors import CheckpointError
from gemfi.runs import Run, train_run, work
from gemfi.runs.folder import METRICS, SUMMARY
from gemfi.runs.summary import terminal
from gemfi.training.run_dir import LOG

from .conftest import task_with, toy_spec


def stored(folder: Path) -> Health:
    return from_plain(Health, json.loads((folder / METRICS).read_text())["health"], "health")


def test_it_is_that_of_the_trained_model_on_validation_data(tmp_path: Path) -> None:
    run = train_run(toy_spec(epochs=6), tmp_path / "run", progress=False)
    log = [json.loads(line) for line in (tmp_path / "run" / LOG).read_text().splitlines()]
    history = [record for record in log if "loss" in record]
    moons = two_moons()
    expected = diagnose(run.model, moons.validation, moons.train, history=history)
    assert stored(tmp_path / "run") == expected
    assert (expected.method, expected.n) == ("gem-fi", len(moons.validation))
    assert "router oscillation" not in expected.skipped
    assert terminal(run, run.metrics()).endswith(expected.brief())


def test_the_summary_lists_every_finding(finished: Path) -> None:
    """After the evaluation, which writes the files again."""
    text, health = (finished / SUMMARY).read_text(), stored(finished)
    assert f"## {health.title()}\n" in text
    for each in health.findings:
        cells = f"{each.mark} {each.name} {each.shown} {each.limit} {each.meaning}".split()
        assert cells in [line.split() for line in text.splitlines()]
    for each in health.warnings:
        assert f"remedy: {each.remedy}\n" in text
    for name in health.skipped:
        assert name in text.split("Not measured\n")[1]


def test_a_warning_is_printed_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that no head can keep."""
    strict = replace(checks.CHECKS["head norm"], most=1e-3)
    monkeypatch.setitem(checks.CHECKS, "head norm", strict)
    run = train_run(toy_spec("edl", epochs=1), tmp_path / "run", progress=False)
    assert [each.name for each in stored(tmp_path / "run").warnings] == ["head norm"]
    lines = terminal(run, run.metrics()).splitlines()
    (row,) = (index for index, line in enumerate(lines) if line.startswith("  ! head norm"))
    assert lines[row - 1].endswith(": 1 warning")
    assert lines[row + 1] == "      remedy: more weight_decay"


def test_a_run_from_before_there_was_health_gets_it(copy: Path) -> None:
    numbers = json.loads((copy / METRICS).read_text())
    health = numbers.pop("health")
    (copy / METRICS).write_text(json.dumps(numbers))
    run = Run.open(copy)
    assert "Health" not in terminal(run, run.metrics())
    assert train_run(toy_spec(), copy, progress=False).metrics() == {**numbers, "health": health}


@pytest.mark.parametrize("spoilt", [3, {"method": "gem-fi"}, {"findings": [{}]}])
def test_a_spoilt_one_is_refused_in_words(copy: Path, spoilt: object) -> None:
    numbers = json.loads((copy / METRICS).read_text())
    (copy / METRICS).write_text(json.dumps({**numbers, "health": spoilt}))
    run = Run.open(copy)
    with pytest.raises(CheckpointError, match=r"metrics.json cannot be read: health.*run again"):
        terminal(run, run.metrics())


def test_the_reference_is_an_even_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of 1,000 samples every fourth, where 300 are allowed."""
    seen: list[Split] = []

    def watching(model: object, split: Split, reference: Split, **more: object) -> Health:
        seen.append(reference)
        return diagnose(model, split, reference, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "diagnose", watching)
    monkeypatch.setattr(work, "_REFERENCE", 300)
    task: Task = task_with()
    train_run(toy_spec(epochs=1), tmp_path / "run", progress=False, task=task)
    assert seen[0].role is Role.TRAIN
    assert seen[0].x.tolist() == task.train.x[::4].tolist()
