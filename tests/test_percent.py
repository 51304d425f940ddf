"""Accuracy is in percent wherever gemfi reports it; only scikit-learn's `score` is a fraction."""

from __future__ import annotations

import pytest

from gemfi import GEMClassifier, Model, Split, TrainConfig, build_model, evaluate, fit, metrics
from gemfi.data import two_moons

TASK = two_moons(n=200)
CONFIG = TrainConfig(epochs=3, batch_size=20, learning_rate=1e-2)


def measured(model: Model, split: Split) -> float:
    return metrics.accuracy(model.predict(split.x).probs(), split.labels)


def test_history_and_evaluation() -> None:
    model = build_model("softmax", "mlp", TASK.num_classes, in_features=2, width=16)
    history = fit(model, TASK.train, TASK.validation, CONFIG, progress=False).history
    assert history[-1]["validation_accuracy"] == measured(model, TASK.validation)
    found = evaluate(model, TASK.test, TASK.ood_test)
    assert found.classification["accuracy"] == measured(model, TASK.test) > 50


def test_the_score_of_the_estimator() -> None:
    x, y = TASK.test.x.numpy(), TASK.test.labels.numpy()
    classifier = GEMClassifier("softmax", random_state=0, max_steps=50).fit(
        TASK.train.x.numpy(), TASK.train.labels.numpy()
    )
    assert classifier.score(x, y) == pytest.approx(measured(classifier.model_, TASK.test) / 100)
    assert classifier.history_[-1]["validation_accuracy"] > 1
