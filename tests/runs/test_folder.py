"""Run folders: what is in them, that they resume and open exactly, and what they refuse."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gemfi.data import Split, Task, two_moons
from gemfi.errors import CheckpointError, InputError, MissingDataError
from gemfi.methods.gem import GEM
from gemfi.model import Model
from gemfi.normalisation import Normalisation
from gemfi.runs import Run, RunSpec, evaluate_run, start_or_resume, train_run, work
from gemfi.runs import spec as spec_module
from gemfi.runs.folder import FILES, METRICS, RECORD, SUMMARY, clear
from gemfi.scores import SCORES
from gemfi.training.loop import CHECKPOINT, LOCK, LOG

from .conftest import toy_spec

STEPS = 24  # 3 epochs of 1,000 samples by 128


def untouchable(name: str) -> Callable[[], Split]:
    def source() -> Split:
        raise AssertionError(f"{name} was read")

    return source


def task_with(**sources: Any) -> Task:
    """Two moons with some sources replaced."""
    moons = two_moons()
    given: dict[str, Any] = {
        "train": moons.train,
        "validation": moons.validation,
        "calibration": moons.calibration,
        "test": moons.test,
        "ood_validation": dict(moons.ood_validation),
        "ood_test": dict(moons.ood_test),
    }
    return Task("two-moons", moons.class_names, **(given | sources))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same_checkpoint(one: Path, two: Path) -> None:
    first, second = load_file(one / CHECKPOINT), load_file(two / CHECKPOINT)
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change run.json."""
    record = json.loads((folder / RECORD).read_text())
    change(record)
    (folder / RECORD).write_text(json.dumps(record))


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to spoil."""
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_run_leaves_its_five_files(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} == {*FILES, LOCK}
    record = json.loads((finished / RECORD).read_text(), parse_constant=pytest.fail)
    assert RunSpec.from_plain(record["spec"]) == toy_spec()
    facts = record["facts"]
    assert facts["num_classes"] == 2
    assert facts["class_names"] == ["upper moon", "lower moon"]
    assert facts["sample_shape"] == [2]
    assert facts["class_counts"] == [500, 500]
    assert (facts["train"]["n"], facts["validation"]["n"]) == (1000, 500)
    assert facts["train"]["checksum"] != facts["validation"]["checksum"]
    assert len(record["sessions"]) == 1
    assert len((finished / LOG).read_text().splitlines()) == 3 + 1


def test_the_numbers_are_those_of_evaluation(finished: Path) -> None:
    numbers = json.loads((finished / METRICS).read_text(), parse_constant=pytest.fail)
    assert list(numbers) == ["training", "validation", "test"]
    assert numbers["training"]["steps"] == STEPS
    assert numbers["validation"]["ood"].keys() == {"ring"}
    assert numbers["test"]["ood"].keys() == {"cluster", "ring"}
    for name, section in (("validation", numbers["validation"]), ("test", numbers["test"])):
        assert section["id"]["role"] == name
        assert section["scores"] == {"aleatoric": "max_prob", "epistemic": "evidence"}
        for entry in section["ood"].values():
            assert entry["by_score"]["evidence"] == entry["epistemic"]
            assert entry["by_score"]["max_prob"] == entry["aleatoric"]
            assert entry["by_score"].keys() == SCORES.keys()  # GEM-FI has all of them
            assert entry["n"] == 500
    run = Run.open(finished)
    probs = run.model.predict(two_moons().test).probs()
    right = (probs.argmax(dim=1) == two_moons().test.labels).double().mean()
    assert numbers["test"]["id"]["accuracy"] == pytest.approx(100 * float(right))


def test_the_summary_shows_the_numbers(finished: Path) -> None:
    text = (finished / SUMMARY).read_text()
    numbers = json.loads((finished / METRICS).read_text())
    assert text.startswith("# gem-fi on two-moons\n")
    for section in (numbers["validation"], numbers["test"]):
        assert f"| {section['id']['accuracy']:.2f} | {section['id']['nll']:.3f} |" in text
        for entry in section["ood"].values():
            assert f"| {entry['split']} | {entry['role']} | 500 |" in text
    assert f"| {numbers['test']['ood']['cluster']['by_score']['vacuity']['auroc']:.2f} |" in text
    assert "sum over classes ×100" in text


def test_opening_gives_the_same_predictions_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Model] = []
    fit = work.fit

    def keeping(model: Model, *arguments: Any, **options: Any) -> Any:
        trained.append(model)
        return fit(model, *arguments, **options)

    monkeypatch.setattr(work, "fit", keeping)
    task = task_with(normalisation=Normalisation((0.5, 0.25), (0.9, 0.5)))
    spec = replace(toy_spec(), normalise=True)
    train_run(spec, tmp_path / "run", progress=False, task=task)
    monkeypatch.setattr(spec_module, "TASKS", {})  # no data are needed
    opened = Run.open(tmp_path / "run").model
    x = task.test.x
    one, two = trained[0].predict(x), opened.predict(x)
    assert torch.equal(one.log_probs(), two.log_probs())
    for name, score in SCORES.items():
        assert torch.equal(score(one), score(two)), name
    assert opened.input_mean is not None
    assert opened.sample_shape == (2,)
    assert not opened.training


@pytest.mark.parametrize("step", [0, 11, STEPS - 1])
def test_an_interrupted_run_ends_as_if_it_had_not_been(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    objective = GEM.objective

    def interrupting(self: GEM, batch: Any, at: Any) -> Any:
        if at.step == step:
            os.kill(os.getpid(), signal.SIGINT)
        return objective(self, batch, at)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(GEM, "objective", interrupting)
        with pytest.raises(KeyboardInterrupt):
            train_run(toy_spec(), folder, progress=False)
    assert not (folder / METRICS).exists()
    if step < STEPS - 1:
        with pytest.raises(CheckpointError, match=rf"not finished, {step + 1} of 24 steps"):
            Run.open(folder)
    again = train_run(toy_spec(), folder, progress=False)
    assert_same_checkpoint(folder, finished)
    expected = json.loads((finished / METRICS).read_text())
    assert again.metrics()["validation"] == expected["validation"]
    assert len(json.loads((folder / RECORD).read_text())["sessions"]) == 1


def test_a_finished_run_is_not_trained_or_measured_again(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(copy)
    monkeypatch.setattr(GEM, "objective", untouchable("the objective"))
    monkeypatch.setattr(work, "measure", untouchable("the data"))
    run = train_run(toy_spec(), copy, progress=False)
    assert run.training["steps"] == STEPS
    assert contents(copy) == before


def test_a_run_that_died_before_its_numbers_gets_them(copy: Path, finished: Path) -> None:
    (copy / METRICS).unlink()
    (copy / SUMMARY).unlink()
    train_run(toy_spec(), copy, progress=False)
    numbers, expected = (json.loads((each / METRICS).read_text()) for each in (copy, finished))
    assert numbers["validation"] == expected["validation"]
    assert "test" not in numbers
    assert (copy / SUMMARY).exists()


def test_numbers_do_not_outlive_their_checkpoint(copy: Path, finished: Path) -> None:
    (copy / CHECKPOINT).unlink()
    with pytest.raises(CheckpointError, match="not finished, 0 of 24 steps; run gemfi train again"):
        Run.open(copy)
    train_run(toy_spec(), copy, progress=False)
    assert "test" not in json.loads((copy / METRICS).read_text())
    assert_same_checkpoint(copy, finished)


def test_a_session_elsewhere_is_recorded(copy: Path) -> None:
    edit(copy, lambda record: record["sessions"][0].update(torch="1.0"))
    train_run(toy_spec(), copy, progress=False)
    train_run(toy_spec(), copy, progress=False)
    sessions = json.loads((copy / RECORD).read_text())["sessions"]
    assert [each["torch"] for each in sessions] == ["1.0", torch.__version__]


def test_another_spec_is_refused_with_the_fields_that_differ(copy: Path) -> None:
    before = contents(copy)
    spec = toy_spec(seed=1)
    other = replace(spec, head=replace(spec.head, kl_weight=0.5))
    with pytest.raises(CheckpointError) as refusal:
        train_run(other, copy, progress=False)
    text = str(refusal.value)
    assert "head.kl_weight: 0.0001 there, 0.5 here; train.seed: 0 there, 1 here" in text
    assert "use another folder, or --fresh to replace it" in text
    assert contents(copy) == before


def test_other_data_are_refused_before_there_is_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start_or_resume(toy_spec(), folder, two_moons())
    with pytest.raises(CheckpointError, match=r"train.checksum: \"\w+\" there, \"\w+\" here"):
        train_run(toy_spec(), folder, progress=False, task=two_moons(seed=1))
    assert {path.name for path in folder.iterdir()} == {RECORD}


def test_training_reads_no_test_and_no_calibration_data(tmp_path: Path, finished: Path) -> None:
    guarded = task_with(
        test=untouchable("test"),
        calibration=untouchable("calibration"),
        ood_test={"cluster": untouchable("ood-test")},
    )
    run = train_run(toy_spec(), tmp_path / "run", progress=False, task=guarded)
    assert_same_checkpoint(tmp_path / "run", finished)
    assert "test" not in run.metrics()
    with pytest.raises(AssertionError, match="test was read"):  # so the wires are live
        evaluate_run(run, guarded)


def test_evaluation_reads_no_training_data(copy: Path) -> None:
    names = ("train", "validation", "calibration")
    guarded = task_with(**{name: untouchable(name) for name in names})
    before = json.loads((copy / METRICS).read_text())
    assert evaluate_run(copy, guarded).metrics() == before


def test_sets_that_are_not_here_are_named(tmp_path: Path) -> None:
    task = task_with(ood_validation={}, absent={"ring": "no file /somewhere/ring"})
    run = train_run(toy_spec(epochs=1), tmp_path / "run", progress=False, task=task)
    numbers = run.metrics()
    assert numbers["validation"]["ood"] == {}
    assert numbers["validation"]["absent"] == ["ring"]
    text = (tmp_path / "run" / SUMMARY).read_text()
    assert "Not here, so not measured: ring." in text
    assert "somewhere" not in text + json.dumps(numbers)
    assert evaluate_run(run, task).metrics()["test"]["ood"].keys() == {"cluster"}


def test_missing_training_data_leave_no_folder(tmp_path: Path) -> None:
    def absent() -> Split:
        raise MissingDataError("no moon.bin")

    with pytest.raises(MissingDataError, match=r"no moon\.bin"):
        train_run(toy_spec(), tmp_path / "run", task=task_with(train=absent), progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_set_for_tuning_and_for_reporting_of_one_name_are_both_measured(copy: Path) -> None:
    moons = two_moons()
    task = task_with(ood_test={"ring": moons.ood_test["cluster"]})
    found = evaluate_run(copy, task).metrics()["test"]["ood"]
    assert {key: entry["split"] for key, entry in found.items()} == {
        "ring": "cluster",
        "ring (ood-validation)": "ring",
    }


def test_a_task_of_another_kind_is_refused(copy: Path) -> None:
    before = contents(copy)
    moons = two_moons()
    wide = replace(moons.test, x=torch.zeros(500, 3))
    other = Task(
        "two-moons",
        moons.class_names,
        train=untouchable("train"),
        validation=untouchable("validation"),
        calibration=untouchable("calibration"),
        test=wide,
        ood_validation={},
        ood_test={},
    )
    with pytest.raises(InputError, match=r"samples \(3,\) float32 .* the run has \(2,\) float32"):
        evaluate_run(copy, other)
    assert contents(copy) == before


def test_checks_come_before_files(tmp_path: Path) -> None:
    task = task_with(normalisation=Normalisation((0.0,), (1.0,)))
    with pytest.raises(InputError, match="normalises inputs of 1 channels or features"):
        train_run(replace(toy_spec(), normalise=True), tmp_path / "run", task=task, progress=False)
    assert list(tmp_path.iterdir()) == []


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
        (lambda r: r["spec"]["train"].update(seed=5), "train.seed: 0 there, 5 here"),
        (lambda r: r["spec"]["backbone_options"].update(dropout=0.5), "backbone: "),
        (lambda r: r["facts"]["train"].update(checksum="0"), "data.train: "),
    ],
)
def test_a_record_that_is_not_the_runs_is_refused(
    copy: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    edit(copy, change)
    with pytest.raises(CheckpointError, match=message):
        Run.open(copy)
