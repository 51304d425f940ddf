"""Run folders that are in use, are no runs, or hold files that were spoilt."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemfi.data import two_moons
from gemfi.data.normalisation import Normalisation
from gemfi.errors import CheckpointError, InputError
from gemfi.runs import Run, train_run, work
from gemfi.runs.folder import METRICS, MODEL, RECORD, SUMMARY, clear
from gemfi.training import fit
from gemfi.training.run_dir import CHECKPOINT, LOCK, LOG, lock_run_dir

from .conftest import (
    STEPS,
    assert_same_checkpoint,
    contents,
    edit,
    task_with,
    toy_spec,
)

# -- two processes and one folder ----------------------------------------------------------------


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_in_use_is_left_as_it_is(copy: Path, fresh: bool) -> None:
    before = contents(copy)
    with lock_run_dir(copy), pytest.raises(CheckpointError, match="another process is training in"):
        train_run(toy_spec(seed=1), copy, progress=False, fresh=fresh)
    assert contents(copy) == before


def test_the_lock_is_held_from_the_record_to_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, held = tmp_path / "run", []

    def looking(function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any, **options: Any) -> Any:
            with pytest.raises(CheckpointError, match="another process"), lock_run_dir(folder):
                pass
            held.append(function.__name__)
            return function(*arguments, **options)

        return inner

    for name in ("clear", "begin", "drop_orphans", "fit", "_write"):
        monkeypatch.setattr(work, name, looking(getattr(work, name)))
    train_run(toy_spec(epochs=1), folder, progress=False, fresh=True)
    assert held == ["clear", "begin", "drop_orphans", "fit", "_write"]
    with lock_run_dir(folder):  # and no longer
        pass


def test_fit_by_itself_locks_its_folder(tmp_path: Path) -> None:
    spec, moons = toy_spec(), two_moons()
    with (
        lock_run_dir(tmp_path),
        pytest.raises(CheckpointError, match="another process"),
    ):
        fit(spec.build(2, None), moons.train, config=spec.train, run_dir=tmp_path)


# -- folders that are not runs ------------------------------------------------------------------


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for action in (
        lambda: train_run(toy_spec(), tmp_path, progress=False),
        lambda: train_run(toy_spec(), tmp_path, progress=False, fresh=True),
        lambda: clear(tmp_path),
    ):
        with pytest.raises(InputError, match=r"not empty and holds no run \(it has thesis\.tex\)"):
            action()
    assert contents(tmp_path) == {"thesis.tex": b"mine"}


@pytest.mark.parametrize("name", [LOG, CHECKPOINT, MODEL, METRICS, SUMMARY])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_file_with_one_of_our_names_is_not_ours(tmp_path: Path, name: str, fresh: bool) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=rf"holds no run \(it has {name}\)"):
        train_run(toy_spec(), tmp_path, progress=False, fresh=fresh)
    assert contents(tmp_path) == {name: b"mine"}


def test_what_a_crash_left_is_ours(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    (tmp_path / f"{RECORD}.tmp").write_text("half")
    assert train_run(toy_spec(), tmp_path, progress=False).training["steps"] == STEPS


def test_fresh_in_a_folder_with_a_note(copy: Path) -> None:
    (copy / "note.txt").write_text("mine")
    run = train_run(toy_spec(seed=1), copy, progress=False, fresh=True)
    assert run.spec.train.seed == 1
    assert (copy / "note.txt").read_text() == "mine"


def test_clearing_deletes_the_files_of_a_run_and_nothing_else(copy: Path) -> None:
    (copy / "notes.txt").write_text("mine")
    (copy / f"{CHECKPOINT}.tmp").write_bytes(b"half")
    clear(copy)
    assert contents(copy) == {"notes.txt": b"mine", LOCK: b""}


def test_fresh_replaces_another_run(copy: Path, finished: Path) -> None:
    run = train_run(toy_spec(seed=1), copy, progress=False, fresh=True)
    assert run.spec.train.seed == 1
    assert "test" not in run.metrics()
    train_run(toy_spec(), copy, progress=False, fresh=True)
    assert_same_checkpoint(copy, finished)


def test_fresh_does_not_delete_a_run_for_a_spec_that_cannot_run(copy: Path) -> None:
    before = contents(copy)
    spec = replace(toy_spec(), backbone_options={"in_features": 2}, normalise=True)
    task = task_with(normalisation=Normalisation((0.0,), (1.0,)))
    with pytest.raises(InputError, match="normalises inputs"):
        train_run(spec, copy, task=task, progress=False, fresh=True)
    assert contents(copy) == before


def test_what_is_not_a_run_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Run.open(tmp_path / "absent")
    with pytest.raises(InputError, match=r"is not a run: it has no run\.json"):
        Run.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; give a folder"):
        Run.open(tmp_path / "file")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(format=9), r"is not a run of format 1 \(found 9\)"),
        (lambda r: r.pop("spec"), "spec: expected a mapping with the name of a method"),
        (lambda r: r["spec"].update(method="x"), "cannot be read: unknown method 'x'"),
        (lambda r: r["spec"]["train"].update(epochs="3"), r"spec\.train\.epochs: expected an int"),
        (lambda r: r["facts"].pop("train"), "facts: field train is missing"),
        (lambda r: r["sessions"][0].update(host="x"), r"sessions\[0\]\.host: unknown field"),
        (lambda r: r.update(sessions=[]), "sessions: the list is empty; .* --fresh"),
        (lambda r: r.update(sessions=3), "sessions: expected a list, got 3; .* --fresh"),
        (lambda r: r.pop("sessions"), "sessions: expected a list, got null; .* --fresh"),
        (lambda r: r["spec"]["train"].update(seed=5), "train.seed: 0 there, 5 here"),
        (
            lambda r: r["spec"]["backbone_options"].update(dropout=0.5),
            r"spec\.backbone_options\.dropout: ",
        ),
        (lambda r: r["facts"]["train"].update(checksum="0"), r"facts\.train\.checksum: "),
    ],
)
def test_a_record_that_is_not_the_runs_is_refused(
    copy: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    edit(copy, change)
    with pytest.raises(CheckpointError, match=message):
        Run.open(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n: n.update(validation={}), "validation: field id is missing"),
        (lambda n: n.update(test={}), "test: field id is missing"),
        (lambda n: n.update(test=3), r"test: expected a mapping"),
        (lambda n: n["test"]["id"].pop("checksum"), r"test\.id: field checksum is missing"),
        (lambda n: n["test"]["id"].update(n="5"), r"test\.id\.n: expected an integer, got '5'"),
        (lambda n: n["test"]["id"].update(nll="1"), r"test\.id\.nll: expected a number, got '1'"),
        (lambda n: n["test"].pop("absent"), "test: field absent is missing"),
        (lambda n: n["test"].update(absent=[3]), r"test\.absent\[0\]: expected a text, got 3"),
        (
            lambda n: n["test"]["ood"]["ring"]["by_score"].update(entropy={}),
            r"test\.ood\.ring\.by_score\.entropy: field auroc is missing",
        ),
    ],
)
def test_numbers_that_cannot_be_shown_are_refused(
    copy: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    numbers = json.loads((copy / METRICS).read_text())
    change(numbers)
    (copy / METRICS).write_text(json.dumps(numbers))
    with pytest.raises(CheckpointError, match=rf"{message}; delete it and run again"):
        train_run(toy_spec(), copy, progress=False)


def test_fresh_deletes_members_and_no_other_folder(copy: Path) -> None:
    member, other = copy / "member-0", copy / "member-notes"
    for folder in (member, other):
        folder.mkdir()
        (folder / LOG).write_text("{}")
    mine = member / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(InputError, match=r"mine\.txt is not of a run, and --fresh deletes nothing"):
        clear(copy)
    assert (member / LOG).exists()
    assert (copy / CHECKPOINT).exists()
    mine.unlink()
    clear(copy)
    assert not member.exists()
    assert (other / LOG).exists()
