"""What is said of the default presets holds on OOD-validation data, which no training has seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gemfi import diagnosis, metrics, scores
from gemfi.belief import Belief
from gemfi.data import Split, digits, registered_task
from gemfi.detectors import knn_distance
from gemfi.methods import PRESETS
from gemfi.model import Model, build_model
from gemfi.training import TrainConfig, fit
from gemfi_bench.trials import support


def auroc(score: scores.Score, inside: Belief, outside: Belief) -> float:
    return metrics.ood_metrics(score(inside), score(outside))["auroc"]


def distances(model: Model, train: Split, *others: Split) -> torch.Tensor:
    reference = model.embed(train)
    return torch.cat([knn_distance(model.embed(each), reference) for each in others])


def train_on_digits(
    seed: int, method: str = "gem-fi", **options: object
) -> tuple[Model, Belief, Belief]:
    task = digits()
    torch.manual_seed(seed)
    model = build_model(method, "convnet", 7, size=8, channels=32, **options)
    config = TrainConfig(epochs=20, batch_size=32, learning_rate=5e-3, seed=seed)
    fit(model, task.train, task.validation, config, progress=False)
    sevens = task.ood_validation["digits-7"]
    return model, model.predict(task.validation), model.predict(sevens)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_energy_gate_and_heads_on_digits(seed: int) -> None:
    task = digits()
    model, inside, outside = train_on_digits(seed)
    both = Belief.cat([inside, outside])
    distance = distances(model, task.train, task.validation, task.ood_validation["digits-7"])
    found = support(both, distance.double())
    assert metrics.accuracy(inside.probs(), task.validation.labels) > 96
    assert auroc(scores.energy, inside, outside) > 95
    assert auroc(scores.evidence, inside, outside) > 95
    assert auroc(scores.unfamiliarity, inside, outside) > 95
    assert found.energy is not None
    assert found.energy > 0.6
    assert found.gate is not None
    assert found.gate < -0.6
    assert found.label_changes == 0
    assert diagnosis.heads(inside).used > 2.5


@pytest.mark.slow
def test_the_papers_outliers_teach_the_energy_the_wrong_sign() -> None:
    _, inside, outside = train_on_digits(0, "gem-paper")
    assert auroc(scores.energy, inside, outside) < 60


@pytest.mark.slow
def test_without_its_entropy_term_the_router_uses_one_head() -> None:
    _, inside, _ = train_on_digits(0, config=replace(PRESETS["gem-fi"], pi_entropy=0.0))
    assert diagnosis.heads(inside).used < 1.5


@pytest.mark.slow
def test_energy_on_mnist(data_dir: Path) -> None:
    task = registered_task("mnist", data_dir)
    few = Split(task.train.x[:8000], task.train.labels[:8000], task.train.role, "mnist")
    torch.manual_seed(0)
    model = build_model("gem-fi", "convnet", 10, normalisation=task.normalisation)
    fit(model, few, task.validation, TrainConfig(epochs=2, batch_size=64), progress=False)
    letters = task.ood_validation["notmnist"]
    inside, outside = model.predict(task.validation), model.predict(letters)
    assert auroc(scores.energy, inside, outside) > 95
    assert auroc(scores.unfamiliarity, inside, outside) > 95
