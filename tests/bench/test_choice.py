"""The score that OOD-validation data choose, and the sets that a network has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemfi._files import to_json
from gemfi_bench.choice import chosen
from gemfi_bench.claims import Claim, Finding
from gemfi_bench.claims.claim_tests import GridRow, better_chosen, better_ood, sets_of
from gemfi_bench.claims.ledger import Tests, judge
from gemfi_bench.grid import MAIN
from gemfi_bench.record_file import Sets
from gemfi_bench.results import Results
from gemfi_bench.runner import PROTOCOL
from gemfi_bench.summary import summary
from gemfi_bench.tables import TABLES
from gemfi_bench.tables.common import set_title
from gemfi_bench.tabular import Value
from gemfi_bench.unavailable import Unavailable
from support.benches import CHOSEN, detected, made_results

By = Mapping[str, float | None]


def numbers(
    tuning: Mapping[str, By], testing: Mapping[str, By], detectors: By | None = None
) -> dict[str, Any]:
    """AUROC by score, of OOD-validation sets and of OOD test sets."""

    def section(sets: Mapping[str, By]) -> dict[str, Any]:
        return {
            name: {"by_score": _metrics(each), "by_detector": _metrics(detectors or {})}
            for name, each in sets.items()
        }

    return {"test": {"id": {}}, "ood_validation": section(tuning), "ood": section(testing)}


def _metrics(by: By) -> dict[str, Any]:
    return {name: {"auroc": value, "aupr_id": value} for name, value in by.items()}


GEM, EDL, SOFTMAX = GridRow("gem-fi"), GridRow("edl"), GridRow("softmax")


def judged(results: Results, tests: Tests) -> Finding:
    return judge(results, Claim("name", "text", "where", "statistic", tests))


def test_a_table_with_differential_entropy_says_that_it_is_inverted(tmp_path: Path) -> None:
    def notes(score: str) -> str:
        runs = [numbers({"x": {score: 90.0}}, {"noise": {score: 90.0}})]
        made = made_results(tmp_path / score, {(MAIN, "softmax"): runs})
        return " ".join(TABLES["ood_chosen"](made).notes)

    told = "Differential entropy can be inverted for the GEM methods"
    assert told in notes("differential_entropy")
    assert told not in notes("entropy")


# -- the choice -----------------------------------------------------------------------------------


def test_the_mean_over_runs_and_sets_decides(tmp_path: Path) -> None:
    runs = [
        numbers({"x": {"a": 90.0, "b": 80.0}, "y": {"a": 60.0, "b": 80.0}}, {}),
        numbers({"x": {"a": 90.0, "b": 81.0}, "y": {"a": 70.0, "b": 81.0}}, {}),
    ]
    found = chosen(made_results(tmp_path, {(MAIN, "edl"): runs}), "edl")
    assert (found.name, found.among) == ("b", 2)  # 80.5 on average; a has 77.5, best in each of x
    assert list(found.aurocs.values()) == [80.0, 81.0]


def test_test_sets_choose_nothing(tmp_path: Path) -> None:
    runs = [numbers({"x": {"a": 90.0, "b": 80.0}}, {"noise": {"a": 10.0, "b": 99.0}})]
    assert chosen(made_results(tmp_path, {(MAIN, "edl"): runs}), "edl").name == "a"


def test_what_one_run_lacks_is_out_of_the_choice(tmp_path: Path) -> None:
    runs = [
        numbers({"x": {"a": 99.0, "b": 80.0, "c": 99.0}}, {}),
        numbers({"x": {"a": None, "b": 80.0}}, {}),
    ]
    found = chosen(made_results(tmp_path, {(MAIN, "edl"): runs}), "edl")
    assert (found.name, found.among) == ("b", 1)


def test_detectors_are_a_choice_of_their_own(tmp_path: Path) -> None:
    runs = [numbers({"x": {"a": 99.0}}, {}, {"knn": 70.0, "ddu": 60.0})]
    results = made_results(tmp_path, {(MAIN, "softmax"): runs})
    assert chosen(results, "softmax", detector=True).name == "knn"


@pytest.mark.parametrize(
    ("runs", "why"),
    [([], "no runs of edl"), ([numbers({}, {})], "edl have no score on OOD-validation data")],
)
def test_without_numbers_there_is_no_choice(
    tmp_path: Path, runs: list[dict[str, Any]], why: str
) -> None:
    results = made_results(tmp_path, {(MAIN, "softmax"): [], (MAIN, "edl"): runs})
    with pytest.raises(Unavailable, match=why):
        chosen(results, "edl")


# -- claims ---------------------------------------------------------------------------------------


def test_each_row_is_judged_by_its_own_score(tmp_path: Path) -> None:
    """By entropy the first would win; the second has the better score, and it counts."""
    rows = {
        (MAIN, "gem-fi"): [
            numbers({"x": {"entropy": 90.0}}, {"noise": {"entropy": 90.0 + at}}) for at in range(3)
        ],
        (MAIN, "edl"): [
            numbers(
                {"x": {"entropy": 50.0, "vacuity": 95.0}},
                {"noise": {"entropy": 50.0, "vacuity": 95.0 + 0.9 * at}},
            )
            for at in range(3)
        ],
    }
    results = made_results(tmp_path, rows)
    found = judged(results, lambda results: better_chosen(results, GEM, EDL))
    (test,) = found.tests
    assert test.difference.estimate == pytest.approx(-4.9)
    assert found.outcome == "refuted"
    assert "AUROC on noise (entropy and vacuity): GEM-FI against EDL" in test.what


def test_one_seed_is_bootstrapped_with_a_detectors_own_array(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def arrays(name: str, shift: float) -> Sets:
        return {
            "test": {name: rng.normal(size=300)},
            "noise": {name: rng.normal(size=300) + shift},
        }

    rows = {
        (MAIN, "gem-fi"): [numbers({"x": {"entropy": 90.0}}, {"noise": {"entropy": 95.0}})],
        (MAIN, "softmax"): [numbers({"x": {}}, {"noise": {"knn": 99.0}}, {"knn": 60.0})],
    }
    kept = {
        (MAIN, "gem-fi"): [arrays("score/entropy", 3.0)],
        (MAIN, "softmax"): [arrays("detector/knn", 0.3)],
    }
    results = made_results(tmp_path, rows, kept)
    found = judged(results, lambda results: better_chosen(results, GEM, SOFTMAX, detector=True))
    (test,) = found.tests
    assert test.difference.interval is not None
    assert (found.outcome, found.few_seeds) == ("undecided", True)
    assert test.difference.estimate == pytest.approx(35.0)  # not against a score of that name
    assert "(entropy and k-NN)" in test.what


# -- the table ------------------------------------------------------------------------------------


def test_the_table_is_that_of_the_chosen_scores(small_results: Results) -> None:
    table = TABLES["ood_chosen"](small_results)
    rows = {row.name: row for row in table.rows}
    assert list(rows)[:3] == ["Softmax", "Softmax + detector", "Ensemble"]
    (run, *_) = runs = small_results.runs("gem-fi")
    tuning = {
        name: np.mean([r.numbers["ood_validation"]["digits-7"]["by_score"][name]["auroc"]
                       for r in runs])
        for name in run.numbers["ood_validation"]["digits-7"]["by_score"]
    }  # fmt: skip
    best = max(tuning, key=lambda name: tuning[name])
    _, among, value, *cells = rows["GEM-FI"].cells
    assert among == str(len(tuning))
    assert isinstance(value, Value)
    assert value.mean == pytest.approx(tuning[best])
    near = small_results.ood_sets[0]
    expected = [r.numbers["ood"][near]["by_score"][best]["auroc"] for r in runs]
    assert isinstance(cells[1], Value)
    assert cells[1].mean == pytest.approx(np.mean(expected))
    assert table.columns[2].group == "digits-7 (tuning)"


def test_a_task_without_tuning_sets_has_no_such_table(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "softmax"): [numbers({}, {"noise": {"a": 90.0}})]})
    with pytest.raises(Unavailable, match="the task has no OOD-validation sets"):
        TABLES["ood_chosen"](results)


# -- sets that were seen --------------------------------------------------------------------------


@pytest.fixture
def seen(tmp_path: Path) -> Results:
    """GEM-FI is better on noise, and worse on the digits 8 and 9, which were seen."""
    rows = {
        (MAIN, "gem-fi"): [detected(digits_8_9=50.0 + at, noise=90.0 + at) for at in range(3)],
        (MAIN, "softmax"): [detected(digits_8_9=60.0 + at, noise=80.0) for at in range(3)],
    }
    made_results(tmp_path, rows)
    protocol = replace(CHOSEN, seen=("digits-8-9",))
    (tmp_path / PROTOCOL).write_text(to_json(protocol.to_plain()), encoding="utf-8")
    return Results(tmp_path)


def test_no_claim_is_judged_by_what_was_seen(seen: Results) -> None:
    found = judged(seen, lambda results: better_ood(results, GEM, SOFTMAX, "auroc"))
    assert found.outcome == "supported"
    assert [test.what.split()[2] for test in found.tests] == ["noise"]
    with pytest.raises(Unavailable, match="no near OOD set that the network has not seen"):
        sets_of(seen, "near")


def test_a_set_that_not_all_runs_have_is_named(tmp_path: Path) -> None:
    rows = {
        (MAIN, "gem-fi"): [detected(digits_8_9=50.0, noise=90.0 + at) for at in range(3)],
        (MAIN, "softmax"): [detected(noise=80.0)] * 3,
    }
    results = made_results(tmp_path, rows)
    (test,) = better_ood(results, GEM, SOFTMAX, "auroc")
    assert test.what.startswith("AUROC on noise")
    assert test.what.endswith("; not on digits-8-9, which not all runs have")
    alone = {
        (MAIN, "gem-fi"): [detected(digits_8_9=50.0)] * 3,
        (MAIN, "softmax"): [detected()] * 3,
    }
    with pytest.raises(Unavailable, match="no seed has both numbers"):
        better_ood(made_results(tmp_path / "alone", alone), GEM, SOFTMAX, "auroc")


def test_tables_and_summary_mark_it(seen: Results) -> None:
    assert set_title(seen, "digits-8-9") == "digits-8-9 (near, seen in pretraining)"
    assert set_title(seen, "noise") == "noise (far)"
    assert any("near OOD (digits-8-9, seen in pretraining)" in text for text in summary(seen, []))
