"""Every table: its shape, and what it says of what is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gemfi_bench.formats import csv, html, markdown
from gemfi_bench.grid import ABLATION, ABLATION_OURS
from gemfi_bench.latex import latex
from gemfi_bench.manifest import PAPER_TABLES
from gemfi_bench.results import Results
from gemfi_bench.runner import GRID, PROTOCOL
from gemfi_bench.tables import TABLES
from gemfi_bench.tables.common import DATA_ABSENT, NOT_RUN, short
from gemfi_bench.tabular import Row, Table, Value
from gemfi_bench.unavailable import Unavailable

OURS = {"table5-ours", "ood_chosen", "gate_correlations"}
FROM_ARRAYS = {
    "table13-cifar10",
    "ts_calibration",
    "energy_support_corr_appendix",
    "energy_bins_appendix",
    "gate_correlations",
    "head_diversity_appendix",
    "routing_specialization_appendix",
}
WITHOUT_NUMBERS = {"table1", "hparams", "related_work_comparison", "notation-summary"}
NOT_MEASURED = {"overhead"}
MADE = [label for label in TABLES if label not in NOT_MEASURED]
ABSENT = "letters"


@pytest.fixture(scope="module")
def made(small_results: Results) -> Callable[[str], Table]:
    """The tables of the small benchmark by their labels, each made once."""
    return cache(lambda label: TABLES[label](small_results))


@pytest.fixture
def copied(small_folder: Path, tmp_path: Path) -> Path:
    """Protocol, grid and records of the small benchmark without its arrays, to be changed."""
    for name in (PROTOCOL, GRID, "records.jsonl"):
        shutil.copy(small_folder / name, tmp_path / name)
    return tmp_path


def edit_protocol(folder: Path, **changes: Any) -> Results:
    plain = json.loads((folder / PROTOCOL).read_text(encoding="utf-8"))
    (folder / PROTOCOL).write_text(json.dumps(plain | changes), encoding="utf-8")
    return Results(folder)


def keep_records(folder: Path, keep: Callable[[dict[str, Any]], bool]) -> Results:
    path = folder / "records.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if keep(json.loads(line))]
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    return Results(folder)


def row(table: Table, name: str, section: str = "") -> Row:
    found = [each for each in table.rows if (each.name, each.section) == (name, section)]
    assert len(found) == 1, [each.name for each in table.rows]
    return found[0]


# -- shapes ---------------------------------------------------------------------------------------


def test_every_table_of_the_paper_is_there_in_its_order() -> None:
    assert tuple(label for label in TABLES if label not in OURS) == PAPER_TABLES


@pytest.mark.parametrize("label", MADE)
def test_a_table_has_its_label_rows_and_numbers_of_runs(
    label: str, small_results: Results, made: Callable[[str], Table]
) -> None:
    table = made(label)
    assert table.label == label
    assert table.title
    assert table.notes
    assert table.rows
    values = [cell for each in table.rows for cell in each.cells if isinstance(cell, Value)]
    assert bool(values) == (label not in WITHOUT_NUMBERS)
    for value in values:
        assert len(value.keys) == value.n
        assert set(value.keys) <= small_results.records.keys()


@pytest.mark.parametrize("label", MADE)
def test_a_table_renders_in_every_form(label: str, made: Callable[[str], Table]) -> None:
    table = made(label)
    for form in (markdown, csv, html, latex):
        text = form(table)
        assert label in text
        assert "U+" not in text  # no character that LaTeX has no form for
        assert NOT_RUN not in text  # everything was run


@pytest.mark.parametrize("label", [label for label in MADE if label not in WITHOUT_NUMBERS])
def test_two_seeds_are_indicative(label: str, made: Callable[[str], Table]) -> None:
    notes = made(label).notes
    assert any(note.startswith("Indicative: fewer than 3 seeds") for note in notes)
    assert "Digits stand for the data sets of the paper." in notes


def test_methods_stand_in_the_order_of_the_protocol_with_gem_last(
    made: Callable[[str], Table],
) -> None:
    names = [each.name for each in made("table3").rows]
    gem = ["GEM-CORE", "GEM-MIX", "GEM-FI"]
    assert names == ["Softmax", "Ensemble", "EDL", "DAEDL", "Re-EDL", *gem]
    assert [each.name for each in made("table3").rows if each.ours] == gem


def test_gem_grows_from_core_to_fi_whatever_the_protocol_runs_first(copied: Path) -> None:
    plain = json.loads((copied / PROTOCOL).read_text(encoding="utf-8"))
    results = edit_protocol(copied, contestants=plain["contestants"][::-1])
    names = [each.name for each in TABLES["table3"](results).rows]
    assert names[:2] == ["Re-EDL", "DAEDL"]
    assert names[-3:] == ["GEM-CORE", "GEM-MIX", "GEM-FI"]


def test_columns_are_the_ood_sets_near_ones_first(made: Callable[[str], Table]) -> None:
    table = made("table2")
    groups = [column.group for column in table.columns]
    pairs = [
        "digits → digits-8-9 (near)",
        "digits → noise (far)",
        "digits → inverted (far)",
        "digits → shuffled (far)",
    ]
    assert groups == ["", *(pair for pair in pairs for _ in range(2))]
    assert [column.name for column in table.columns][:3] == ["Venue", "Alea.", "Epis."]


def test_detectors_have_one_score_under_the_kind_that_it_is(made: Callable[[str], Table]) -> None:
    table = made("table2")
    odin, distance = row(table, "Softmax + ODIN"), row(table, "Softmax + k-NN")
    assert isinstance(odin.cells[1], Value)
    assert odin.cells[2] is None
    assert distance.cells[1] is None
    assert isinstance(distance.cells[2], Value)
    assert odin.cells[0] == "ICLR18"
    assert len([each for each in table.rows if " + " in each.name]) == 8


def test_a_score_of_many_methods_is_that_of_all_others(copied: Path) -> None:
    path = copied / "records.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for record in records:
        if record["spec"]["method"] == "edl":
            record["scores"]["aleatoric"] = "dissonance"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    notes = " ".join(TABLES["table2"](Results(copied)).notes)
    assert "Alea.: dissonance (EDL), 1 − max p (all others)." in notes


def test_notes_name_the_scores_and_the_sizes(made: Callable[[str], Table]) -> None:
    notes = " ".join(made("table2").notes)
    assert "unfamiliarity (GEM-CORE, GEM-MIX, GEM-FI)" in notes
    assert "Alea.: 1 − max p." in notes
    assert "n: 253 ID test, 354 digits-8-9, 253 noise, 253 inverted, 253 shuffled." in notes


@pytest.mark.parametrize("label", ["table5", "table5-ours"])
def test_the_ablation_has_ten_rows_by_seven_switches(
    label: str, made: Callable[[str], Table]
) -> None:
    table = made(label)
    assert [column.name for column in table.columns[:7]] == [
        "SN", "CORE", "MIX", "FI-Reg", "FI-Mod", "EBM", "UNC",
    ]  # fmt: skip
    ticks = ["".join(str(int(bool(cell))) for cell in each.cells[:7]) for each in table.rows]
    assert ticks == [
        "0000000", "1000000", "1100000", "1110000", "1111000",
        "1110100", "1111100", "1111110", "1111111", "0111111",
    ]  # fmt: skip


def test_the_ablation_says_whose_learning_rate_it_has(copied: Path) -> None:
    said = "The learning rate of every row is the one that was chosen for gem-fi here."
    assert said not in TABLES["table5"](Results(copied)).notes
    results = edit_protocol(copied, rates={"values": [0.001, 0.01], "seeds": [0]})
    assert said in TABLES["table5"](results).notes


# -- what is missing ------------------------------------------------------------------------------


def absent_columns(table: Table) -> list[int]:
    return [at for at, column in enumerate(table.columns) if ABSENT in column.group]


@pytest.mark.parametrize(
    "label",
    [
        "table2",
        "table2b",
        "table5",
        "ood_aupr_auroc",
        "lambda_fi_appendix",
        "gemfi_k_cifar",
        "fair_vos_appendix",
        "rho_one_appendix",
    ],
)
def test_a_set_that_is_not_at_hand_is_a_column_that_says_so(label: str, copied: Path) -> None:
    results = edit_protocol(copied, near=["digits-8-9", ABSENT])
    table = TABLES[label](results)
    columns = absent_columns(table)
    assert len(columns) >= 2
    for each in table.rows:
        cells = [each.cells[at] for at in columns]
        shown = [cell for cell in cells if cell is not None]  # a detector has one kind of score
        assert shown
        assert set(shown) == {DATA_ABSENT}


@pytest.mark.parametrize("label", ["head_diversity_appendix", "routing_specialization_appendix"])
def test_a_set_that_is_not_at_hand_is_a_row_that_says_so(
    label: str, copied: Path, small_folder: Path
) -> None:
    (copied / "arrays").symlink_to(small_folder / "arrays")
    results = edit_protocol(copied, far=["noise", ABSENT])
    table = TABLES[label](results)
    rows = [each for each in table.rows if ABSENT in each.name]
    assert len(rows) == 3  # GEM-MIX, GEM-FI, and the paper's
    assert {cell for each in rows for cell in each.cells} == {DATA_ABSENT}


def test_an_absent_set_stays_absent_in_rows_that_were_not_run(copied: Path) -> None:
    edit_protocol(copied, near=["digits-8-9", ABSENT])
    results = keep_records(copied, lambda record: record["spec"]["method"] != "edl")
    table = TABLES["table2"](results)
    cells = row(table, "EDL").cells
    assert cells[1:3] == (NOT_RUN, NOT_RUN)
    assert {cells[at] for at in absent_columns(table)} == {DATA_ABSENT}
    assert isinstance(row(table, "DAEDL").cells[1], Value)
    assert "So far 13 of 15 runs are done." in table.notes


def test_a_set_that_only_some_runs_saw_is_absent_in_the_others(copied: Path) -> None:
    path = copied / "records.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for record in records:
        if record["spec"]["method"] == "edl":
            del record["numbers"]["ood"]["noise"]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    table = TABLES["table2"](Results(copied))
    assert row(table, "EDL").cells[3:5] == (DATA_ABSENT, DATA_ABSENT)
    assert isinstance(row(table, "DAEDL").cells[3], Value)


@pytest.mark.parametrize("label", [label for label in MADE if label not in FROM_ARRAYS])
def test_before_any_run_the_rows_are_there(label: str, copied: Path) -> None:
    results = keep_records(copied, lambda _record: False)
    if label in {"table1", "hparams"}:
        with pytest.raises(Unavailable, match="run"):
            TABLES[label](results)
        return
    table = TABLES[label](results)
    cells = {cell for each in table.rows for cell in each.cells if not isinstance(cell, bool)}
    assert not [cell for cell in cells if isinstance(cell, Value)]
    assert DATA_ABSENT not in cells
    if label not in WITHOUT_NUMBERS:
        assert NOT_RUN in cells


@pytest.mark.parametrize("label", sorted(FROM_ARRAYS))
def test_without_runs_a_table_from_arrays_has_its_rows_too(label: str, copied: Path) -> None:
    table = TABLES[label](keep_records(copied, lambda _record: False))
    assert NOT_RUN in {cell for each in table.rows for cell in each.cells}


@pytest.mark.parametrize("label", sorted(FROM_ARRAYS))
def test_committed_records_without_arrays_give_a_reason(label: str, copied: Path) -> None:
    with pytest.raises(Unavailable, match="the arrays of these runs are not here"):
        TABLES[label](Results(copied))


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("table5", "sweeps.ablation is not set"),
        ("table5-ours", "sweeps.ablation_ours is not set"),
        ("lambda_fi_appendix", "sweeps.fisher is not set"),
        ("lambda_kl_appendix", "sweeps.kl is not set"),
        ("gemfi_k_cifar", "sweeps.components is not set"),
        ("fair_vos_appendix", "sweeps.outliers is not set"),
        ("vos_replace_appendix", "sweeps.outliers is not set"),
        ("shift_detection_corruptions", "shift.corruptions is not set"),
    ],
)
def test_what_a_protocol_does_not_plan_is_unavailable(label: str, why: str, copied: Path) -> None:
    grid = json.loads((copied / GRID).read_text(encoding="utf-8"))
    main = [each for each in grid if each["group"] == "methods"]
    (copied / GRID).write_text(json.dumps(main), encoding="utf-8")
    results = edit_protocol(copied, shift={"corruptions": []})
    with pytest.raises(Unavailable, match=why):
        TABLES[label](results)


def test_tables_about_gem_need_gem(copied: Path) -> None:
    grid = json.loads((copied / GRID).read_text(encoding="utf-8"))
    kept = [each for each in grid if "gem" not in each["method"]]
    (copied / GRID).write_text(json.dumps(kept), encoding="utf-8")
    results = Results(copied)
    for label in ("ts_calibration", "ood_aupr_auroc", "rho_one_appendix", "gate_correlations"):
        with pytest.raises(Unavailable, match="GEM"):
            TABLES[label](results)
    assert [each.name for each in TABLES["table3"](results).rows][-1] == "Re-EDL"


def test_enough_seeds_are_not_indicative(copied: Path) -> None:
    grid = json.loads((copied / GRID).read_text(encoding="utf-8"))
    same = next(e for e in grid if (e["group"], e["row"]) == ("methods", "edl"))
    other = [e["key"] for e in grid if e["group"] in (ABLATION, ABLATION_OURS)][:2]
    grid += [same | {"seed": 7 + at, "key": key} for at, key in enumerate(other)]
    (copied / GRID).write_text(json.dumps(grid), encoding="utf-8")
    notes = TABLES["table3"](Results(copied)).notes
    found = [note for note in notes if note.startswith("Indicative")]
    assert len(found) == 1
    assert "EDL" in found[0]  # Re-EDL, DAEDL
    assert " EDL," not in found[0]
    assert "Softmax" in found[0]


def test_short_numbers() -> None:
    assert [short(each) for each in (0.03, 1e-8, 1e-4, 10.0, 5e-4, 3)] == [
        "0.03", "1e-8", "0.0001", "10", "0.0005", "3",
    ]  # fmt: skip


def test_a_task_without_ood_sets_keeps_the_rest(copied: Path, small_folder: Path) -> None:
    (copied / "arrays").symlink_to(small_folder / "arrays")
    path = copied / "records.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for record in records:
        record["numbers"]["ood"] = {}
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    results = edit_protocol(copied, near=[], far=[])
    alone = {"table2", "table2b", "ood_chosen", "ood_aupr_auroc", "fair_vos_appendix"}
    for label in MADE:
        if label in alone | {"vos_replace_appendix", "rho_one_appendix"}:
            with pytest.raises(Unavailable, match="no OOD test sets"):
                TABLES[label](results)
        else:
            assert TABLES[label](results).rows
    assert [column.name for column in TABLES["gemfi_k_cifar"](results).columns] == [
        "Test acc.",
        "NLL",
    ]
