"""Bundles: a model in one file, rebuilt exactly, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gemfi import scores
from gemfi.bundle import bundle_names, bundled, load_bundle, save_bundle
from gemfi.data import TASKS, load
from gemfi.errors import CheckpointError, InputError
from gemfi.methods import METHODS
from gemfi.runs import Run, make_spec, train_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    task = TASKS["digits"]()
    spec = make_spec("digits", "gem-fi", task, options=["channels=4"], train={"epochs": 1})
    return train_run(spec, tmp_path_factory.mktemp("run"), task=task, progress=False)


def test_a_model_comes_back_exactly(run: Run, tmp_path: Path) -> None:
    found = load_bundle(save_bundle(run, tmp_path / "model.safetensors"))
    x = TASKS["digits"]().test.x
    mine, theirs = found.model.predict(x), run.model.predict(x)
    for name in scores.available(theirs):
        assert torch.equal(scores.SCORES[name](mine), scores.SCORES[name](theirs)), name
    assert found.spec == run.spec
    assert found.facts == run.record.facts
    assert found.model.sample_shape == (1, 8, 8)


@pytest.mark.parametrize("name", ["softmax", "ensemble", "daedl", "postnet"])
def test_other_methods_come_back_too(name: str, tmp_path: Path) -> None:
    assert name in METHODS
    task = TASKS["digits"]()
    spec = make_spec("digits", name, task, options=["channels=4"], train={"epochs": 1})
    run = train_run(spec, tmp_path / "run", task=task, progress=False)
    found = load_bundle(save_bundle(run, tmp_path / "model.safetensors"))
    mine, theirs = found.model.predict(task.test.x), run.model.predict(task.test.x)
    assert torch.equal(mine.log_probs(), theirs.log_probs())


def test_the_package_has_a_model_of_mnist() -> None:
    assert bundle_names() == ("mnist-gem-fi",)
    found = bundled()
    assert found.facts.class_names == tuple("0123456789")
    assert found.spec.method == "gem-fi"


def test_the_model_of_mnist_knows_digits_from_letters(data_dir: Path) -> None:
    model = bundled().model
    test = load("mnist", "validation", root=data_dir)
    letters = load("notmnist", "sample", root=data_dir)
    inside = model.predict(test.x[:500])
    outside = model.predict(letters.x[:500])
    assert float((inside.labels() == test.labels[:500]).double().mean()) > 0.97
    threshold = float(scores.unfamiliarity(inside).quantile(0.95))
    assert float((scores.unfamiliarity(outside) > threshold).double().mean()) > 0.97


def test_what_is_no_bundle_is_refused(tmp_path: Path, run: Run) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_bundle(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_bytes(b"text")
    with pytest.raises(CheckpointError, match="no safetensors file"):
        load_bundle(tmp_path / "text.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="no bundle of gemfi"):
        load_bundle(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"ends in \.safetensors"):
        save_bundle(run, tmp_path / "model.pt")
    with pytest.raises(InputError, match="unknown bundle 'no'; known: mnist-gem-fi"):
        bundled("no")
