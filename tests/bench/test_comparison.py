"""Ours beside the paper's numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gemfi.bench.comparison import comparisons
from gemfi.bench.grid import MAIN
from gemfi.bench.results import Results
from gemfi.bench.table import Table, Value
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
    ours, theirs = rows["gem-fi", "mnist>kmnist/epistemic"][1:3]
    assert isinstance(ours, Value)
    assert isinstance(theirs, Value)
    assert (ours.mean, theirs.mean, theirs.std) == (97.5, 99.96, 0.01)
    assert rows["gem-fi", "mnist>fmnist/epistemic"][1] == "data absent"
    assert rows["edl", "mnist>kmnist/epistemic"][1] == "not run"


def test_other_data_have_no_place_in_a_table(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "gem-fi"): [numbers(97.5)]})
    table = of_task(results, "mnist")["published-table2"]
    assert all(str(row.cells[0]).startswith("mnist>") for row in table.rows)


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
        row.cells[2] for row in table.rows if row.method == "gem-core" and row.cells[0] == "brier"
    ]
    assert isinstance(theirs, Value)
    assert theirs.flag is not None
    assert theirs.flag.startswith("impossible")
