"""Evaluation: its numbers are the metrics of the named scores, and roles are kept."""

from __future__ import annotations

import pytest
import torch

from gemfi import metrics, scores
from gemfi.data import as_split, two_moons
from gemfi.errors import RoleError
from gemfi.evaluation import evaluate
from gemfi.methods import METHODS
from gemfi.model import build_model

TASK = two_moons(n=100)


@pytest.mark.parametrize("name", list(METHODS))
def test_rows_hold_the_metrics_of_the_methods_own_scores(name: str) -> None:
    model = build_model(name, "mlp", 2, in_features=2, width=8)
    row = evaluate(model, TASK.test, TASK.ood_test).row("cluster")
    inside, outside = model.predict(TASK.test.x), model.predict(TASK.ood_test["cluster"].x)
    for kind in ("aleatoric", "epistemic"):
        score = scores.SCORES[getattr(METHODS[name].info, kind)]
        for metric in ("auroc", "aupr_id", "aupr_ood", "fpr95"):
            expected = getattr(metrics, metric)(score(inside), score(outside))
            assert row[f"{metric}_{kind}"] == expected
    assert row["accuracy"] == metrics.accuracy(inside.probs(), TASK.test.labels)
    assert row["brier"] == pytest.approx(metrics.brier(inside.probs(), TASK.test.labels))
    assert row["ece"] == pytest.approx(metrics.ece(inside.probs(), TASK.test.labels))
    assert (row["method"], row["ood"]) == (name, "cluster")


def test_training_data_is_not_for_evaluation() -> None:
    model = build_model("softmax", "mlp", 2, in_features=2, width=8)
    with pytest.raises(RoleError, match="role train, which evaluation refuses"):
        evaluate(model, TASK.train, TASK.ood_test)
    auxiliary = as_split(torch.zeros(3, 2), role="auxiliary")
    with pytest.raises(RoleError, match="role auxiliary, which evaluation refuses"):
        evaluate(model, TASK.test, {"far": auxiliary})
