"""The cells of a table of the benchmark, and numbers of its runs to compare them with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gemfi_bench.grid import MAIN
from gemfi_bench.results import Results
from gemfi_bench.tabular import Cell, Table, Value

Sets = Mapping[str, Mapping[str, npt.NDArray[Any]]]


def over_runs(
    results: Results, row: str, measure: Callable[[Sets], float], group: str = MAIN
) -> list[float]:
    found = [measure(results.arrays(run)) for run in results.runs(row, group)]
    assert found
    return found


def same(cell: Cell, values: list[float], tolerance: float = 2e-6) -> None:
    """A cell is the mean and the sample deviation of one number a run."""
    assert isinstance(cell, Value)
    assert cell.n == len(values)
    assert cell.mean == pytest.approx(sum(values) / len(values), abs=tolerance)
    if len(values) > 1:
        assert cell.std == pytest.approx(np.std(values, ddof=1), abs=tolerance)
    else:
        assert cell.std is None


def cell(table: Table, name: str, column: str, group: str = "", section: str = "") -> Cell:
    heads = [(each.name, each.group) for each in table.columns]
    rows = [each for each in table.rows if (each.name, each.section) == (name, section)]
    assert len(rows) == 1, [(each.name, each.section) for each in table.rows]
    return rows[0].cells[heads.index((column, group))]
