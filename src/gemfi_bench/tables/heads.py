"""Do the heads differ, and does the router tell inputs apart?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi_bench.record_file import Sets
from gemfi_bench.results import Results
from gemfi_bench.table import Cell, Column, Row, Table
from gemfi_bench.tables.arrays import Measured, measured, measured_cell, require_arrays
from gemfi_bench.tables.common import (
    DATA_ABSENT,
    Origin,
    gem_sources,
    make_table,
    set_title,
)
from gemfi_bench.unavailable import Unavailable

EASY: Final = 0.9
"""Least confidence of an easy input."""

BOUNDARY: Final = 0.6
"""Above every confidence of an input at the boundary."""

_TEST: Final = "test"

Arrays = Mapping[str, npt.NDArray[Any]]


# -- diversity ------------------------------------------------------------------------------------


def diversity(results: Results) -> Table:
    """Cosine of the heads' predictions, and how often their labels differ."""
    sources = _sources(results)
    rows = []
    for source in sources:
        found = measured(results, source, partial(_diversity, results.ood_sets))
        rows += _set_rows(results, source, found, ("cosine", "differ"), {_TEST: "ID test"})
    columns = [
        Column("Pairwise cosine", decimals=3),
        Column("Disagreement (%)"),
    ]
    notes = (
        (
            "Cosine of the predictions p of two heads, and share of pairs of heads whose most "
            "probable class differs; mean over pairs and inputs, ± over the seeds."
        ),
    )
    title = "Diversity of the heads"
    label = "head_diversity_appendix"
    return make_table(results, label, title, columns, rows, notes, sources=sources, stub="Data")


def _diversity(names: list[str], sets: Sets) -> Mapping[str, float]:
    found = {}
    for name in (_TEST, *names):
        arrays = sets.get(name, {})
        if "part/cosine" in arrays:
            found[f"{name} cosine"] = _mean(arrays["part/cosine"])
            found[f"{name} differ"] = 100 * _mean(arrays["part/differ"])
    return found


# -- routing --------------------------------------------------------------------------------------


def routing(results: Results) -> Table:
    """Entropy and largest weight of the router, on easy, hard and unfamiliar inputs."""
    sources = _sources(results)
    rows = []
    inside = {
        "easy": f"Easy ID (right, confidence ≥ {EASY:g})",
        "boundary": f"Boundary ID (right, confidence < {BOUNDARY:g})",
    }
    for source in sources:
        found = measured(results, source, partial(_routing, results.ood_sets))
        rows += _set_rows(results, source, found, ("entropy", "max", "count"), inside)
    columns = [
        Column("Entropy of π", decimals=3),
        Column("Largest weight", decimals=3),
        Column("Inputs", decimals=0),
    ]
    notes = (
        (
            "Entropy of the router's weights π in nats and their largest, mean over the inputs, ± "
            f"over the seeds; at most log K, {math.log(3):.3f} for three heads. Inputs is how many "
            "there are in a run, of the runs with any."
        ),
        "gem-fi here has a term that favours an even π; with the paper's settings there is none.",
    )
    title = "Specialisation of the router"
    label = "routing_specialization_appendix"
    return make_table(
        results, label, title, columns, rows, notes, sources=sources, stub="Condition"
    )


def _routing(names: list[str], sets: Sets) -> Mapping[str, float]:
    if "part/router_entropy" not in sets[_TEST]:
        return {}
    chosen: dict[str, tuple[Arrays, npt.NDArray[np.bool_]]] = {
        name: (sets[_TEST], mask) for name, mask in conditions(sets[_TEST]).items()
    }
    for name in names:
        if name in sets:
            everything = np.ones(len(sets[name]["prediction"]), dtype=bool)
            chosen[name] = sets[name], everything
    found = {}
    for name, (arrays, mask) in chosen.items():
        found[f"{name} entropy"] = _mean(arrays["part/router_entropy"][mask])
        found[f"{name} max"] = _mean(arrays["part/router_max"][mask])
        found[f"{name} count"] = float(mask.sum()) if mask.any() else math.nan
    return found


def conditions(test: Arrays) -> dict[str, npt.NDArray[np.bool_]]:
    """Which test inputs are easy and which at the boundary."""
    confidence = 1 - test["score/max_prob"].astype(np.float64)
    right = test["prediction"] == test["label"]
    return {"easy": right & (confidence >= EASY), "boundary": right & (confidence < BOUNDARY)}


# -- both -----------------------------------------------------------------------------------------


def _sources(results: Results) -> list[Origin]:
    """Mixtures alone: what is known to have one head is left out."""
    sources = [
        replace(each, ours=False, section=each.name)
        for each in gem_sources(results)
        if not _single(results, each)
    ]
    if not sources:
        raise Unavailable("the protocol has no mixture of heads")
    require_arrays(results, sources)
    return sources


def _single(results: Results, source: Origin) -> bool:
    if results.method(source.row, source.group) == "gem-core":
        return True
    heads = [run.spec["head"] for run in source.runs(results)]
    return any(head["num_components"] == 1 for head in heads)


def _set_rows(
    results: Results,
    source: Origin,
    found: Measured,
    numbers: tuple[str, ...],
    inside: Mapping[str, str],
) -> list[Row]:
    """A row for each part of the test data, then one for each OOD set."""
    outside = {name: f"OOD: {set_title(results, name)}" for name in results.ood_sets}
    rows = []
    for name, title in {**inside, **outside}.items():
        cells: list[Cell] = [
            DATA_ABSENT
            if name in outside and results.is_absent(name)
            else measured_cell(results, source, found, f"{name} {each}")
            for each in numbers
        ]
        rows.append(replace(source, name=title).to_row(results, cells))
    return rows


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.astype(np.float64).mean()) if len(values) else math.nan
