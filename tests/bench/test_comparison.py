"""Ours beside the paper's numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemfi.data.registry import DATA_SETS
from gemfi_bench.comparison import comparisons
from gemfi_bench.grid import MAIN
from gemfi_bench.protocol import Shift
from gemfi_bench.results import Results
from gemfi_bench.tabular import Table, Value
from support.benches import made_results


def of_task(results: Results, task: str) -> dict[str, Table]:
    results.protocol = replace(results.protocol, task=task)
    return {table.label: table for table in comparisons(results)}


def numbers(value: float) -> dict[str, object]:
    entry = {"by_score": {"entropy": {"aupr_id": value, "auroc": value}}, "by_detector": {}}
    return {"test": {"id": {"accuracy": 99.0}}, "ood": {"kmnist": entry}}


def test_a_number_stands_beside_its_counterpart(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [numbers(97.5)]})
    table = of_task(results, "mnist")["published-table2"]
    rows = {(row.method, row.cells[0]): row.cells for row in table.rows}
    ours, theirs = rows["gem-fi", "KMNIST: epistemic"][1:3]
    assert isinstance(ours, Value)
    assert isinstance(theirs, Value)
    assert (ours.mean, theirs.mean, theirs.std) == (97.5, 99.96, 0.01)
    assert rows["gem-fi", "FashionMNIST: epistemic"][1] == "data absent"
    assert rows["edl", "KMNIST: epistemic"][1] == "not run"


def test_other_data_have_no_place_in_a_table(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [numbers(97.5)]})
    table = of_task(results, "mnist")["published-table2"]
    assert {str(row.cells[0]).partition(":")[0] for row in table.rows} == {"KMNIST", "FashionMNIST"}


def test_data_that_are_not_the_papers_have_the_audit_alone(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [numbers(97.5)]})
    tables = of_task(results, "digits")
    assert list(tables) == ["published-audit"]
    found = [row for row in tables["published-audit"].rows if "impossible" in row.cells]
    assert len(found) == 6


def test_impossible_numbers_carry_their_flag(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [numbers(97.5)]})
    table = of_task(results, "cifar10")["published-table3"]
    (theirs,) = [
        row.cells[2] for row in table.rows if row.method == "gem-core" and row.cells[0] == "Brier"
    ]
    assert isinstance(theirs, Value)
    assert theirs.flag is not None
    assert theirs.flag.startswith("impossible")


# -- why there is no number -----------------------------------------------------------------------


def ours(results: Results, task: str, label: str) -> dict[tuple[str, str], object]:
    """Row and column of the paper -> the cell of ours."""
    table = of_task(results, task)[f"published-{label}"]
    return {(str(row.method), str(row.cells[0])): row.cells[1] for row in table.rows}


def cifar(**aurocs: float) -> dict[str, object]:
    sets = {
        name: {"by_score": {"entropy": {"auroc": value}}, "by_detector": {}}
        for name, value in aurocs.items()
    }
    return {"test": {"id": {"accuracy": 90.0}}, "ood": sets}


def test_a_mean_over_sets_of_which_one_is_absent_says_so(tmp_path: Path) -> None:
    results = made_results(tmp_path / "a", {(MAIN, "gem-fi"): [cifar(svhn=90.0)]})
    assert ours(results, "cifar10", "table13-cifar10")["gem-fi", "mean AUROC"] == "data absent"
    both = made_results(tmp_path / "b", {(MAIN, "gem-fi"): [cifar(svhn=90.0, cifar100=80.0)]})
    value = ours(both, "cifar10", "table13-cifar10")["gem-fi", "mean AUROC"]
    assert isinstance(value, Value)
    assert value.mean == 85.0


def test_accuracy_on_id_data_needs_no_ood_set(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [cifar(svhn=90.0)]})
    cells = ours(results, "cifar10", "ood_aupr_auroc")
    accuracy = cells["cifar10>cifar100", "accuracy"]
    assert isinstance(accuracy, Value)
    assert accuracy.mean == 90.0
    assert cells["cifar10>cifar100", "entropy: AUROC"] == "data absent"
    assert cells["cifar10>svhn", "entropy: AUPR"] == "no number"


def test_without_any_record_nothing_is_absent(tmp_path: Path) -> None:
    results = made_results(tmp_path, {})
    assert not results.is_absent("kmnist")
    cells = ours(results, "mnist", "table2")
    assert cells["gem-fi", "KMNIST: epistemic"] == "not run"
    assert "data absent" not in cells.values()


def test_a_set_that_was_sought_in_vain_is_absent(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [numbers(97.5)]})
    assert results.is_absent("fashion-mnist")
    assert not results.is_absent("kmnist")


def test_other_base_rates_are_told_where_aupr_is_compared(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [cifar(svhn=90.0)]})
    sizes = {"test": 10_000, "svhn": 5_000, "tiny-imagenet": 10_000}
    data = {name: {"n": n, "split": f"{name}/test"} for name, n in sizes.items()}
    data["svhn"]["split"] = "svhn/test, first 5,000"
    results.records = {key: replace(run, data=data) for key, run in results.records.items()}
    tables = of_task(results, "cifar10")
    told = "SVHN: ours are 5,000 images beside 10,000 ID ones, the paper's 26,032 beside 10,000"
    aupr = "; AUPRs do not compare: a constant score has 66.7 here, 27.8 there."
    for label, more in (("table2", aupr), ("table2b", "."), ("ood_aupr_auroc", aupr)):
        notes = [note for note in tables[f"published-{label}"].notes if "images" in note]
        assert notes[:1] == [told + more]
    assert not any("SVHN: ours" in note for note in tables["published-table3"].notes)


@pytest.mark.parametrize(
    ("name", "what", "told"),
    [
        ("tiny-imagenet", "TinyImageNet (all 200 classes)", "22 of its 200 classes"),
        ("tiny-imagenet-158", "TinyImageNet (158 classes)", "ours are 7,900 images"),
    ],
)
def test_the_classes_of_tiny_imagenet_are_told(
    tmp_path: Path, name: str, what: str, told: str
) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [cifar(**{name: 90.0})]})
    sizes = {"test": 10_000, name: DATA_SETS[name].parts["val"].count}
    data = {each: {"n": n, "split": f"{each}/val"} for each, n in sizes.items()}
    results.records = {key: replace(run, data=data) for key, run in results.records.items()}
    table = of_task(results, "cifar10")["published-ood_aupr_auroc"]
    cells = {(row.name, row.cells[0]): row.cells[1] for row in table.rows}
    assert isinstance(cells[f"CIFAR-10 → {what}", "entropy: AUROC"], Value)
    assert [note for note in table.notes if note.startswith(f"{what}: ") and told in note]


def test_a_protocol_without_corruptions_says_so(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [cifar(svhn=90.0)]})
    results.protocol = replace(results.protocol, shift=Shift())
    cells = ours(results, "cifar10", "shift_detection_corruptions")
    assert cells["gem-fi", "corrupted: severity 3"] == "no corruptions here"


def test_a_detector_stands_under_its_own_kind_alone(tmp_path: Path) -> None:
    entry = {"by_score": {}, "by_detector": {"lts": {"aupr_id": 93.0}}}
    run = {"test": {"id": {}}, "ood": {"kmnist": entry}}
    cells = ours(made_results(tmp_path, {(MAIN, "softmax"): [run]}), "mnist", "table2")
    epistemic = cells["lts", "KMNIST: epistemic"]
    assert isinstance(epistemic, Value)
    assert epistemic.mean == 93.0
    assert cells["lts", "KMNIST: aleatoric"] == "no counterpart"


def test_rows_are_called_as_in_our_tables(tmp_path: Path) -> None:
    tables = of_task(made_results(tmp_path, {}), "cifar10")
    names = {
        str(row.method): row.name for table in tables.values() for row in table.rows if row.method
    }
    assert names["lts"] == "LTS"
    assert names["maxp"] == "MaxP"
    assert names["temperature"] == "TS"
    assert names["ablation-none"] == "none"
    assert names["ablation-full-without-sn"] == "full without SN"
    assert names["gem-fi-without-vos"] == "GEM-FI without VOS"
    assert names["gem-fi+noise"] == "GEM-FI + feature-space noise"
    assert names["cifar10>tinyimagenet"] == "CIFAR-10 → TinyImageNet (all 200 classes)"
    raw = [name for row, name in names.items() if name == row and not row[0].isdigit()]
    assert raw == []
