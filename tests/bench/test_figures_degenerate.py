"""Every figure of a bench whose sets are one input, or whose scores are equal or nearly so."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.figure import Figure

from gemfi._files import to_json
from gemfi_bench.figures import FIGURES, common
from gemfi_bench.record_file import RECORDS, Sets, read_arrays, write_arrays
from gemfi_bench.results import Results
from gemfi_bench.runner import GRID, PROTOCOL
from gemfi_bench.unavailable import Unavailable

Array = npt.NDArray[Any]
ROWS = ("daedl", "gem-core", "gem-mix", "gem-fi")
"""Of which the first and the last are enough for the figures of scores."""

INPUTS = 12  # of each set: what is drawn of them is quick
FAR = "noise"  # the one far set that is kept
BY_SPEC = ("arch", "dirichlet-comp", "tsne-fi", "tsne-comparison")
"""Figures that no score changes."""


def _measured(name: str) -> bool:
    return name.startswith(("score/", "part/"))


def zero(name: str, values: Array) -> Array:
    """Every score is 0."""
    return np.zeros_like(values) if _measured(name) else values


def alone(_name: str, values: Array) -> Array:
    """A set is one input."""
    return values[:1]


def narrow(name: str, values: Array) -> Array:
    """Scores differ by a hundredth of themselves."""
    steps = np.linspace(0.5, 0.505, len(values), dtype=np.float32)
    return steps if _measured(name) else values


def degenerate(source: Results, folder: Path, change: Callable[[str, Array], Array]) -> Results:
    """A few runs of a bench, of the first seed and two OOD sets, with other arrays."""
    shutil.copy(source.folder / GRID, folder / GRID)
    protocol = replace(source.protocol, far=(FAR,))
    (folder / PROTOCOL).write_text(to_json(protocol.to_plain()))
    kept = (*protocol.near, FAR)
    lines = []
    for run in source.records.values():
        numbers = dict(run.numbers)
        if "ood" in numbers:
            numbers["ood"] = {name: numbers["ood"][name] for name in kept}
        lines.append(replace(run, numbers=numbers).line() + "\n")
    (folder / RECORDS).write_text("".join(lines))
    for row in ROWS if change is alone else ROWS[::3]:
        key = source.runs(row)[0].key
        sets: Sets = {
            name: {each: change(each, values[:INPUTS]) for each, values in arrays.items()}
            for name, arrays in read_arrays(source.file.arrays(key)).items()
        }
        write_arrays(folder / "arrays" / f"{key}.npz", sets)
    return Results(folder)


@pytest.mark.parametrize("change", [alone, zero, narrow])
def test_every_figure_is_drawn_or_says_why_not(
    small_results: Results, tmp_path: Path, change: Callable[[str, Array], Array]
) -> None:
    results, drawn = degenerate(small_results, tmp_path, change), []
    for label, entry in FIGURES.items():
        if label in BY_SPEC and change is not alone:
            continue
        with contextlib.suppress(Unavailable):
            figure = entry.draw(results)
            figure.draw_without_rendering()  # where ticks are placed
            drawn.append(label)
    assert {"prroc", "reliability_id", "hist-ood", "supp-uncert"} <= set(drawn)


@pytest.mark.parametrize("ticks", [3, 4, 5])
@pytest.mark.parametrize("length", [1.0, 1.001, 7.9, 8.0, 99.0, 1e30])
def test_a_logarithmic_axis_of_any_length_has_ticks(ticks: int, length: float) -> None:
    axes = Figure().subplots()
    axes.set(xlim=(0.01, 0.01 * length * 1.001))
    common.log_axis(axes, "x", (0.01, 0.01 * length), ticks)
    axes.figure.draw_without_rendering()
