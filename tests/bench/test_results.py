"""Results: rows, seeds, sets and numbers of a bench."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from gemfi.errors import InputError
from gemfi_bench.grid import ABLATION, MAIN
from gemfi_bench.results import Results, mean_of, of_set, of_shift, of_test
from gemfi_bench.runner import GRID
from support.benches import classified, detected, made_results


def test_values_are_means_over_seeds_with_the_keys_of_their_runs(tmp_path: Path) -> None:
    rows = {(MAIN, "a"): [classified(accuracy=v) for v in (95.0, 97.0)]}
    value = made_results(tmp_path, rows).value("a", of_test("accuracy"))
    assert value is not None
    assert (value.mean, value.n, len(value.keys)) == (96.0, 2, 2)
    assert value.std == pytest.approx(np.std([95.0, 97.0], ddof=1))


def test_rows_are_those_of_their_group_in_the_order_of_the_grid(tmp_path: Path) -> None:
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {
        (MAIN, "b"): [classified()],
        (ABLATION, "c"): [classified()],
        (MAIN, "a"): [classified()],
    }
    results = made_results(tmp_path, rows)
    assert results.rows() == ["b", "a"]
    assert results.rows(ABLATION) == ["c"]
    assert results.runs("c") == []


def test_a_set_that_no_run_saw_is_absent(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "a"): [detected(noise=90.0)]})
    assert results.ood_sets == ["digits-8-9", "noise"]
    assert results.is_absent("digits-8-9")
    assert not results.is_absent("noise")
    pick = mean_of([of_set(name, "epistemic", "auroc") for name in results.ood_sets])
    assert results.value("a", pick) is None


def test_runs_of_an_earlier_grid_are_not_read(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "edl"): [classified(accuracy=90.0)] * 2})
    kept, other = results.runs("edl")
    grid = json.loads((tmp_path / GRID).read_text())
    (tmp_path / GRID).write_text(json.dumps(grid[:1]))
    assert list(Results(tmp_path).records) == [kept.key]
    assert other.key in Results(tmp_path).file.read()


def test_sets_that_were_seen_do_not_judge(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "edl"): [detected(noise=90.0, digits_8_9=80.0)]})
    seen = results.watched()
    seen.protocol = replace(seen.protocol, seen=("noise",))
    assert set(results.ood_sets) - set(seen.unseen_sets) == {"noise"}
    assert results.unseen_sets == results.ood_sets


def test_a_folder_that_is_no_bench_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no folder of a benchmark: it has no protocol\.json"):
        Results(tmp_path)


def test_an_unknown_row_is_refused(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "a"): [classified()]})
    with pytest.raises(InputError, match="no row 'b'"):
        results.method("b")


# -- a real bench ---------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["softmax", "edl", "gem-fi"])
def test_recorded_detection_is_scikit_learns(small_results: Results, row: str) -> None:
    run = small_results.runs(row)[0]
    sets = small_results.arrays(run)
    for name in small_results.ood_sets:
        for kind in ("aleatoric", "epistemic"):
            key = f"score/{run.scores[kind]}"
            scores = np.concatenate([sets["test"][key], sets[name][key]]).astype(np.float64)
            is_ood = np.arange(len(scores)) >= len(sets["test"][key])
            auroc = 100 * roc_auc_score(is_ood, scores)
            aupr = 100 * average_precision_score(~is_ood, -scores)
            assert of_set(name, kind, "auroc")(run) == pytest.approx(auroc, abs=1e-4)
            assert of_set(name, kind, "aupr_id")(run) == pytest.approx(aupr, abs=1e-4)


def test_recorded_accuracy_is_that_of_the_arrays(small_results: Results) -> None:
    for run in small_results.runs("gem-fi"):
        tested = small_results.arrays(run)["test"]
        right = (tested["log_probs"].argmax(axis=1) == tested["label"]).mean()
        assert of_test("accuracy")(run) == pytest.approx(100 * right, abs=1e-5)
        assert (tested["prediction"] == tested["log_probs"].argmax(axis=1)).all()


def test_shift_is_the_mean_over_types_against_the_clean_images(small_results: Results) -> None:
    (run, *_) = small_results.runs("gem-fi")
    sets = small_results.arrays(run)
    found = []
    for name in ("gaussian_noise-5", "contrast-5"):
        corrupted = sets[f"shift/{name}"]["score/max_prob"]
        clean = sets["test"]["score/max_prob"][: len(corrupted)]
        scores = np.concatenate([clean, corrupted]).astype(np.float64)
        is_corrupted = np.arange(len(scores)) >= len(clean)
        found.append(100 * average_precision_score(is_corrupted, scores))
    pick = of_shift(5, "aleatoric", "aupr_ood")
    assert pick(run) == pytest.approx(np.mean(found), abs=1e-4)


def test_every_run_says_what_it_was(small_results: Results) -> None:
    for run in small_results.records.values():
        assert set(run.data) >= {"train", "validation"}
        assert all(len(each["checksum"]) >= 8 for each in run.data.values())
        assert run.sessions[-1]["torch"]
        assert run.seconds["train"] > 0
        assert run.spec["train"]["seed"] in (0, 1)


def test_an_assembled_ensemble_is_the_mean_of_its_members(small_results: Results) -> None:
    (whole,) = small_results.runs("ensemble")
    members = [
        small_results.arrays(run)["test"]["log_probs"] for run in small_results.runs("softmax")
    ]
    mean = np.mean([np.exp(each.astype(np.float64)) for each in members], axis=0)
    found = np.exp(small_results.arrays(whole)["test"]["log_probs"].astype(np.float64))
    np.testing.assert_allclose(found, mean, atol=1e-5)
    assert len(whole.members) == 2


def test_detectors_are_those_of_the_softmax_runs(small_results: Results) -> None:
    (run, *_) = small_results.runs("softmax")
    assert set(run.detectors) >= {"maxp", "odin", "mahalanobis", "lts", "ddu", "knn"}
    assert of_set("noise", "knn", "auroc")(run) is not None
    assert not small_results.runs("edl")[0].detectors


def test_sets_are_named_with_the_part_that_was_at_hand(tmp_path: Path) -> None:
    names = {
        "svhn": "svhn/test, first 5,000",
        "tiny-imagenet": "tiny-imagenet/val, seen in pretraining",
        "cifar100": "cifar100/test",
        "birds, 2024": "birds, 2024",
        "a/birds": "a/birds",
    }
    results = made_results(tmp_path, {(MAIN, "edl"): [classified(accuracy=90.0)]})
    data = {name: {"split": split, "n": 5} for name, split in names.items()}
    results.records = {key: replace(run, data=data) for key, run in results.records.items()}
    whole = "TinyImageNet (all 200 classes)"
    titles = ["SVHN (first 5,000)", whole, "CIFAR-100", "birds, 2024", "a/birds"]
    assert [results.title(name) for name in names] == titles
    assert results.title("svhn", "far") == "SVHN (first 5,000, far)"
    assert results.title("mnist-c", "") == "MNIST-C"
    assert results.sizes == dict.fromkeys(names, 5)
    results.protocol = replace(results.protocol, task="cifar10-frozen")
    provenance, overlap = results.caveats(names)
    assert provenance == (
        "SVHN (first 5,000): the first 5,000 of the 26,032 test images, reconstructed from public "
        "upscaled copies, exact up to rounding."
    )
    assert overlap.startswith(f"{whole}: 22 of its 200 classes, 11 % of its images, are classes of")
    results.protocol = replace(results.protocol, task="svhn")
    assert results.caveats(names) == [provenance]
    assert results.caveats(["mnist-c", "nowhere"]) == []


def test_the_sets_of_a_task_may_change_after_its_runs(tmp_path: Path) -> None:
    """Kept records name the sets of their time; those of today have no column beside them."""
    record = {"test": {"id": {}}, "ood": {"tiny-imagenet": {"by_score": {}}}}
    results = made_results(tmp_path, {(MAIN, "edl"): [record]})
    absent = {"cifar100": "data absent", "dtd": "data absent"}
    results.records = {key: replace(run, absent=absent) for key, run in results.records.items()}
    results.protocol = replace(results.protocol, task="cifar10", near=(), far=("svhn",))
    assert results.ood_sets == ["svhn", "tiny-imagenet", "cifar100"]
    results.records = {}
    assert results.ood_sets == ["svhn", "cifar100", "tiny-imagenet-158"]
