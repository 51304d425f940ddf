"""Run folders: what is in them, that they resume and open exactly, and what they refuse."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gemfi.data import Split, Task, two_moons
from gemfi.data.normalisation import Normalisation
from gemfi.errors import CheckpointError, InputError, MissingDataError
from gemfi.methods.gem import GEM
from gemfi.model import Model
from gemfi.runs import Run, RunSpec, evaluate_run, train_run, work
from gemfi.runs import folder as folder_module
from gemfi.runs import spec as spec_module
from gemfi.runs.folder import DETECTION, FILES, METRICS, MODEL, RECORD, SUMMARY, begin, is_finished
from gemfi.scores import SCORES
from gemfi.training.checks import check_run
from gemfi.training.run_dir import CHECKPOINT, LOCK, LOG

from .conftest import (
    STEPS,
    assert_same_checkpoint,
    contents,
    edit,
    task_with,
    toy_spec,
    untouchable,
)


def test_a_run_leaves_its_six_files(finished: Path) -> None:
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
    assert list(numbers) == ["training", "validation", "health", "test"]
    assert numbers["training"]["steps"] == STEPS
    assert numbers["validation"]["ood"].keys() == {"ring"}
    assert numbers["test"]["ood"].keys() == {"cluster", "ring"}
    for name, section in (("validation", numbers["validation"]), ("test", numbers["test"])):
        assert section["id"]["role"] == name
        assert section["scores"] == {"aleatoric": "max_prob", "epistemic": "unfamiliarity"}
        for entry in section["ood"].values():
            assert entry["by_score"]["unfamiliarity"] == entry["epistemic"]
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
    rows = [line.split() for line in text.splitlines()]
    assert text.startswith("# gem-fi on two-moons\n")
    for section in (numbers["validation"], numbers["test"]):
        inside = section["id"]
        assert [f"{inside['accuracy']:.2f}", f"{inside['nll']:.3f}"] in [row[:2] for row in rows]
        for entry in section["ood"].values():
            values = [f"{entry['epistemic'][name]:.2f}" for name in DETECTION]
            assert [entry["split"], entry["role"], "500", *values] in rows
    vacuity = numbers["test"]["ood"]["cluster"]["by_score"]["vacuity"]
    assert ["vacuity", *(f"{vacuity[name]:.2f}" for name in DETECTION)] in rows
    assert "sum over classes ×100" in text
    assert "Differential entropy can be inverted for the GEM methods" in text


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
    assert opened.inputs.sample_shape == (2,)
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
    monkeypatch.setattr(work, "evaluate", untouchable("the data"))
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


def test_a_trained_model_is_not_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "load", None)
    run = train_run(toy_spec(epochs=1), tmp_path / "run", progress=False)
    with pytest.raises(TypeError):  # so the wires are live
        Run.open(run.folder)


def test_a_run_that_died_before_its_model_gets_it(copy: Path, finished: Path) -> None:
    before = contents(copy)
    (copy / MODEL).unlink()
    assert not is_finished(copy)
    with pytest.raises(CheckpointError, match=r"no model\.safetensors; run gemfi train again"):
        Run.open(copy)
    run = train_run(toy_spec(), copy, progress=False)
    assert contents(copy) == before
    x, expected = two_moons().test.x, Run.open(finished)
    for again in (run, Run.open(copy)):
        assert again.training == expected.training
        assert torch.equal(
            again.model.predict(x).log_probs(), expected.model.predict(x).log_probs()
        )


def test_a_model_of_another_run_is_refused(copy: Path, tmp_path: Path) -> None:
    other = train_run(toy_spec(seed=1), tmp_path / "other", progress=False)
    (copy / MODEL).write_bytes((other.folder / MODEL).read_bytes())
    with pytest.raises(CheckpointError, match=r"another run \(spec\.train\.seed: 1 there, 0 here"):
        Run.open(copy)


def test_numbers_do_not_outlive_their_checkpoint(copy: Path, finished: Path) -> None:
    (copy / CHECKPOINT).unlink()
    with pytest.raises(CheckpointError, match="not finished, 0 of 24 steps; run gemfi train again"):
        Run.open(copy)
    train_run(toy_spec(), copy, progress=False)
    assert "test" not in json.loads((copy / METRICS).read_text())
    assert_same_checkpoint(copy, finished)


def test_a_session_elsewhere_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begin(toy_spec(), folder, two_moons())
    edit(folder, lambda record: record["sessions"][0].update(torch="1.0"))
    train_run(toy_spec(), folder, progress=False)
    train_run(toy_spec(), folder, progress=False)
    sessions = json.loads((folder / RECORD).read_text())["sessions"]
    assert [each["torch"] for each in sessions] == ["1.0", torch.__version__]


def test_a_finished_run_gets_no_session(copy: Path) -> None:
    edit(copy, lambda record: record["sessions"][0].update(torch="1.0"))
    before = contents(copy)
    train_run(toy_spec(), copy, progress=False)
    assert contents(copy) == before


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
    begin(toy_spec(), folder, two_moons())
    with pytest.raises(CheckpointError, match=r"train.checksum: \"\w+\" there, \"\w+\" here"):
        train_run(toy_spec(), folder, progress=False, task=two_moons(seed=1))
    assert {path.name for path in folder.iterdir()} == {RECORD, LOCK}


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


def test_evaluation_reads_no_calibration_data(copy: Path) -> None:
    guarded = task_with(calibration=untouchable("calibration"))
    before = json.loads((copy / METRICS).read_text())
    assert evaluate_run(copy, guarded).metrics() == before


@pytest.mark.parametrize("name", ["train", "validation"])
def test_evaluation_refuses_data_that_changed_since_training(copy: Path, name: str) -> None:
    before = contents(copy)
    split = getattr(two_moons(), name)
    fewer = split.subset(range(len(split) - 1))
    with pytest.raises(CheckpointError, match="are not those it was trained on") as refusal:
        evaluate_run(copy, task_with(**{name: fewer}))
    text = str(refusal.value)
    assert f"{name}.n: {len(split)} there, {len(split) - 1} here" in text
    assert f"{name}.checksum: " in text
    assert "put the old data back, or train again with --fresh" in text
    assert contents(copy) == before


def test_sets_that_are_not_here_are_named(tmp_path: Path) -> None:
    task = task_with(ood_validation={}, absent={"ring": "no file /somewhere/ring"})
    run = train_run(toy_spec(epochs=1), tmp_path / "run", progress=False, task=task)
    numbers = run.metrics()
    assert numbers["validation"]["ood"] == {}
    assert numbers["validation"]["absent"] == []
    run = evaluate_run(run, task)
    numbers = run.metrics()
    assert numbers["test"]["absent"] == ["ring"]
    text = (tmp_path / "run" / SUMMARY).read_text()
    assert "OOD sets that are not here: ring\n" in text
    assert "somewhere" not in text + json.dumps(numbers)
    assert numbers["test"]["ood"].keys() == {"cluster"}


def test_after_training_only_sets_for_tuning_are_missed(tmp_path: Path) -> None:
    moons = two_moons()
    task = Task(
        "cifar10",
        moons.class_names,
        train=moons.train,
        validation=moons.validation,
        calibration=moons.calibration,
        test=moons.test,
        ood_validation={},
        ood_test={},
        absent={"dtd": "no file", "svhn": "no file"},
    )
    run = train_run(toy_spec(epochs=1), tmp_path / "run", progress=False, task=task)
    assert run.metrics()["validation"]["absent"] == ["dtd"]
    assert evaluate_run(run, task).metrics()["test"]["absent"] == ["dtd", "svhn"]


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
    with pytest.raises(
        InputError, match=r"not what this run was trained on: sample_shape: \[2\] there, \[3\] here"
    ):
        evaluate_run(copy, other)
    assert contents(copy) == before


def test_checks_come_before_files(tmp_path: Path) -> None:
    task = task_with(normalisation=Normalisation((0.0,), (1.0,)))
    with pytest.raises(InputError, match="normalises inputs of 1 channels or features"):
        train_run(replace(toy_spec(), normalise=True), tmp_path / "run", task=task, progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fresh", [False, True])
def test_a_backbone_for_other_samples_is_refused_before_files(tmp_path: Path, fresh: bool) -> None:
    spec = replace(toy_spec(), backbone_options={"in_features": 5})
    with pytest.raises(InputError, match=r"cannot take the samples \(2,\) of split 'two-moons'"):
        train_run(spec, tmp_path / "run", progress=False, fresh=fresh)
    assert list(tmp_path.iterdir()) == []


def test_the_trial_pass_changes_nothing() -> None:
    model = toy_spec().build(2, None)
    model.backbone.eval()  # frozen, while the head learns
    state = {key: value.clone() for key, value in model.state_dict().items()}
    drawn = torch.get_rng_state()
    check_run(model, two_moons().train, None, None, toy_spec().train)
    assert model.training
    assert not model.backbone.training
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)
