"""Energy, gate, heads and router: the tables, against slow computations from the arrays."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from gemfi_bench.grid import ABLATION
from gemfi_bench.results import Results
from gemfi_bench.tables import TABLES
from gemfi_bench.tables.diagnostics import conditions, correlations, p_value
from gemfi_bench.tabular import Value
from support.cells import Sets, cell, over_runs, same

NEAR, NOISE = "digits-8-9", "noise"


# -- energy and gate -------------------------------------------------------------------------------


def test_the_energy_and_the_distance(small_results: Results) -> None:
    table = TABLES["energy_support_corr_appendix"](small_results)
    outside = (NEAR, NOISE, "inverted", "shuffled")
    for title, names in (("ID test", ("test",)), ("ID and OOD", ("test", *outside))):
        found = []
        for run in small_results.runs("gem-mix"):
            sets = small_results.arrays(run)
            x = np.concatenate([sets[name]["score/energy"] for name in names])
            y = np.concatenate([sets[name]["part/distance"] for name in names])
            found.append(stats.spearmanr(x, y))
        same(cell(table, "GEM-MIX", "Spearman ρ", title), [each.statistic for each in found])
        positive = sum(each.statistic > 0 for each in found)
        assert cell(table, "GEM-MIX", "ρ > 0", title) == f"{positive} of 2"
        largest = max(each.pvalue for each in found)
        shown = "< 10⁻⁶" if largest < 1e-6 else f"{largest:.2g}"
        assert cell(table, "GEM-MIX", "p-value", title) == shown


def test_the_gate_with_energy_and_distance(small_results: Results) -> None:
    table = TABLES["gate_correlations"](small_results)
    name = "GEM-FI (paper's settings)"

    def rank(array: str) -> Callable[[Sets], float]:
        def measure(sets: Sets) -> float:
            test = sets["test"]
            return float(stats.spearmanr(test["part/gate"], test[array]).statistic)

        return measure

    for column, array in (("energy", "score/energy"), ("distance", "part/distance")):
        expected = over_runs(small_results, "ablation-full", rank(array), ABLATION)
        same(cell(table, name, column, "ID test"), expected)
        expected = over_runs(small_results, "gem-fi", rank(array))
        same(cell(table, "GEM-FI", column, "ID test"), expected)
    assert cell(table, name, "Gate") == "prob"
    assert cell(table, name, "Label changes") == "not kept"
    assert cell(table, "GEM-FI", "Gate") == "energy"
    assert cell(table, "GEM-FI", "Label changes") == "0"
    closes = cell(table, "GEM-FI", "energy", "ID test")
    assert isinstance(closes, Value)
    assert closes.mean == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize(("rho", "n"), [(0.3, 30), (-0.7, 8), (0.02, 5000), (0.0, 10)])
def test_the_p_value_is_that_of_students_t(rho: float, n: int) -> None:
    t = rho * math.sqrt((n - 2) / (1 - rho**2))
    assert p_value(rho, n) == pytest.approx(2 * stats.t.sf(abs(t), n - 2))


def test_the_p_value_at_its_ends() -> None:
    assert p_value(1.0, 10) == 0
    assert p_value(-1.0, 10) == 0
    assert math.isnan(p_value(math.nan, 10))
    assert math.isnan(p_value(0.5, 2))


def test_a_run_without_an_energy_has_no_correlation() -> None:
    sets = {"test": {"part/distance": np.arange(5.0)}}
    found = correlations(sets, outside=[], first="score/energy", second="part/distance")
    assert found == {}


def test_a_pool_leaves_out_what_is_absent_and_no_other_set() -> None:
    rng = np.random.default_rng(0)
    sets = {
        name: {"score/energy": rng.normal(size=9), "part/distance": rng.normal(size=9)}
        for name in ("test", "near", "validation", "shift/fog-1")
    }
    found = correlations(
        sets, outside=["near", "absent"], first="score/energy", second="part/distance"
    )
    x, y = (
        np.r_[sets["test"][array], sets["near"][array]]
        for array in ("score/energy", "part/distance")
    )
    assert found["pooled"] == pytest.approx(stats.spearmanr(x, y).statistic)
    alone = correlations(sets, outside=["absent"], first="score/energy", second="part/distance")
    assert set(alone) == {"inside", "inside p"}


def test_deciles_of_the_energy(small_results: Results) -> None:
    table = TABLES["energy_bins_appendix"](small_results)
    for array, text in (
        ("part/distance", "unit-norm features"),
        ("part/distance_raw", "raw features"),
    ):

        def tenth(sets: Sets, at: int, spread: bool, array: str = array) -> float:
            test = sets["test"]
            pairs = sorted(zip(test["score/energy"], test[array], strict=True), key=lambda p: p[0])
            count = len(pairs)
            sizes = [count // 10 + (index < count % 10) for index in range(10)]
            begin = sum(sizes[:at])
            part = [float(each) for _, each in pairs[begin : begin + sizes[at]]]
            mean = sum(part) / len(part)
            variance = sum((each - mean) ** 2 for each in part) / (len(part) - 1)
            return math.sqrt(variance) if spread else mean

        for at in (0, 4, 9):
            group = "Decile of energy, lowest first"
            for name, spread in (("Mean distance", False), ("Std. dev.", True)):
                expected = over_runs(
                    small_results, "gem-fi", lambda sets, a=at, s=spread: tenth(sets, a, s)
                )
                shown = cell(table, f"{name}, {text}", str(at + 1), group, "GEM-FI")
                same(shown, expected)


# -- heads and router ------------------------------------------------------------------------------


def test_diversity_of_the_heads(small_results: Results) -> None:
    table = TABLES["head_diversity_appendix"](small_results)
    for name, title in (("test", "ID test"), (NEAR, "OOD: digits-8-9 (near)")):
        for column, array, scale in (
            ("Pairwise cosine", "part/cosine", 1),
            ("Disagreement (%)", "part/differ", 100),
        ):
            expected = over_runs(
                small_results,
                "gem-mix",
                lambda sets, n=name, a=array, s=scale: s * math.fsum(sets[n][a]) / len(sets[n][a]),
            )
            same(cell(table, title, column, section="GEM-MIX"), expected)
    assert {row.section for row in table.rows} == {
        "GEM-MIX",
        "GEM-FI",
        "GEM-FI (paper's settings)",
    }


def test_diversity_is_that_of_the_components(small_results: Results) -> None:
    """The kept means, from the heads' own distributions of the first inputs."""
    test = small_results.arrays(small_results.runs("gem-fi")[0])["test"]
    for at, log_p in enumerate(test["example/log_p"]):
        p = np.exp(log_p.astype(np.float64))  # (K, C)
        pairs = [(0, 1), (0, 2), (1, 2)]
        cosines = [p[i] @ p[j] / math.sqrt((p[i] @ p[i]) * (p[j] @ p[j])) for i, j in pairs]
        assert test["part/cosine"][at] == pytest.approx(np.mean(cosines), abs=1e-6)
        differ = [p[i].argmax() != p[j].argmax() for i, j in pairs]
        assert test["part/differ"][at] == pytest.approx(np.mean(differ), abs=1e-6)


