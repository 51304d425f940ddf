"""docs/scale.md is what was measured, and what is counted there is counted right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.scripts import benchmark_script

DOCS = Path(__file__).parents[1] / "docs"
scale = benchmark_script("scale")
RECORDS = scale.read(DOCS / "records" / "scale.jsonl")


@pytest.mark.parametrize("table", scale.TABLES)
def test_the_tables_of_the_page_are_those_of_the_records(table: str) -> None:
    cases = [each["case"] for each in RECORDS if each["table"] == table]
    assert cases == scale.TABLES[table]
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    assert scale.shown(table, RECORDS) in page, "python benchmarks/scale.py --show prints it"


def test_the_plan_of_the_page_follows_from_the_records() -> None:
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    assert scale.plan(RECORDS) in page, "python benchmarks/scale.py --show prints it"


def test_what_processes_say_is_what_the_formula_says() -> None:
    """In the records, to the byte."""
    several = [each for each in RECORDS if each["case"].get("processes", 1) > 1]
    assert several
    for each in several:
        assert each["step_reduced"] == each["formula_reduced"] > 0
        assert each["step_gathered"] == each["formula_gathered"] > 0
        assert each["fit_reduced"] == each["formula_fit"] > 0


def test_memory_does_not_grow_with_rows() -> None:
    first, *_, last = (each["peak"] for each in RECORDS if each["table"] == "rows")
    assert last < 1.05 * first


def test_a_ratio_is_to_the_first_row() -> None:
    assert scale.ratio([0.002, 0.003, 0.4]) == ["2 ms (1)", "3 ms (1.5)", "400 ms (200)"]


@pytest.mark.slow
def test_the_command_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every table, its cases in processes of their own; what is there is not measured again."""
    out = tmp_path / "scale.jsonl"
    scale.run(scale.QUICK, out, quick=True)
    found = scale.read(out)
    assert [(each["table"], each["case"]) for each in found] == [
        (table, case) for table, cases in scale.QUICK.items() for case in cases
    ]
    assert all(each["peak"] > 100 for each in found)
    forms = [each["form"] for each in found if each["table"] == "density"]
    assert forms == ["class", "low rank"]
    alone, pair = (each for each in found if each["table"] == "processes")
    assert alone["step_reduced"] == alone["fit_gathered"] == 0
    for kind in ("reduced", "gathered"):
        assert pair[f"step_{kind}"] == pair[f"formula_{kind}"] > 0
    assert pair["fit_reduced"] == pair["formula_fit"] > 0
    assert pair["fit_gathered"] < 64 * 1_024  # answers and an origin, and no feature
    capsys.readouterr()
    before = out.read_text()
    scale.run(scale.QUICK, out, quick=True)
    assert out.read_text() == before
    assert capsys.readouterr().out == ""
    assert scale.shown("density", found).count("\n") == 3
    assert json.loads(before.splitlines()[0])["commit"] == found[0]["commit"]
