"""What the methods are and cost: formulas, settings, ticks, notation and overhead."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemfi._config import to_plain
from gemfi.methods import METHODS, PAPER_PRESETS, PRESETS
from gemfi.methods.gem_paper import as_paper, preset
from gemfi_bench.grid import ABLATION
from gemfi_bench.results import OVERHEAD, Results
from gemfi_bench.tables import TABLES
from gemfi_bench.tables.formulas import SYMBOLS, daedl_form, gem_form
from gemfi_bench.tables.settings import num_classes, ticks
from gemfi_bench.tabular import Value
from gemfi_bench.unavailable import Unavailable
from support.cells import cell

FI, PAPER = PRESETS["gem-fi"], PAPER_PRESETS["gem-fi"]


# -- table1 ---------------------------------------------------------------------------------------


def test_the_formulas_follow_the_configuration() -> None:
    assert gem_form(as_paper(FI))["Concentration α"] == (
        "s·(exp(clip(u_kc, ±10)) + 1e-8), s = σ((a − E)/b); in training s = σ(−E)"
    )
    assert gem_form(as_paper(FI))["Predictive mean p"] == "Σ_k π_k α_kc / Σ_j α_kj"
    assert gem_form(PAPER)["Concentration α"] == "exp(clip(u_kc, ±10)) + 1e-8"
    assert (
        gem_form(PAPER)["Predictive mean p"] == "∝ s_c · Σ_k π_k α_kc / Σ_j α_kj, s_c in [0.1, 0.9]"
    )
    assert gem_form(PAPER)["Logits u"] == "h_k(z/‖z‖)/T, T learned from 0.2"


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"gate": "logit"}, "Concentration α", "exp(clip(s_c·u_kc, ±10)) + 1e-8"),
        ({"core": False}, "Concentration α", "exp(clip(u_kc, ±10)) + 1e-8"),
        ({"num_components": 1}, "Predictive mean p", "α_c / Σ_j α_j"),
        ({"num_components": 1}, "Heads", "K = 1"),
        ({"num_components": 1}, "FI modulation of the weights", "not used"),
        ({"num_components": 1}, "FI regularisation", "0.1 · FI"),
        ({"num_components": 5}, "Heads", "K = 5"),
        ({"fi_reg_weight": 0.0}, "FI regularisation", "not used"),
        ({"fi_reg_weight": 0.3}, "FI regularisation", "0.3 · Σ_k π_k FI_k"),
        ({"fi_mod_strength": 0.7}, "FI modulation of the weights", "exp(0.7·(1 − FI_k/Σ_i FI_i))"),
        ({"temperature": 0.5}, "Logits u", "T learned from 0.5"),
        ({"rho": "none"}, "Total evidence, as scored", "Σ_k π_k Σ_c α_kc"),
        (
            {"rho": "minmax"},
            "Total evidence, as scored",
            "ρ = (log p(z) − min)/(max − min) in [0, 1], at least",
        ),
    ],
)
def test_a_change_of_the_configuration_changes_the_formula(
    changes: dict[str, Any], field: str, text: str
) -> None:
    found = gem_form(replace(as_paper(FI), **changes))[field]
    assert text in found
    assert found != gem_form(as_paper(FI))[field]


def test_the_constants_of_daedl_are_those_of_its_head() -> None:
    assert daedl_form()["Concentration α"] == "exp(λ(z)·u_c); in training exp(u_c) + 1e-6"
    assert daedl_form()["Logits u"] == "h(z), at most 30"


def test_table1_is_of_what_was_run(small_results: Results) -> None:
    table = TABLES["table1"](small_results)
    assert [each.name for each in table.columns] == ["DAEDL", "GEM-FI", "GEM-FI (paper's settings)"]
    assert cell(table, "Concentration α", "GEM-FI") == gem_form(as_paper(FI))["Concentration α"]
    row, column = "Concentration α", "GEM-FI (paper's settings)"
    assert cell(table, row, column) == gem_form(PAPER)["Concentration α"]
    assert cell(table, "FI regularisation", "DAEDL") == "not used"


# -- hparams --------------------------------------------------------------------------------------


def test_the_number_of_classes_comes_from_the_records(small_results: Results) -> None:
    assert num_classes(small_results) == 7


def test_hyper_parameters_are_those_of_the_runs_with_the_papers_beside(
    small_results: Results,
) -> None:
    table = TABLES["hparams"](small_results)
    paper = "GEM-FI (paper's settings)"
    for row, column, group, expected in (
        ("Learning rate", "GEM-FI", "", "0.02"),
        ("Learning rate", "MNIST", "Paper", "0.0005"),
        ("Batch size", "EDL", "", "64"),
        ("Epochs", "CIFAR-10", "Paper", "100"),
        ("λ_KL", "DAEDL", "", "0.05"),  # its authors', which the configuration leaves open
        ("λ_KL", "Re-EDL", "", None),
        ("λ_KL", "GEM-FI", "", "0.0001"),
        ("λ_FI (penalty / modulation)", "GEM-CORE", "", "off"),
        ("λ_FI (penalty / modulation)", "GEM-FI", "", "0.1"),
        ("λ_FI (penalty / modulation)", "MNIST", "Paper", "0.3"),
        ("K (heads)", "GEM-CORE", "", "1"),
        ("K (heads)", "GEM-MIX", "", "3"),
        ("β_id", "GEM-FI", "", "off"),
        ("β_id", paper, "", "0.1"),
        ("Gate bounds", "GEM-FI", "", None),
        ("Gate bounds", paper, "", "0.1, 0.9"),
        ("Gate bounds", "CIFAR-10", "Paper", "0.1, 0.9"),
        ("Gate", "GEM-FI", "", "energy"),
        ("λ_EBM (ID / outliers)", paper, "", "0.01 / 0.1"),
        ("Temperature of the heads", paper, "", "0.2, learned"),
        ("Outliers in training", "GEM-FI", "", "halo + 0.3 scrambled"),
        ("Outliers in training", "Softmax", "", None),
        ("Network", "Softmax", "", "convnet, channels 16"),
    ):
        assert cell(table, row, column, group) == expected, (row, column)
    assert "Learning rate of the others: Ensemble 0.02." in table.notes


# -- related work ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "head", "expected"),
    [
        ("daedl", None, "0100000"),
        ("i-edl", None, "0100010"),
        ("gem-fi", None, "1111111"),
        ("gem-mix", None, "1111001"),
        ("gem-core", None, "1101001"),
        ("ensemble", None, "0010000"),
        ("postnet", None, "1100000"),
        ("kl-pn", None, "0100001"),
        ("gem-paper", preset("dirichlet-mixture"), "0110000"),
        ("gem-paper", preset("gated-dirichlet"), "1101000"),
        ("gem-fi", replace(FI, ebm_weight=0.0), "0111110"),
        ("gem-fi", replace(FI, num_components=1), "1101011"),
    ],
)
def test_ticks_by_what_the_code_does(method: str, head: Any, expected: str) -> None:
    config = METHODS[method].default_config() if head is None else head
    found = ticks(method, to_plain(config) or {})
    assert "".join(str(int(each)) for each in found) == expected


def test_related_work_has_the_papers_rows_first(small_results: Results) -> None:
    table = TABLES["related_work_comparison"](small_results)
    assert [each.name for each in table.rows[:5]] == [
        "DAEDL",
        "Mixture of Dirichlets (stand-in)",
        "I-EDL",
        "Gated Dirichlet (stand-in)",
        "GEM-FI",
    ]
    assert len(table.rows) == len(METHODS) + 2  # and the stand-ins
    assert all(isinstance(each, bool) for row in table.rows for each in row.cells)


def test_ticks_follow_the_runs(small_folder: Path, tmp_path: Path) -> None:
    for name in ("protocol.json", "grid.json"):
        (tmp_path / name).symlink_to(small_folder / name)
    records = []
    for line in (small_folder / "records.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["spec"]["method"] == "gem-fi" and record["title"].startswith("methods/"):
            record["spec"]["head"] |= {"fi_reg_weight": 0.0, "fi_mod_strength": 0.0}
        records.append(record)
    text = "".join(f"{json.dumps(each)}\n" for each in records)
    (tmp_path / "records.jsonl").write_text(text, encoding="utf-8")
    table = TABLES["related_work_comparison"](Results(tmp_path))
    assert cell(table, "GEM-FI", "FI for routing", section="The paper's rows") is False


# -- notation -------------------------------------------------------------------------------------


def resolve(name: str) -> object:
    """What a dotted name below `gemfi` is: a function, a class, or a field of a class."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["gemfi", *parts[:count]]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            fields = {**getattr(found, "__annotations__", {}), **vars(found)}
            assert part in fields or hasattr(found, part), f"{name}: no {part}"
            found = fields.get(part, getattr(found, part, None))
        return found
    raise AssertionError(name)


