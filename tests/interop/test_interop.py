"""A model in the forms of pytorch-ood, OpenOOD and Lightning."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gemfi import Task, TrainConfig, build_model, metrics
from gemfi.data import digits
from gemfi.errors import InputError, RoleError
from gemfi.interop import OutlierDetector, Postprocessor, lightning_module
from gemfi.model import Model
from gemfi.scores import SCORES
from support.digit_models import trained_on
from support.pytorch_ood import empty_parents


@pytest.fixture(scope="module")
def task() -> Task:
    return digits()


@pytest.fixture(scope="module")
def model(task: Task) -> Model:
    return trained_on(task, "gem-fi", epochs=6, channels=8)


# ---------------------------------------------------------------- pytorch-ood


def test_the_detector_has_every_method_of_theirs(model: Model) -> None:
    with empty_parents():
        api = importlib.import_module("pytorch_ood.api")
        public = {name for name in vars(api.Detector) if not name.startswith("_")}
    assert public <= set(dir(OutlierDetector))
    detector = OutlierDetector(model)
    assert detector.device.type == "cpu"
    assert detector.set_hyperparameters(**detector.get_hyperparameters()) is detector
    with pytest.raises(InputError, match="has no hyperparameters, got k"):
        detector.set_hyperparameters(k=5)
    assert detector.fit(None) is detector
    assert detector.fit_features(None, None) is detector


def test_scores_are_higher_for_ood(model: Model, task: Task) -> None:
    detector = OutlierDetector(model)
    inside, outside = detector(task.test.x), detector.predict(task.ood_test["noise"].x)
    assert metrics.auroc(inside, outside) > 80
    assert torch.equal(inside, SCORES["unfamiliarity"](model.predict(task.test.x)))


def test_features_are_scored_like_inputs(model: Model, task: Task) -> None:
    detector = OutlierDetector(model, "energy")
    x = task.test.x[:9]
    assert detector.predict_features(model.embed(x, taps=True)).tolist() == pytest.approx(
        detector(x).tolist(), rel=1e-5
    )
    assert detector.to("cpu") is detector
    with pytest.raises(InputError, match=r"expected features \(B, \d+\) .* got \(9, 1, 8, 8\)"):
        detector.predict_features(x)
    with pytest.raises(InputError, match="got ndarray; predict takes inputs"):
        detector.predict_features(x.numpy())  # type: ignore[arg-type]


def test_a_detector_needs_a_model_and_a_score_that_exists(model: Model, task: Task) -> None:
    with pytest.raises(InputError, match="needs a gemfi Model, got Linear"):
        OutlierDetector(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown score 'nope'"):
        OutlierDetector(model, "nope")(task.test.x[:2])
    untrained = build_model("gem-fi", "mlp", task.num_classes, in_features=64, width=4)
    with pytest.raises(InputError, match=r"no `log_familiarity`: .* not before its statistics"):
        OutlierDetector(untrained)(task.test.x[:2])


# ---------------------------------------------------------------- OpenOOD


def test_the_postprocessor_walks_through_a_loader(model: Model, task: Task) -> None:
    batches = [
        {"data": task.test.x[start : start + 50], "label": task.test.labels[start : start + 50]}
        for start in (0, 50)
    ]
    processor = Postprocessor()
    processor.setup(model, {}, {})
    predicted, confidence, labels = processor.inference(model, batches, progress=False)
    belief = model.predict(task.test.x[:100])
    assert predicted.tolist() == belief.labels().tolist()
    assert confidence == pytest.approx(-SCORES["unfamiliarity"](belief).numpy(), rel=1e-4)
    assert labels.tolist() == task.test.labels[:100].tolist()
    assert predicted.dtype == np.int64


def test_the_postprocessor_takes_models_alone(model: Model) -> None:
    with pytest.raises(InputError, match="must be a trained gemfi Model, got Linear"):
        Postprocessor().setup(torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="holds no batch"):
        Postprocessor().inference(model, [], progress=False)


# ---------------------------------------------------------------- Lightning


def loader(split: Any, *, shuffle: bool) -> DataLoader[Any]:
    data = TensorDataset(split.x, split.labels)
    generator = torch.Generator().manual_seed(0)
    return DataLoader(data, batch_size=32, shuffle=shuffle, generator=generator)


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and loggers
def test_a_trainer_trains_a_model(task: Task, tmp_path: Any) -> None:
    import lightning  # noqa: PLC0415 - seconds

    torch.manual_seed(0)
    model = build_model("gem-fi", "convnet", task.num_classes, size=8, channels=16)
    module = lightning_module(
        model, task.train, task.validation, TrainConfig(learning_rate=5e-3, batch_size=32)
    )
    trainer = lightning.Trainer(
        max_epochs=6, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, loader(task.train, shuffle=True), loader(task.validation, shuffle=False))
    belief = module.model.predict(task.test)
    assert metrics.accuracy(belief.probs(), task.test.labels) > 90
    outside = model.predict(task.ood_test["noise"])
    score = SCORES["unfamiliarity"]
    assert metrics.auroc(score(belief), score(outside)) > 90
    assert 90 < trainer.callback_metrics["val_accuracy"] <= 100  # percent, as in a fit's history
    assert model.inputs.sample_shape == (1, 8, 8)


def test_ensembles_and_other_roles_are_refused(task: Task) -> None:
    ensemble = build_model("ensemble", "mlp", task.num_classes, in_features=64, width=4)
    with pytest.raises(InputError, match="ensemble trains its members one by one"):
        lightning_module(ensemble, task.train)
    single = build_model("edl", "mlp", task.num_classes, in_features=64, width=4)
    with pytest.raises(RoleError, match="which training refuses"):
        lightning_module(single, task.test)
