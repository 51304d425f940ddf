"""Intervals over inputs in the tables of OOD detection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemfi import metrics
from gemfi_bench import formats
from gemfi_bench.grid import MAIN
from gemfi_bench.results import Results
from gemfi_bench.statistics import bootstrap_ood
from gemfi_bench.tables import TABLES, detection
from gemfi_bench.tables.common import INTERVALS, RESAMPLES, Source
from gemfi_bench.tabular import Table, Value
from support.benches import made_results
from support.cells import cell

SETS = ("digits-8-9", "noise")
SCORES = ("max_prob", "entropy")


def arrays(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        name: {f"score/{score}": rng.normal(at, 1.0, 80).astype(np.float32) for score in SCORES}
        for at, name in enumerate(("test", *SETS))
    }


def numbers(sets: dict[str, Any]) -> dict[str, Any]:
    """As a run records them."""
    outside = {}
    for name in SETS:
        by = {}
        for score in SCORES:
            pair = sets["test"][f"score/{score}"], sets[name][f"score/{score}"]
            by[score] = {"auroc": metrics.auroc(*pair), "aupr_id": metrics.aupr_id(*pair)}
        outside[name] = {"by_score": by, "by_detector": {}}
    return {"test": {"id": {}}, "ood": outside}


def results_of(folder: Path, seeds: int, *, kept: bool = True) -> Results:
    row, sets = (MAIN, "softmax"), [arrays(seed) for seed in range(seeds)]
    found = made_results(folder, {row: [numbers(each) for each in sets]}, {row: sets})
    if not kept:
        for path in (folder / "arrays").iterdir():
            path.unlink()
    return found


def values(table: Table) -> list[Value]:
    return [each for row in table.rows for each in row.cells if isinstance(each, Value)]


@pytest.mark.parametrize(("label", "metric"), [("table2", "aupr_id"), ("table2b", "auroc")])
def test_a_single_run_has_the_bootstrap_over_its_inputs(
    tmp_path: Path, label: str, metric: Any
) -> None:
    table, sets = TABLES[label](results_of(tmp_path, 1)), arrays(0)
    found = cell(table, "Softmax", "Epis.", "digits → noise (far)")
    pair = sets["test"]["score/entropy"], sets["noise"]["score/entropy"]
    expected = bootstrap_ood([pair], metric, RESAMPLES)
    assert isinstance(found, Value)
    assert found.interval == (expected.low, expected.high)
    assert found.mean == pytest.approx(expected.estimate, abs=1e-6)
    assert expected.low < found.mean < expected.high
    assert INTERVALS in table.notes
    shown = f"{found.mean:.2f} [{expected.low:.2f}, {expected.high:.2f}]"
    assert shown in formats.html(table).replace('<span class="spread">', "").replace("</span>", "")
    assert f'{expected.low!r},{expected.high!r},1,"{shown}"' in formats.csv(table)
    assert shown.replace("[", "\\[").replace("]", "\\]") in formats.markdown(table)


def test_several_runs_show_their_deviation_and_keep_an_interval_of_their_mean(
    tmp_path: Path,
) -> None:
    table, sets = TABLES["table2b"](results_of(tmp_path, 2)), [arrays(0), arrays(1)]
    found = cell(table, "Softmax", "Epis.", "digits → noise (far)")
    assert isinstance(found, Value)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        inside, outside = rng.integers(0, 80, 80), rng.integers(0, 80, 80)
        areas = [
            metrics.auroc(e["test"]["score/entropy"][inside], e["noise"]["score/entropy"][outside])
            for e in sets
        ]
        drawn.append(np.mean(areas))
    assert found.interval == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))
    assert all(each.std is not None for each in values(table))
    assert INTERVALS not in table.notes
    assert "[" not in formats.html(table)
    assert f"{found.interval[0]!r},{found.interval[1]!r},2," in formats.csv(table)


def test_rows_of_a_sweep_have_no_interval_of_their_mean(tmp_path: Path) -> None:
    """They are many, and the bootstrap takes its time."""
    sets = [arrays(0), arrays(1)]
    key = ("ablation", "a")
    results = made_results(tmp_path, {key: [numbers(each) for each in sets]}, {key: sets})
    found = Source(results, "a", "a", "ablation").ood("noise", "entropy", "auroc")
    assert isinstance(found, Value)
    assert (found.n, found.interval) == (2, None)


def test_without_arrays_nothing_is_shown(tmp_path: Path) -> None:
    table = TABLES["table2b"](results_of(tmp_path, 1, kept=False))
    assert len(values(table)) == 4
    assert all(each.interval is None for each in values(table))
    assert INTERVALS not in table.notes


def test_detectors_and_scores_of_a_real_run_have_one_too(small_results: Results) -> None:
    (row,) = [each for each in detection.by_score(small_results).rows
              if each.name == "Entropy" and each.section == "GEM-FI, paper's settings"]  # fmt: skip
    found = [each for each in row.cells if isinstance(each, Value)]
    assert found
    assert all(each.n == 1 and each.interval is not None for each in found)
    table = TABLES["table2b"](small_results)
    (ensemble,) = [each for each in table.rows if each.method == "ensemble"]
    assert all(each.interval for each in ensemble.cells if isinstance(each, Value))
