"""`gemfi train` and `gemfi evaluate` from end to end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gemfi._text import CONVENTIONS
from gemfi.cli import main
from gemfi.data import TASKS, Role, Split, Task
from gemfi.methods import METHODS
from gemfi.methods.gem import GEM
from gemfi.outliers import NONE, VOS
from gemfi.runs import Run, work
from gemfi.runs import spec as spec_module
from gemfi.runs.folder import FILES, METRICS, RECORD
from gemfi.training.run_dir import CHECKPOINT
from gemfi_bench.recipes import paper_recipe
from support.commands import Capture, printed, quiet, refused

from .conftest import toy_spec

QUICK = ["--epochs", "1", "--backbone-options", "width=16", "depth=1"]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs go below the test's own folder."""
    monkeypatch.setenv("GEMFI_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_train_says_where_it_is_and_how_it_went(root: Path, capsys: Capture) -> None:
    text = printed(["train", "two-moons", *QUICK], capsys)
    (folder,) = (root / "two-moons").iterdir()
    run = Run.open(folder)
    assert folder == run.spec.default_folder("two-moons")
    assert text.splitlines()[0] == (
        "gem-fi on two-moons: mlp, 1,000 samples of 2 classes, 1 epoch, 32 steps, seed 0"
    )
    assert text.splitlines()[1] == f"Run: {folder}"
    assert text.splitlines()[-2] == f"in {folder}"
    assert text.splitlines()[-1].endswith(f"gemfi evaluate {folder}")
    validation = run.metrics()["validation"]
    for name in ("accuracy", "brier", "ece"):
        assert f"{validation['id'][name]:.2f}" in text
    for name in ("auroc", "aupr_id", "fpr95"):
        assert f"{validation['ood']['ring']['epistemic'][name]:.2f}" in text
    assert f"{run.training['parameters']:,} parameters in 32 steps" in text
    assert ", ".join(FILES) in text
    assert CONVENTIONS in text


def test_the_same_command_again_finds_the_run_finished(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["train", "two-moons", *QUICK]
    first = printed(command, capsys)
    monkeypatch.setattr(GEM, "objective", None)
    again = printed(command, capsys)
    assert "This run had finished; --fresh would train it again." in again
    assert again.split("Trained")[1] == first.split("Trained")[1]


def test_options_reach_the_spec(capsys: Capture) -> None:
    options = ["--method", "gem-mix", "--seed", "3", "--select", "best", "--batch-size", "500"]
    options += ["--learning-rate", "0.01", "--weight-decay", "0", "--augmentation", "none"]
    spec = Run.open(
        quiet(["two-moons", *QUICK, *options, "--set", "num_components=2", "rho_floor=0.1"], capsys)
    ).spec
    assert (spec.method, spec.head.num_components, spec.head.rho_floor) == ("gem-mix", 2, 0.1)
    train = spec.train
    assert (train.epochs, train.seed, train.select, train.batch_size) == (1, 3, "best", 500)
    assert (train.learning_rate, train.weight_decay) == (0.01, 0.0)
    assert spec.backbone_options["width"] == 16


def test_optimiser_schedule_and_outliers_reach_the_spec(capsys: Capture) -> None:
    options = ["--method", "daedl", "--outliers", "vos", "--set", "outliers.ratio=0.5"]
    options += ["--optimizer", "sgd", "--schedule", "step", "--milestones", "0.2", "0.9"]
    spec = Run.open(quiet(["two-moons", *QUICK, *options, "--decay", "0.3"], capsys)).spec
    assert spec.head == replace(METHODS["daedl"].default_config(), outliers=replace(VOS, ratio=0.5))
    train = spec.train
    assert (train.optimizer, train.schedule) == ("sgd", "step")
    assert (train.milestones, train.decay) == ((0.2, 0.9), 0.3)
    bare = Run.open(quiet(["two-moons", *QUICK, "--outliers", "none"], capsys)).spec
    assert (bare.method, bare.head.outliers) == ("gem-fi", NONE)


def test_train_says_where_a_recipe_departs_from_its_paper(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def split(role: Role) -> Split:
        return Split(torch.rand(40, 1, 28, 28), torch.arange(40) % 2, role, "noise", 2)

    roles = (Role.TRAIN, Role.VALIDATION, Role.CALIBRATION, Role.TEST)
    splits: dict[str, Any] = {str(role): split(role) for role in roles}
    task = Task("mnist", ("a", "b"), **splits, ood_validation={}, ood_test={})
    monkeypatch.setattr(spec_module, "TASKS", {"mnist": lambda: task})
    short = ["--epochs", "1", "--backbone-options", "channels=2"]
    text = printed(["train", "mnist", "--method", "postnet", "--recipe", "paper", *short], capsys)
    notes = paper_recipe("postnet", "mnist").notes
    assert len(notes) == 3
    assert text.splitlines()[2:5] == [f"Recipe: {note}." for note in notes]
    assert "Recipe:" not in printed(["train", "mnist", "--method", "postnet", *short], capsys)


def test_each_spec_has_a_folder_of_its_own(capsys: Capture) -> None:
    same = {quiet(["two-moons", *QUICK], capsys) for _ in range(2)}
    others = {
        quiet(["two-moons", *QUICK, *more], capsys)
        for more in (["--seed", "1"], ["--set", "kl_weight=0"], ["--method", "edl"])
    }
    assert len(same) == 1
    assert len(same | others) == 4


def test_fresh_trains_again(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = quiet(["two-moons", *QUICK], capsys)
    (folder / RECORD).write_text("{broken")  # even then
    text = printed(["train", "two-moons", *QUICK, "--fresh"], capsys)
    assert "had finished" not in text
    assert Run.open(folder).training["steps"] == 32


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_says_how_to_go_on(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, code: int
) -> None:
    objective = GEM.objective

    def interrupting(self: GEM, batch: Any, at: Any) -> Any:
        if at.step == 3:
            os.kill(os.getpid(), sent)
        return objective(self, batch, at)

    with monkeypatch.context() as patch:
        patch.setattr(GEM, "objective", interrupting)
        assert main(["train", "two-moons", *QUICK, "--fresh"]) == code
    captured = capsys.readouterr()
    folder = captured.out.splitlines()[1].removeprefix("Run: ")
    first, last = captured.err.splitlines()[-2:]
    assert first == (
        f"gemfi: what was done is in {folder}; the same command without --fresh resumes"
    )
    assert last == "gemfi: stopped"
    assert "not finished, 4 of 32 steps; run gemfi train again" in refused(
        ["evaluate", folder], capsys
    )
    assert "Trained" in printed(["train", "two-moons", *QUICK], capsys)


def test_evaluate_shows_every_score_of_one_run(finished: Path, capsys: Capture) -> None:
    text = printed(["evaluate", str(finished)], capsys)
    entry = Run.open(finished).metrics()["test"]["ood"]["cluster"]
    for score, values in entry["by_score"].items():
        mark = {"unfamiliarity": " (epistemic)", "max_prob": " (aleatoric)"}.get(score, "")
        assert any(
            row.startswith(f"  {score}{mark} ") and f"{values['auroc']:.2f}" in row
            for row in text.splitlines()
        ), score
    assert "differential_entropy" in entry["by_score"]
    assert text.count("Differential entropy can be inverted for the GEM methods") == 1
    assert text.splitlines()[-1] == CONVENTIONS
    assert "\n\n\n" not in text


def test_evaluate_compares_runs_and_writes_all_numbers(
    five: list[Run], tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "all.json"
    folders = [str(run.folder) for run in five]
    text = printed(["evaluate", *folders, "--json", str(file)], capsys)
    assert "mean of 3" in text
    assert "by_score" not in text
    assert text.splitlines()[-1] == f"Wrote {file}."
    written = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert [each["folder"] for each in written["runs"]] == folders
    assert [each["test"] for each in written["runs"]] == [run.metrics()["test"] for run in five]
    assert [each["seeds"] for each in written["means"]] == [[0, 1, 2], [0, 1]]


def test_evaluate_says_which_sets_are_not_here(
    finished: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TASKS["two-moons"]()
    task.absent["svhn"] = "No file svhn.mat; run: gemfi data fetch svhn"
    monkeypatch.setattr(spec_module, "TASKS", {"two-moons": lambda: task})
    text = printed(["evaluate", str(finished)], capsys)
    assert "Left out, two-moons against svhn: No file svhn.mat; run: gemfi data fetch svhn" in text
    monkeypatch.undo()
    printed(["evaluate", str(finished)], capsys)  # as the other tests expect it


# -- bad input: one line, exit code 2, nothing written --------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["moons"], "unknown task 'moons'; known: digits, two-moons, line"),
        (["two-moons", "--method", "gem"], "unknown method 'gem'; known: softmax, logit-norm"),
        (["two-moons", "--backbone", "vgg"], "unknown backbone 'vgg'; known: convnet"),
        (["two-moons", "--backbone", "convnet"], "convnet takes square images"),
        (["two-moons", "--backbone-options", "width"], "--backbone-options width: expected name="),
        (["two-moons", "--backbone-options", "widht=3"], "mlp has no such option; known: in_feat"),
        (["two-moons", "--backbone-options", "width=x"], "width=x: expected an integer, got 'x'"),
        (["two-moons", "--set", "dropout=no"], "--set dropout=no: expected a number, got 'no'"),
        (
            ["two-moons", "--set", "dropuot=1"],
            "GEMConfig has no field 'dropuot'; did you mean dropout",
        ),
        (["two-moons", "--set", "outliers.ratio=0"], "ratio must be above 0, got 0"),
        (["two-moons", "--method", "softmax", "--set", "x=1"], "SoftmaxConfig has no field 'x'"),
        (["two-moons", "--epochs", "0"], "epochs must be an integer of at least 1, got 0"),
        (["two-moons", "--seed", "-1"], "seed must be an integer of at least 0, got -1"),
        (["two-moons", "--augmentation", "strong"], "cannot be augmented"),
        (["two-moons", "--augmentation", "strong"], "(--augmentation none)"),
        (
            ["two-moons", "--backbone-options", "spectral.kind=zz"],
            "error: --backbone-options spectral.kind=zz: expected one of",
        ),
        (
            ["two-moons", "--backbone-options", "spectral.knd=zz"],
            "error: --backbone-options spectral.knd=zz: Spectral has no field 'knd'",
        ),
        (["two-moons", "--backbone-options", "in_features=5"], "cannot take the samples (2,)"),
        (["two-moons", "--recipe", "paper"], "recipes of their own for mnist, cifar10, not for"),
        (
            ["two-moons", "--schedule", "step", "--milestones", "150"],
            "above 0 and below 1, got 150",
        ),
        (["two-moons", "--method", "softmax", "--outliers", "vos"], "these have one: edl, i-edl"),
        (["two-moons", "--outliers", "auxiliary"], "needs an auxiliary split, which no task has"),
    ],
)
def test_train_refuses_bad_input(
    arguments: list[str], message: str, tmp_path: Path, capsys: Capture
) -> None:
    assert message in refused(["train", *arguments], capsys)
    assert list(tmp_path.iterdir()) == []


def test_train_refuses_a_file_and_a_strange_folder(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for more in ([], ["--fresh"]):
        text = refused(["train", "two-moons", *QUICK, "--out", str(file), *more], capsys)
        assert "is a file; give a folder" in text
        text = refused(["train", "two-moons", *QUICK, "--out", str(tmp_path), *more], capsys)
        assert "not empty and holds no run (it has file)" in text
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "mine"


def test_a_folder_cannot_be_below_a_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    text = refused(["train", "two-moons", *QUICK, "--out", str(file / "run")], capsys)
    assert "cannot be created: a file is in its place" in text
    monkeypatch.setenv("GEMFI_RUNS", str(file))
    text = refused(["train", "two-moons", *QUICK], capsys)
    assert "GEMFI_RUNS" in text
    assert "Errno" not in text


def test_train_refuses_a_folder_with_another_run(tmp_path: Path, capsys: Capture) -> None:
    out = ["--out", str(tmp_path / "run")]
    printed(["train", "two-moons", *QUICK, *out], capsys)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    text = refused(["train", "two-moons", *QUICK, "--seed", "2", *out], capsys)
    assert "train.seed: 0 there, 2 here" in text
    assert "--fresh" in text
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def spoil(path: Path, keep: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (RECORD, "cannot read"),
        (CHECKPOINT, "delete it to start the run again"),
        (METRICS, "cannot read"),
    ],
)
@pytest.mark.parametrize("keep", [0, 0.5])
def test_a_truncated_file_is_one_line(
    finished: Path, tmp_path: Path, capsys: Capture, name: str, message: str, keep: float
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    spoil(folder / name, keep)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert message in refused(["evaluate", str(folder)], capsys)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_evaluate_refuses_before_it_evaluates(
    finished: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "evaluate", None)  # nothing is measured
    good = str(finished)
    assert "give the folder of a run" in refused(["evaluate"], capsys)
    text = refused(["evaluate", good, str(tmp_path / "x")], capsys)
    assert "x does not exist" in text
    assert "is not a run" in refused(["evaluate", good, str(tmp_path)], capsys)
    text = refused(["evaluate", good, "--json", str(tmp_path)], capsys)
    assert "is a folder; give a file" in text
    text = refused(["evaluate", good, "--json", str(tmp_path / "x" / "y.json")], capsys)
    assert "its folder does not exist" in text


def test_the_task_of_a_run_must_be_known(
    finished: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec_module, "TASKS", {"digits": TASKS["digits"]})
    assert "unknown task 'two-moons'; known: digits" in refused(["evaluate", str(finished)], capsys)


def test_a_folder_name_is_made_of_safe_characters(root: Path) -> None:
    spec = toy_spec()
    assert spec.default_folder("my data/../x") == root / "my-data-..-x" / spec.name
    assert spec.default_folder("..").parent == root / "task"


# -- kills ----------------------------------------------------------------------------------------

DIGITS = ["digits", "--epochs", "8", "--backbone-options", "channels=8", "--batch-size", "64"]


@contextmanager
def launched(out: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "gemfi", "train", *DIGITS, "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process


@pytest.mark.slow
def test_sigkill_in_the_middle_changes_no_bit(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with launched(whole) as process:
        assert process.wait() == 0
    with launched(killed) as process:
        log = killed / "log.jsonl"
        while not (log.exists() and len(log.read_text().splitlines()) >= 3):
            assert process.poll() is None, "the run ended before the kill"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (killed / METRICS).exists()
    with launched(killed) as process:
        assert process.wait() == 0
    expected, found = load_file(whole / CHECKPOINT), load_file(killed / CHECKPOINT)
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []
    sections = [json.loads((each / METRICS).read_text())["validation"] for each in (whole, killed)]
    assert sections[0] == sections[1]
