"""What the arrays of the runs say of GEM's parts: energy, gate, heads and router."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from gemfi_bench.record_file import Sets
from gemfi_bench.results import Results
from gemfi_bench.statistics import spearman
from gemfi_bench.tables.common import (
    DATA_ABSENT,
    NOT_RUN,
    Field,
    Measured,
    Source,
    gem_sources,
    make_table,
    require_arrays,
    set_title,
)
from gemfi_bench.tabular import Cell, Column, Table, Value
from gemfi_bench.unavailable import Unavailable

Arrays = Mapping[str, npt.NDArray[Any]]

_ENERGY, _DISTANCE, _GATE = "score/energy", "part/distance", "part/gate"
_POOLS: Final = {"inside": "ID test", "pooled": "ID and OOD"}
_LEAST_P: Final = 1e-6  # a smaller p-value is printed as this bound, as the paper does
_DECILES: Final = 10
_DISTANCES: Final = {_DISTANCE: "unit-norm features", "part/distance_raw": "raw features"}


def _measured(
    sources: Sequence[Source], measure: Callable[[Sets], Mapping[str, float]]
) -> Callable[[Source], Measured]:
    """The numbers of the runs behind a row; rows of the same runs share them."""
    require_arrays(sources[0].results, sources)
    by_runs = {(source.row, source.group): Measured(source, measure) for source in sources}
    return lambda source: by_runs[source.row, source.group]


# -- energy and gate ------------------------------------------------------------------------------


def energy_support(results: Results) -> Table:
    """Spearman's correlation of the energy with the distance."""
    sources = gem_sources(results)
    measured = _measured(sources, _correlated(results, _ENERGY, _DISTANCE))

    def cell(at: int, pool: str, source: Source) -> Cell:
        return _pool_cells(measured(source), pool)[at]

    columns = ("Spearman ρ", "ρ > 0", "p-value")
    fields = [
        Field(Column(name, title, decimals=2 if at else 3), partial(cell, at, pool))
        for pool, title in _POOLS.items()
        for at, name in enumerate(columns)
    ]
    label = "energy_support_corr_appendix"
    return make_table(results, label, sources, fields, distance=_distance_note(results))


def _pool_cells(measured: Measured, pool: str) -> tuple[Cell, Cell, Cell]:
    """The correlation, in how many runs it is positive, and its largest p-value."""
    rho = measured.cell(pool)
    if not isinstance(rho, Value):
        return rho, rho, rho
    values = measured.numbers[pool].values()
    positive = f"{sum(value > 0 for value in values)} of {len(values)}"
    largest = max(measured.numbers.get(f"{pool} p", {}).values(), default=None)
    if largest is None:
        return rho, positive, None
    return rho, positive, "< 10⁻⁶" if largest < _LEAST_P else f"{largest:.2g}"


def gate_correlations(results: Results) -> Table:
    """Spearman's correlation of the mean gate with the energy and with the distance."""
    sources = gem_sources(results, "ablation-core", "ablation-mix")
    measured = {
        name: _measured(sources, _correlated(results, _GATE, array))
        for name, array in (("energy", _ENERGY), ("distance", _DISTANCE))
    }

    def gate(source: Source) -> str:
        for run in source.runs[:1]:
            head = run.spec["head"]
            return str(head.get("gate", "energy")) if head.get("core", True) else "none"
        return NOT_RUN

    def correlation(name: str, pool: str, source: Source) -> Cell:
        return measured[name](source).cell(pool)

    changes = {"energy": "0", "none": "0", NOT_RUN: NOT_RUN}
    fields = [
        Field(Column("Gate"), gate),
        *(
            Field(Column(name, title, decimals=3), partial(correlation, name, pool))
            for pool, title in _POOLS.items()
            for name in measured
        ),
        Field(Column("Label changes"), lambda source: changes.get(gate(source), "not kept")),
    ]
    return make_table(
        results, "gate_correlations", sources, fields, distance=_distance_note(results)
    )


def _distance_note(results: Results) -> str:
    here = [results.title(name) for name in results.unseen_sets if not results.is_absent(name)]
    return (
        "Distance: to the tenth nearest training feature (of at most 5,000), on unit-norm "
        "features. ID and OOD: test data and OOD test sets in one pool "
        f"({', '.join(here) or 'none is at hand'})."
    )


def _correlated(results: Results, first: str, second: str) -> Callable[[Sets], Mapping[str, float]]:
    return partial(correlations, outside=results.unseen_sets, first=first, second=second)


def correlations(
    sets: Sets, *, outside: Sequence[str], first: str, second: str
) -> Mapping[str, float]:
    """Of two arrays of a run, on test data and with OOD sets, with p-values; none without both."""
    numbers = {}
    here = [name for name in outside if name in sets]
    pools = {"inside": ["test"]} | ({"pooled": ["test", *here]} if here else {})
    for pool, names in pools.items():
        parts = [sets[name] for name in names]
        if any(first not in part or second not in part for part in parts):
            return {}
        x, y = (np.concatenate([part[name] for part in parts]) for name in (first, second))
        numbers[pool] = spearman(x, y)
        numbers[f"{pool} p"] = p_value(numbers[pool], len(x))
    return numbers


def p_value(rho: float, n: int) -> float:
    """Of no correlation, two-sided: ρ √((n − 2)/(1 − ρ²)) has Student's t with n − 2 degrees."""
    if math.isnan(rho) or n < 3:
        return math.nan
    if abs(rho) >= 1:
        return 0.0
    t = abs(rho) * math.sqrt((n - 2) / (1 - rho * rho))
    return float(2 * stdtr(n - 2, -t))


