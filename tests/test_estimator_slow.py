"""GEMClassifier where it takes time: other methods under scikit-learn's checks, and real data."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gemfi.data import registered_task
from gemfi.estimator import GEMClassifier

pytestmark = pytest.mark.slow


@parametrize_with_checks(
    [GEMClassifier(method) for method in ("softmax", "edl", "daedl")],
    expected_failed_checks=lambda _: dict.fromkeys(
        ["check_sample_weight_equivalence_on_dense_data"], "weights are drawn by: test_estimator.py"
    ),
)
def test_the_checks_of_scikit_learn(
    estimator: GEMClassifier, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    try:
        check(estimator)
    except unittest.SkipTest as skipped:
        pytest.fail(f"skipped: {skipped}")


def test_iris_in_five_folds() -> None:
    x, y = load_iris(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    found = cross_val_score(GEMClassifier(random_state=0), x, y, cv=folds)
    assert found.mean() > 0.93


@pytest.mark.parametrize("read", [load_wine, load_breast_cancer, load_digits])
def test_no_worse_than_a_perceptron_of_scikit_learn(read: Any) -> None:
    x, y = read(return_X_y=True)
    network = make_pipeline(StandardScaler(), MLPClassifier(random_state=0, max_iter=1000))
    accuracies, losses = [], []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(x, y):
        ours = GEMClassifier(random_state=0).fit(x[train], y[train])
        theirs = network.fit(x[train], y[train])
        accuracies.append([each.score(x[test], y[test]) for each in (ours, theirs)])
        losses.append([log_loss(y[test], each.predict_proba(x[test])) for each in (ours, theirs)])
    accuracy, loss = np.mean(accuracies, axis=0), np.mean(losses, axis=0)
    assert accuracy[0] > accuracy[1] - 0.015
    assert loss[0] < loss[1] + 0.05


def test_false_alarms_on_digits_hold_over_many_divisions() -> None:
    x, y = load_digits(return_X_y=True)
    found = []
    for seed in range(8):
        train, test, seen, _ = train_test_split(x, y, stratify=y, random_state=seed)
        classifier = GEMClassifier("edl", random_state=seed).fit(train, seen)
        found.append((classifier.decide(test, false_alarm=0.1).verdict == 2).mean())
    # 135 calibration samples: the rate of one division has a deviation of 0.025
    assert np.mean(found) == pytest.approx(0.1, abs=0.03)


def test_mnist_as_rows_of_784_numbers(data_dir: Path) -> None:
    task = registered_task("mnist", data_dir)
    # drawn at random: the first ones are of a few writers, and others would be unfamiliar
    chosen = np.random.default_rng(0).permutation(len(task.train))[:8000]
    rows, labels = task.train.x[chosen].flatten(1), task.train.labels[chosen]
    classifier = GEMClassifier(random_state=0).fit(rows, labels)
    test, letters = task.validation, task.ood_validation["notmnist"]
    assert classifier.score(test.x.flatten(1), test.labels) > 0.93
    share = (classifier.decide(test.x.flatten(1)).verdict == 2).mean()
    assert share == pytest.approx(0.05, abs=0.03)
    assert (classifier.decide(letters.x.flatten(1)).verdict == 2).mean() > 0.6
