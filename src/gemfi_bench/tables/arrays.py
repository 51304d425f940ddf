"""Numbers that the records do not hold: each run's, from the arrays that it kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gemfi_bench.record_file import Sets
from gemfi_bench.results import Results
from gemfi_bench.table import Cell, Value
from gemfi_bench.tables.common import NOT_RUN, Origin
from gemfi_bench.unavailable import Unavailable

NO_ARRAYS: Final = "no arrays"

Measure = Callable[[Sets], Mapping[str, float]]
"""Named numbers of a run; NaN for what the run does not define."""

Measured = Mapping[str, Mapping[str, float]]
"""Name -> key of a run -> number."""


def require_arrays(results: Results, sources: Sequence[Origin]) -> None:
    """Refuse a table whose runs are done, but none of them with its arrays at hand."""
    runs = [run for source in sources for run in source.runs(results)]
    if runs and not any(results.has_arrays(run) for run in runs):
        raise Unavailable(
            "the arrays of these runs are not here, which committed records go without; "
            "gemfi bench --arrays makes them again"
        )


def measured(results: Results, source: Origin, measure: Measure) -> Measured:
    """The numbers of every run of a row whose arrays are here; each file is read once."""
    found: dict[str, dict[str, float]] = {}
    for run in source.runs(results):
        if results.has_arrays(run):
            for name, value in measure(results.arrays(run)).items():
                kept = found.setdefault(name, {})
                if not math.isnan(value):
                    kept[run.key] = value
    return found


def measured_cell(results: Results, source: Origin, found: Measured, name: str) -> Cell:
    """Mean and deviation of a number, with how many runs lack it, or arrays; None if all do."""
    runs = source.runs(results)
    if not runs:
        return NOT_RUN
    here = sum(results.has_arrays(run) for run in runs)
    if not here:
        return NO_ARRAYS
    values = found.get(name)
    if not values:
        return None
    cell = Value.of(list(values.values()), list(values), here - len(values))
    return replace(cell, unseen=len(runs) - here)