@pytest.mark.parametrize("name", [name for *_, names in SYMBOLS for name in names.split(", ")])
def test_every_symbol_is_where_the_table_says(name: str) -> None:
    resolve(name)


def test_a_name_that_is_not_there_is_found_out() -> None:
    with pytest.raises(AssertionError, match="log_nothing"):
        resolve("belief.Belief.log_nothing")


# -- overhead -------------------------------------------------------------------------------------


@pytest.fixture
def measured(small_folder: Path, tmp_path: Path) -> Path:
    for name in ("protocol.json", "grid.json", "records.jsonl"):
        (tmp_path / name).symlink_to(small_folder / name)
    return tmp_path


def test_overhead_was_not_measured(measured: Path) -> None:
    with pytest.raises(Unavailable, match="was not measured"):
        TABLES["overhead"](Results(measured))
    (measured / OVERHEAD).write_text('{"rows": {}}', encoding="utf-8")
    with pytest.raises(Unavailable, match="was not measured"):
        TABLES["overhead"](Results(measured))


def test_overhead_shows_what_was_measured(measured: Path) -> None:
    rows = {
        "softmax": {
            "method": "softmax", "parameters": 50_000, "train_ratio": 1.0, "train_low": 0.98,
            "train_high": 1.02, "train_ms": 10.0, "infer_ratio": 1.0, "infer_low": 0.99,
            "infer_high": 1.01, "infer_ms": 2.0, "memory_mb": 300.0,
        },
        "gem-fi-k5": {"method": "gem-fi", "parameters": 60_000, "memory_mb": None},
        "something": {},
    }  # fmt: skip
    plain = {"rounds": 20, "batch": 64, "backbone": "convnet", "rows": rows}
    (measured / OVERHEAD).write_text(json.dumps(plain), encoding="utf-8")
    table = TABLES["overhead"](Results(measured))
    assert [row.name for row in table.rows] == ["Softmax", "GEM-FI (K = 5)", "something"]
    parameters = cell(table, "Softmax", "Parameters (M)")
    assert isinstance(parameters, Value)
    assert math.isclose(parameters.mean, 0.05)
    assert cell(table, "Softmax", "quartiles", "Training step") == "0.98–1.02"
    assert cell(table, "GEM-FI (K = 5)", "Memory (MB)") is None
    assert cell(table, "something", "× softmax", "Inference of a batch") is None
    assert any("convnet: 20 rounds, 64 samples a batch" in note for note in table.notes)
    assert [row.ours for row in table.rows] == [False, True, False]


def test_the_ablation_of_the_paper_is_run_with_its_settings(small_results: Results) -> None:
    run = small_results.runs("ablation-full", ABLATION)[0]
    assert run.spec["head"]["gate"] == "prob"
    assert run.scores["epistemic"] == "evidence"
