"""Numbers that a run has not, or has as infinity: they make themselves seen, and never win."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemfi.data import TASKS, Task
from gemfi_bench import formats
from gemfi_bench.grid import MAIN, RATES, Cell
from gemfi_bench.latex import latex
from gemfi_bench.protocol import Contestant, Protocol, Rates
from gemfi_bench.record_file import RecordFile, RunRecord
from gemfi_bench.results import of_shift, of_test
from gemfi_bench.runner import Bench
from gemfi_bench.summary import summary
from gemfi_bench.tables import classification
from gemfi_bench.tables.common import Measured, Source
from gemfi_bench.tabular import Column, Row, Table, Value, marks
from support.benches import classified, made_results

INFINITE = "1 of 2 runs: the others have no such number, or an infinite one"


def scored(**numbers: float) -> dict[str, Any]:
    return classified(**({"accuracy": 90.0, "ece": 1.0} | numbers))


def test_a_mean_that_is_without_a_run_says_so(tmp_path: Path) -> None:
    results = made_results(tmp_path, {(MAIN, "edl"): [scored(nll=math.inf), scored(nll=0.5)]})
    value = results.value("edl", of_test("nll"))
    assert value == Value(0.5, None, 1, ("0000000000000001",), missing=1)
    assert value.remark == INFINITE


def test_every_form_of_a_table_has_the_remark(tmp_path: Path) -> None:
    rows = {(MAIN, "softmax"): [scored(nll=math.inf), scored(nll=0.5)]}
    table = classification.classification(made_results(tmp_path, rows))
    for form in (formats.markdown, formats.csv, latex, formats.html):
        assert INFINITE in form(table)


def test_it_is_never_marked_and_competes_as_the_worst() -> None:
    rows = (
        Row("a", (Value(0.1, n=1, missing=4), Value(99.0, n=1, missing=4))),
        Row("b", (Value(0.2, n=5), Value(98.0, n=5))),
        Row("c", (Value(0.3, n=5), Value(97.0, n=5))),
    )
    columns = (Column("NLL", better="low"), Column("AUROC", better="high"))
    expected = {(1, 0): "best", (2, 0): "second", (1, 1): "best", (2, 1): "second"}
    assert marks(Table("t", "T", columns, rows)) == expected
    assert marks(Table("t", "T", columns, rows[:2])) == {(1, 0): "best", (1, 1): "best"}


def test_a_flag_and_the_missing_runs_are_one_remark() -> None:
    assert Value(1.0, flag="odd", missing=1).remark == f"odd; {INFINITE}"
    assert Value(1.0, flag="odd").remark == "odd"
    assert Value(1.0).remark == ""


def test_the_summary_puts_it_last(tmp_path: Path) -> None:
    rows = {
        (MAIN, "gem-fi"): [scored(nll=math.inf), scored(nll=0.1)],
        (MAIN, "edl"): [scored(nll=0.5), scored(nll=0.7)],
    }
    (nll,) = [each for each in summary(made_results(tmp_path, rows), []) if each.startswith("NLL")]
    assert nll == (
        "NLL: GEM-FI 0.100 (in 1 of 2 runs), place 2 of 2; the first is EDL with 0.600 ± 0.141."
    )


def test_the_summary_says_where_a_number_is_of_one_run(tmp_path: Path) -> None:
    rows = {(MAIN, "gem-fi"): [scored(nll=0.2), scored(nll=0.2)], (MAIN, "edl"): [scored(nll=0.1)]}
    (nll,) = [each for each in summary(made_results(tmp_path, rows), []) if each.startswith("NLL")]
    assert nll.endswith(
        "GEM-FI 0.200 ± 0.000, place 2 of 2; the first is EDL with 0.100 (one run)."
    )


def test_a_mean_over_corruptions_is_over_all_of_them(tmp_path: Path) -> None:
    whole = {"fog-1": {"id": {"nll": 1.0}}, "fog-3": {"id": {"nll": 3.0}}}
    infinite = whole | {"fog-3": {"id": {"nll": math.inf}}}
    rows = {(MAIN, "edl"): [classified() | {"shift": each} for each in (whole, infinite)]}
    results = made_results(tmp_path, rows)
    value = results.value("edl", of_shift(None, "id", "nll"))
    assert value == Value(2.0, None, 1, ("0000000000000000",), missing=1)


def test_numbers_from_arrays_say_it_too(tmp_path: Path) -> None:
    rows, arrays = (MAIN, "edl"), [{"test": {"a": np.float32([at])}} for at in (1, 2, 3)]
    results = made_results(tmp_path, {rows: [classified()] * 3}, {rows: arrays})
    source = Source(results, "EDL", "edl")
    values = [math.nan, 2.0, 4.0]
    cell = Measured(source, lambda sets: {"a": values[int(sets["test"]["a"][0]) - 1]}).cell("a")
    assert isinstance(cell, Value)
    assert (cell.mean, cell.n, cell.missing, cell.unseen) == (3.0, 2, 1, 0)


def test_a_run_without_arrays_is_told_from_one_without_the_number(tmp_path: Path) -> None:
    rows, arrays = (MAIN, "edl"), [{"test": {"a": np.float32([at])}} for at in (1, 2, 3)]
    results = made_results(tmp_path, {rows: [classified()] * 3}, {rows: arrays})
    results.file.arrays(results.runs("edl")[0].key).unlink()
    source = Source(results, "EDL", "edl")
    cell = Measured(source, lambda sets: {"a": float(sets["test"]["a"][0])}).cell("a")
    assert isinstance(cell, Value)
    assert (cell.mean, cell.n, cell.missing, cell.unseen) == (2.5, 2, 0, 1)
    assert cell.remark == "2 of 3 runs: the arrays of the others are not here"
    rows_of = (Row("a", (cell,)), Row("b", (Value(9.0, n=3),)))
    table = Table("t", "T", (Column("NLL", better="low"),), rows_of)
    assert marks(table) == {(1, 0): "second"}  # it competes with what it has, and is not marked


# -- learning rates -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task() -> Task:
    return TASKS["digits"]()


def trial(cell: Cell, nll: float) -> RunRecord:
    return RunRecord(
        key=cell.key, title=cell.title, spec=cell.spec.to_plain(), members=(), data={},
        sessions=(), training={}, seconds={}, scores={}, absent={}, detectors={},
        numbers={"validation": {"id": {"nll": nll}}},
    )  # fmt: skip


def test_a_rate_whose_nll_is_infinite_is_not_chosen(task: Task, tmp_path: Path) -> None:
    protocol = Protocol(
        name="rated",
        title="Rated",
        task="digits",
        contestants=(Contestant("softmax"),),
        rates=Rates((0.1, 0.01), (0, 1)),
        seeds=(0,),
    )
    bench = Bench(protocol, tmp_path, task)
    nll = {(0.1, 0): 0.1, (0.1, 1): math.inf, (0.01, 0): 0.9, (0.01, 1): 0.9}
    for cell in bench.plan():
        if cell.group == RATES:
            record = trial(cell, nll[cell.spec.train.learning_rate, cell.seed])
            RecordFile(tmp_path).append(record, {})
    (chosen,) = [cell for cell in bench.plan() if cell.group == MAIN]
    assert chosen.ready
    assert chosen.spec.train.learning_rate == 0.01
