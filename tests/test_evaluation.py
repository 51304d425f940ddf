"""Evaluation: its numbers are the metrics of the named scores, and roles are kept."""

from __future__ import annotations

import pytest

from gemfi import metrics, scores
from gemfi.data import as_split, two_moons
from gemfi.errors import InputError, RoleError
from gemfi.evaluation import evaluate
from gemfi.methods import METHODS
from gemfi.model import build_model

TASK = two_moons(n=100)


@pytest.mark.parametrize("name", list(METHODS))
def test_rows_hold_the_metrics_of_the_methods_own_scores(name: str) -> None:
    model = build_model(name, "mlp", 2, in_features=2, width=8)
    model.head.fit_statistics([(model.embed(TASK.train), TASK.train.labels)], None)
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


def test_a_model_that_was_never_trained_says_so() -> None:
    model = build_model("gem-fi", "mlp", 2, in_features=2, width=8)
    with pytest.raises(InputError, match=r"no `log_familiarity`: .* not before its statistics"):
        evaluate(model, TASK.test)


def test_each_place_takes_its_roles_only() -> None:
    model = build_model("softmax", "mlp", 2, in_features=2, width=8)
    with pytest.raises(RoleError, match="role train, which evaluation as ID data refuses"):
        evaluate(model, TASK.train, TASK.ood_test)
    with pytest.raises(RoleError, match="role ood-test, which evaluation as ID data refuses"):
        evaluate(model, TASK.ood_test["cluster"])
    for role in ("auxiliary", "test"):
        y = TASK.test.labels if role == "test" else None
        split = as_split(TASK.test.x, y, role=role)
        with pytest.raises(RoleError, match=f"role {role}, which evaluation as OOD data refuses"):
            evaluate(model, TASK.test, {"far": split})


def test_ood_sets_are_optional_and_named() -> None:
    model = build_model("softmax", "mlp", 2, in_features=2, width=8)
    assert evaluate(model, TASK.test).ood == {}
    with pytest.raises(InputError, match="ood must map names to splits, got Split"):
        evaluate(model, TASK.test, TASK.ood_test["cluster"])
    with pytest.raises(InputError, match="no OOD set 'svhn' was evaluated; there are: cluster"):
        evaluate(model, TASK.test, TASK.ood_test).row("svhn")
