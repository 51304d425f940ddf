"""Evaluation: its numbers are the metrics of the named scores, and roles are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from gemfi import metrics, scores
from gemfi.data import as_split, two_moons
from gemfi.errors import InputError, RoleError
from gemfi.evaluation import evaluate, fit_detectors
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
    with pytest.raises(InputError, match=r"an evaluation needs a finished model, and the dens"):
        evaluate(model, TASK.test)


def test_a_stream_gives_the_numbers_of_the_same_data_in_memory() -> None:
    """In batches of another size; of what has no length and no rows, too."""
    model = build_model("gem-fi", "mlp", 2, in_features=2, width=8)
    model.finish(TASK.train, TASK.validation)
    far, test = TASK.ood_test["cluster"], TASK.test

    class Walk(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return zip(test.x, test.labels.tolist(), strict=True)

    detectors = fit_detectors(model, ["odin", "ddu", "knn"], TASK.train, TASK.validation)
    found = evaluate(model, test, {"far": far}, detectors)
    streams = [as_split(DataLoader(Walk(), batch_size=33), role="test")]
    streams += [as_split(DataLoader(TensorDataset(far.x), batch_size=70), role="ood-test")]
    streamed = evaluate(model, streams[0], {"far": streams[1]}, detectors)
    assert streamed.classification == pytest.approx(found.classification, rel=1e-5)
    for score in ("aleatoric", "epistemic"):
        numbers = found.ood["far"][score]
        assert streamed.ood["far"][score] == pytest.approx(numbers, rel=1e-5)
    for name, numbers in found.ood["far"]["by_detector"].items():
        assert streamed.ood["far"]["by_detector"][name] == pytest.approx(numbers, rel=1e-5), name
    section = streamed.section()
    assert (section["id"]["n"], section["ood"]["far"]["n"]) == (len(test), len(far))
    for name, values in found.scored.by_score.items():
        torch.testing.assert_close(
            streamed.scored.by_score[name], values, rtol=1e-4, atol=1e-5, msg=name
        )
    with pytest.raises(InputError, match="beliefs on a stream are not kept"):
        _ = streamed.belief


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
