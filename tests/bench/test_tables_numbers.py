"""The numbers of the tables, against slow and obvious computations from the arrays of the runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize
from sklearn.metrics import average_precision_score, roc_auc_score

from gemfi_bench.grid import ABLATION, COMPONENTS, FISHER, KL, MAIN, OUTLIERS
from gemfi_bench.results import Results, of_detector
from gemfi_bench.tables import TABLES
from gemfi_bench.tables.classification import scaled
from gemfi_bench.tables.common import Measured, Source
from gemfi_bench.tables.detection import of_corrupted
from gemfi_bench.tabular import Value
from support.cells import Sets, cell, over_runs, same

NEAR, NOISE = "digits-8-9", "noise"


def id_positive(array: str, name: str) -> Callable[[Sets], float]:
    def measure(sets: Sets) -> float:
        inside, outside = sets["test"][array], sets[name][array]
        is_id = np.r_[np.ones(len(inside)), np.zeros(len(outside))]
        return 100 * float(average_precision_score(is_id, -np.r_[inside, outside]))

    return measure


def auroc(array: str, name: str) -> Callable[[Sets], float]:
    def measure(sets: Sets) -> float:
        inside, outside = sets["test"][array], sets[name][array]
        is_ood = np.r_[np.zeros(len(inside)), np.ones(len(outside))]
        return 100 * float(roc_auc_score(is_ood, np.r_[inside, outside]))

    return measure


def pair(name: str, where: str) -> str:
    return f"digits → {name} ({where})"


# -- detection ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "name", "column", "array"),
    [
        ("gem-fi", "GEM-FI", "Alea.", "score/max_prob"),
        ("gem-fi", "GEM-FI", "Epis.", "score/unfamiliarity"),
        ("daedl", "DAEDL", "Epis.", "score/evidence"),
        ("ensemble", "Ensemble", "Epis.", "score/disagreement"),
        ("softmax", "Softmax", "Epis.", "score/logit_energy"),
        ("softmax", "Softmax + ODIN", "Alea.", "detector/odin"),
        ("softmax", "Softmax + Energy", "Epis.", "detector/energy"),
        ("softmax", "Softmax + DDU", "Epis.", "detector/ddu"),
    ],
)
def test_aupr_and_auroc_by_method(
    row: str, name: str, column: str, array: str, small_results: Results
) -> None:
    aupr, area = TABLES["table2"](small_results), TABLES["table2b"](small_results)
    for each, where in ((NEAR, "near"), (NOISE, "far")):
        group = pair(each, where)
        expected = over_runs(small_results, row, id_positive(array, each))
        same(cell(aupr, name, column, group), expected)
        expected = over_runs(small_results, row, auroc(array, each))
        same(cell(area, name, column, group), expected)


def test_a_detector_is_never_taken_for_a_score_of_the_same_name(small_results: Results) -> None:
    run = small_results.runs("gem-fi")[0]
    assert "energy" in run.numbers["ood"][NOISE]["by_score"]
    assert of_detector(NOISE, "energy", "auroc")(run) is None


def test_the_scores_of_gem_fi(small_results: Results) -> None:
    table = TABLES["ood_aupr_auroc"](small_results)
    group = pair(NOISE, "far")
    for name, score in (
        ("MaxP (1 − max p)", "max_prob"),
        ("α0 (evidence, with ρ)", "evidence"),
        ("Energy (learned)", "energy"),
        ("MI as JSD of the heads", "disagreement"),
        ("MI, total", "mutual_information"),
        ("Density (−log p(z))", "density"),
    ):
        for section, row, of in (
            ("GEM-FI", "gem-fi", MAIN),
            ("GEM-FI, paper's settings", "ablation-full", ABLATION),
        ):
            expected = over_runs(small_results, row, id_positive(f"score/{score}", NOISE), of)
            same(cell(table, name, "AUPR", group, section), expected)
            expected = over_runs(small_results, row, auroc(f"score/{score}", NOISE), of)
            same(cell(table, name, "AUROC", group, section), expected)

    def ood_positive(sets: Sets) -> float:
        values = np.r_[sets["test"]["score/entropy"], sets[NOISE]["score/entropy"]]
        is_ood = np.arange(len(values)) >= len(sets["test"]["score/entropy"])
        return 100 * float(average_precision_score(is_ood, values))

    expected = over_runs(small_results, "gem-fi", ood_positive)
    same(cell(table, "Entropy", "AUPR, OOD+", group, "GEM-FI"), expected)


def test_rho_one_is_the_bare_evidence_of_the_same_runs(small_results: Results) -> None:
    table = TABLES["rho_one_appendix"](small_results)
    group = pair(NOISE, "far")
    for name, score in (("with ρ(z)", "evidence"), ("with ρ(z) = 1", "bare_evidence")):
        expected = over_runs(small_results, "gem-fi", id_positive(f"score/{score}", NOISE))
        same(cell(table, f"GEM-FI {name}", "Epis.", group, "Settings here"), expected)
        expected = over_runs(small_results, "gem-fi", id_positive("score/max_prob", NOISE))
        same(cell(table, f"GEM-FI {name}", "Alea.", group, "Settings here"), expected)


def test_the_sweeps_show_the_runs_of_their_rows(small_results: Results) -> None:
    for label, group, row, name, score in (
        ("lambda_fi_appendix", FISHER, "1", "1", "unfamiliarity"),
        ("lambda_kl_appendix", KL, "0.0001", "0.0001 (default)", "unfamiliarity"),
        ("gemfi_k_cifar", COMPONENTS, "2", "2", "unfamiliarity"),
        ("fair_vos_appendix", OUTLIERS, "daedl+vos", "DAEDL + VOS", "evidence"),
        ("vos_replace_appendix", OUTLIERS, "gem-fi+noise", "GEM-FI + feature-space noise", None),
        ("table5", ABLATION, "ablation-mix", "4. MIX", "evidence"),
    ):
        measure = id_positive(f"score/{score or 'unfamiliarity'}", NEAR)
        expected = over_runs(small_results, row, measure, group)
        same(cell(TABLES[label](small_results), name, "Epis.", pair(NEAR, "near")), expected)


# -- corruptions ----------------------------------------------------------------------------------


def corrupted(array: str, severity: int) -> Callable[[Sets], float]:
    def measure(sets: Sets) -> float:
        found = []
        for kind in ("gaussian_noise", "contrast"):
            values = sets[f"shift/{kind}-{severity}"][array]
            clean = sets["test"][array][: len(values)]
            is_corrupted = np.r_[np.zeros(len(clean)), np.ones(len(values))]
            found.append(average_precision_score(is_corrupted, np.r_[clean, values]))
        return 100 * float(np.mean(found))

    return measure


def test_corruptions_by_severity(small_results: Results) -> None:
    table = TABLES["shift_detection_corruptions"](small_results)
    for severity in (1, 5):
        column = f"C = {severity}"
        expected = over_runs(small_results, "gem-fi", corrupted("score/max_prob", severity))
        same(cell(table, "GEM-FI", column, "AUPR, aleatoric"), expected)
        expected = over_runs(small_results, "edl", corrupted("score/evidence", severity))
        same(cell(table, "EDL", column, "AUPR, epistemic"), expected)

        def accuracy(sets: Sets, severity: int = severity) -> float:
            parts = [sets[f"shift/{kind}-{severity}"] for kind in ("gaussian_noise", "contrast")]
            return 100 * float(np.mean([(p["prediction"] == p["label"]).mean() for p in parts]))

        same(cell(table, "EDL", column, "Accuracy"), over_runs(small_results, "edl", accuracy))


def test_a_score_that_the_records_leave_out_comes_from_the_arrays(
    small_folder: Path, tmp_path: Path
) -> None:
    for name in ("protocol.json", "grid.json", "arrays"):
        (tmp_path / name).symlink_to(small_folder / name)
    records = []
    for line in (small_folder / "records.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["spec"]["method"] == "edl":
            record["scores"]["epistemic"] = "vacuity"  # as of CEDL+, which is not in the records
        records.append(record)
    text = "".join(f"{json.dumps(each)}\n" for each in records)
    (tmp_path / "records.jsonl").write_text(text, encoding="utf-8")
    results = Results(tmp_path)
    run = results.runs("edl")[0]
    assert "vacuity" not in run.numbers["shift"]["contrast-5"]["by_score"]
    expected = corrupted("score/vacuity", 5)(results.arrays(run))
    assert of_corrupted(results, 5, "epistemic")(run) == pytest.approx(expected)
    (tmp_path / "arrays").unlink()
    assert of_corrupted(Results(tmp_path), 5, "epistemic")(run) is None


# -- classification -------------------------------------------------------------------------------


def test_classification(small_results: Results) -> None:
    table = TABLES["table3"](small_results)
    found: dict[str, list[float]] = {}
    for run in small_results.runs("gem-fi"):
        test = small_results.arrays(run)["test"]
        p, y = np.exp(test["log_probs"].astype(np.float64)), test["label"]
        right = p.argmax(axis=1) == y
        bins: dict[int, list[int]] = {}
        for at, top in enumerate(p.max(axis=1)):
            bins.setdefault(math.ceil(top * 15), []).append(at)
        gaps = [abs(right[b].mean() - p[b].max(axis=1).mean()) * len(b) for b in bins.values()]
        order = np.argsort(-p.max(axis=1))
        risks = [1 - right[order[: n + 1]].mean() for n in range(len(y))]
        wanted = {
            "Test acc.": 100 * right.mean(),
            "AUPR": 100 * average_precision_score(right, p.max(axis=1)),
            "AP of errors": 100 * average_precision_score(~right, -p.max(axis=1)),
            "AUROC": 100 * roc_auc_score(right, p.max(axis=1)),
            "AURC": 100 * np.mean(risks),
            "Brier ×100": 100 * np.mean(((p - np.eye(7)[y]) ** 2).sum(axis=1)),
            "NLL": -np.mean([math.log(p[at, label]) for at, label in enumerate(y)]),
            "ECE": 100 * sum(gaps) / len(y),
        }
        for name, value in wanted.items():
            found.setdefault(name, []).append(float(value))
    shown = dict(zip((each.name for each in table.columns), table.rows[-1].cells, strict=True))
    assert table.rows[-1].name == "GEM-FI"
    assert shown.keys() == found.keys()
    for name, values in found.items():
        same(shown[name], values, 1e-4)


def test_temperature_scaling(small_results: Results) -> None:
    table = TABLES["table13-cifar10"](small_results)
    found: dict[str, list[float]] = {}
    for run in small_results.runs("daedl"):
        sets = small_results.arrays(run)
        validation, test = sets["validation"], sets["test"]

        def nll(log_t: float, arrays: Mapping[str, Any]) -> float:
            scores = arrays["log_probs"].astype(np.float64) / math.exp(log_t)
            total = np.log(np.exp(scores).sum(axis=1))
            return float(np.mean(total - scores[np.arange(len(scores)), arrays["label"]]))

        best = optimize.minimize_scalar(
            nll, args=(validation,), bounds=(math.log(0.05), math.log(20)), method="bounded",
            options={"xatol": 1e-9},
        )  # fmt: skip
        found.setdefault("T", []).append(math.exp(best.x))
        found.setdefault("before", []).append(nll(0.0, test))
        found.setdefault("after", []).append(nll(best.x, test))
        ood = run.numbers["ood"]
        areas = [ood[name]["by_score"]["evidence"]["auroc"] for name in ood]
        found.setdefault("auroc", []).append(sum(areas) / 4)
    same(cell(table, "DAEDL", "T"), found["T"], 1e-4)
    same(cell(table, "DAEDL", "before", "NLL"), found["before"], 1e-6)
    same(cell(table, "DAEDL", "after", "NLL"), found["after"], 1e-5)
    same(cell(table, "DAEDL", "Mean AUROC", "OOD detection"), found["auroc"])


def test_temperature_scaling_never_raises_the_nll_on_its_own_data(small_results: Results) -> None:
    for row in ("softmax", "gem-core", "gem-fi"):
        for run in small_results.runs(row):
            validation = small_results.arrays(run)["validation"]
            found = scaled({"validation": validation, "test": validation})
            assert found["nll after"] <= found["nll before"] + 1e-9


def test_the_effect_of_scaling_on_gem_is_that_of_the_comparison(small_results: Results) -> None:
    all_of_them, gem = (
        TABLES["table13-cifar10"](small_results),
        TABLES["ts_calibration"](small_results),
    )
    for group in ("ECE", "NLL", "Brier ×100"):
        for moment in ("before", "after"):
            expected = cell(all_of_them, "GEM-MIX", moment, group)
            assert cell(gem, "GEM-MIX", moment, group) == expected


def test_a_temperature_without_an_optimum_is_flagged(
    small_results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_results.runs("gem-fi")[0]
    sets = dict(small_results.arrays(run))
    log_probs = sets["validation"]["log_probs"]
    sets["validation"] = {"log_probs": log_probs, "label": log_probs.argmax(axis=1)}
    monkeypatch.setattr(small_results, "arrays", lambda _run: sets)
    shown = cell(TABLES["ts_calibration"](small_results), "GEM-FI", "T")
    assert isinstance(shown, Value)
    assert shown.mean == pytest.approx(0.05)
    assert shown.flag is not None
    assert "at a bound (0.05 or 20) in 2 of 2 runs" in shown.flag


def test_ablation_and_sweeps_show_the_classifier_too(small_results: Results) -> None:
    def accuracy(sets: Sets) -> float:
        return 100 * float((sets["test"]["prediction"] == sets["test"]["label"]).mean())

    def right(sets: Sets) -> float:
        log_p, label = sets["test"]["log_probs"], sets["test"]["label"]
        return 100 * float(
            average_precision_score(log_p.argmax(axis=1) == label, log_p.max(axis=1))
        )

    def nll(sets: Sets) -> float:
        log_p = sets["test"]["log_probs"].astype(np.float64)
        return -float(
            np.mean([row[y] for row, y in zip(log_p, sets["test"]["label"], strict=True)])
        )

    ablation, row = TABLES["table5"](small_results), "ablation-sn"
    expected = over_runs(small_results, row, accuracy, ABLATION)
    same(cell(ablation, "2. SN", "Test acc.", "ID test"), expected)
    expected = over_runs(small_results, row, right, ABLATION)
    same(cell(ablation, "2. SN", "AUPR", "ID test"), expected, 1e-3)
    heads = TABLES["gemfi_k_cifar"](small_results)
    expected = over_runs(small_results, "2", accuracy, COMPONENTS)
    same(cell(heads, "2", "Test acc.", "ID test"), expected)
    same(cell(heads, "2", "NLL", "ID test"), over_runs(small_results, "2", nll, COMPONENTS), 1e-5)


def test_runs_that_do_not_define_a_number_are_left_out_of_its_mean(small_results: Results) -> None:
    source = Source(small_results, "GEM-FI", "gem-fi")
    numbers = iter([math.nan, 3.0])
    found = Measured(source, lambda _sets: {"some": next(numbers), "none": math.nan})
    second = small_results.runs("gem-fi")[1].key
    expected = Value(3.0, None, 1, (second,), missing=1)
    assert found.cell("some") == expected
    assert found.cell("none") is None