def energy_deciles(results: Results) -> Table:
    """Mean and deviation of the distance in each tenth of the test data by energy."""
    sources = gem_sources(results)
    measured = _measured(sources, _deciles)
    rows = [
        replace(source, name=f"{name}, {space}", section=source.name, score=f"{array} {statistic}")
        for source in sources
        for array, space in _DISTANCES.items()
        for statistic, name in (("mean", "Mean distance"), ("std", "Std. dev."))
    ]

    def decile(at: int, source: Source) -> Cell:
        return measured(source).cell(f"{source.score} {at}")

    head = "Decile of energy, lowest first"
    fields = [
        Field(Column(str(at + 1), head, decimals=3), partial(decile, at)) for at in range(_DECILES)
    ]
    return make_table(results, "energy_bins_appendix", rows, fields)


def _deciles(sets: Sets) -> Mapping[str, float]:
    test = sets["test"]
    if _ENERGY not in test:
        return {}
    parts = np.array_split(np.argsort(test[_ENERGY], kind="stable"), _DECILES)
    numbers = {}
    for array in _DISTANCES:
        for at, part in enumerate(parts):
            values = test[array][part].astype(np.float64)
            numbers[f"{array} mean {at}"] = _mean(values)
            spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
            numbers[f"{array} std {at}"] = spread
    return numbers


# -- heads and router -----------------------------------------------------------------------------

EASY: Final = 0.9
"""Least confidence of an easy input."""

BOUNDARY: Final = 0.6
"""Above every confidence of an input at the boundary."""


def diversity(results: Results) -> Table:
    """Cosine of the heads' predictions, and how often their labels differ."""
    columns = {
        "cosine": Column("Pairwise cosine", decimals=3),
        "differ": Column("Disagreement (%)"),
    }
    parts = {"test": "ID test"}
    return _by_part(results, "head_diversity_appendix", parts, _diversity, columns)


def _diversity(names: Sequence[str], sets: Sets) -> Mapping[str, float]:
    numbers = {}
    for name in ("test", *names):
        arrays = sets.get(name, {})
        if "part/cosine" in arrays:
            numbers[f"{name} cosine"] = _mean(arrays["part/cosine"])
            numbers[f"{name} differ"] = 100 * _mean(arrays["part/differ"])
    return numbers


def routing(results: Results) -> Table:
    """Entropy and largest weight of the router, on easy, hard and unfamiliar inputs."""
    columns = {
        "entropy": Column("Entropy of π", decimals=3),
        "max": Column("Largest weight", decimals=3),
        "count": Column("Inputs", decimals=0),
    }
    parts = {
        "easy": f"Easy ID (right, confidence ≥ {EASY:g})",
        "boundary": f"Boundary ID (right, confidence < {BOUNDARY:g})",
    }
    return _by_part(results, "routing_specialization_appendix", parts, _routing, columns)


def _routing(names: Sequence[str], sets: Sets) -> Mapping[str, float]:
    test = sets["test"]
    if "part/router_entropy" not in test:
        return {}
    masked = {name: (test, mask) for name, mask in conditions(test).items()}
    for name in names:
        if name in sets:
            masked[name] = sets[name], np.ones(len(sets[name]["prediction"]), dtype=bool)
    numbers = {}
    for name, (arrays, mask) in masked.items():
        numbers[f"{name} entropy"] = _mean(arrays["part/router_entropy"][mask])
        numbers[f"{name} max"] = _mean(arrays["part/router_max"][mask])
        numbers[f"{name} count"] = float(mask.sum()) if mask.any() else math.nan
    return numbers


def conditions(test: Arrays) -> dict[str, npt.NDArray[np.bool_]]:
    """Which test inputs are easy and which at the boundary."""
    confidence = 1 - test["score/max_prob"].astype(np.float64)
    right = test["prediction"] == test["label"]
    return {"easy": right & (confidence >= EASY), "boundary": right & (confidence < BOUNDARY)}


def _by_part(
    results: Results,
    label: str,
    inside: Mapping[str, str],
    measure: Callable[[Sequence[str], Sets], Mapping[str, float]],
    columns: Mapping[str, Column],
) -> Table:
    """A section for each mixture: a row for each part of the test data, then one an OOD set."""
    sources = [source for source in gem_sources(results) if not _has_one_head(source)]
    if not sources:
        raise Unavailable("the protocol has no mixture of heads")
    measured = _measured(sources, partial(measure, results.ood_sets))
    parts = dict(inside)
    parts |= {name: f"OOD: {set_title(results, name)}" for name in results.ood_sets}
    rows = [
        replace(source, name=words, score=part, section=source.name)
        for source in sources
        for part, words in parts.items()
    ]

    def cell(number: str, source: Source) -> Cell:
        if source.score not in inside and results.is_absent(source.score):
            return DATA_ABSENT
        return measured(source).cell(f"{source.score} {number}")

    fields = [Field(column, partial(cell, number)) for number, column in columns.items()]
    return make_table(results, label, rows, fields)


def _has_one_head(source: Source) -> bool:
    """Whether the runs, or the method, are known to have one head."""
    heads = [run.spec["head"] for run in source.runs]
    return source.method == "gem-core" or any(head["num_components"] == 1 for head in heads)


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.astype(np.float64).mean()) if len(values) else math.nan