def sharper(sets: Sets, power: float = 8.0) -> Sets:
    """As if the model were surer of itself: a run of two epochs is nowhere sure."""
    test = dict(sets["test"])
    p = np.exp(power * test["log_probs"].astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    test |= {"log_probs": np.log(p), "score/max_prob": 1 - p.max(axis=1)}
    return {**sets, "test": test}


def test_routing_by_condition(small_results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = small_results.arrays
    monkeypatch.setattr(small_results, "arrays", lambda run: sharper(kept(run)))
    table = TABLES["routing_specialization_appendix"](small_results)
    easy, boundary = "Easy ID (right, confidence ≥ 0.9)", "Boundary ID (right, confidence < 0.6)"
    for title, chosen in (
        (easy, lambda right, top: right and top >= 0.9),
        (boundary, lambda right, top: right and top < 0.6),
    ):
        entropies, largest, counts = [], [], []
        for run in small_results.runs("gem-fi"):
            test = small_results.arrays(run)["test"]
            weights = []
            for log_p, label, weight in zip(
                test["log_probs"], test["label"], test["router"], strict=True
            ):
                if chosen(log_p.argmax() == label, math.exp(log_p.max())):
                    weights.append(weight.astype(np.float64))
            if weights:
                entropies.append(float(np.mean([-(w * np.log(w)).sum() for w in weights])))
                largest.append(float(np.mean([w.max() for w in weights])))
                counts.append(float(len(weights)))
        assert counts
        same(cell(table, title, "Entropy of π", section="GEM-FI"), entropies, 1e-5)
        same(cell(table, title, "Largest weight", section="GEM-FI"), largest, 1e-5)
        same(cell(table, title, "Inputs", section="GEM-FI"), counts)

    def weight(sets: Sets) -> float:
        return float(sets[NOISE]["router"].max(axis=1).mean())

    shown = cell(table, "OOD: noise (far)", "Largest weight", section="GEM-FI")
    same(shown, over_runs(small_results, "gem-fi", weight), 1e-5)


def test_conditions_at_their_bounds() -> None:
    found = conditions(
        {
            "score/max_prob": np.array([0.1, 0.1, 0.4, 0.41, 0.41]),
            "prediction": np.array([1, 1, 1, 1, 1]),
            "label": np.array([1, 0, 1, 1, 2]),
        }
    )
    assert found["easy"].tolist() == [True, False, False, False, False]
    assert found["boundary"].tolist() == [False, False, False, True, False]
