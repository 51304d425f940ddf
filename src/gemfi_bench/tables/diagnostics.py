"""What the arrays of the runs say of GEM's parts: energy, gate, heads and router."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi_bench.record_file import Sets
from gemfi_bench.results import Results
from gemfi_bench.statistics import spearman
from gemfi_bench.tables.common import (
    DATA_ABSENT,
    NOT_RUN,
    Measured,
    Source,
    gem_sources,
    require_arrays,
    set_title,
    with_notes,
)
from gemfi_bench.tabular import Cell, Column, Row, Table, Value
from gemfi_bench.unavailable import Unavailable

Arrays = Mapping[str, npt.NDArray[Any]]

# -- energy and gate ------------------------------------------------------------------------------

_ENERGY, _DISTANCE, _GATE = "score/energy", "part/distance", "part/gate"
_POOLS: Final = {"inside": "ID test", "pooled": "ID and OOD"}
_LEAST_P: Final = 1e-6  # a smaller p-value is printed as this bound, as the paper does
_DECILES: Final = 10
_DISTANCES: Final = {_DISTANCE: "unit-norm features", "part/distance_raw": "raw features"}


def energy_support(results: Results) -> Table:
    """Spearman's correlation of the energy with the distance."""
    sources = gem_sources(results)
    require_arrays(results, sources)
    rows = []
    for source in sources:
        measured = _correlated(source, _ENERGY, _DISTANCE)
        rows.append(source.to_row(cell for pool in _POOLS for cell in _pool_cells(measured, pool)))
    columns = [
        column
        for title in _POOLS.values()
        for column in (
            Column("Spearman ρ", title, decimals=3),
            Column("ρ > 0", title),
            Column("p-value", title),
        )
    ]
    notes = (
        _distance_note(results),
        (
            "ρ > 0: in how many runs. p-value: of no correlation, by Student's t with n − 2 "
            "degrees of freedom, the largest of the runs. It falls with n and does not say how "
            "strong the correlation is."
        ),
        "The paper has a row for each data set, and no pool. A row without an energy is empty.",
    )
    title = "Rank correlation of the learned energy with the distance to the training data"
    label = "energy_support_corr_appendix"
    return with_notes(results, label, title, columns, rows, notes, sources=sources, stub="Model")


def _pool_cells(measured: Measured, pool: str) -> list[Cell]:
    """The correlation, in how many runs it is positive, and its largest p-value."""
    rho = measured.cell(pool)
    if not isinstance(rho, Value):
        return [rho, rho, rho]
    values = measured.numbers[pool].values()
    positive = f"{sum(value > 0 for value in values)} of {len(values)}"
    p_values = measured.numbers.get(f"{pool} p", {}).values()
    if not p_values:
        return [rho, positive, None]
    largest = max(p_values)
    return [rho, positive, "< 10⁻⁶" if largest < _LEAST_P else f"{largest:.2g}"]


def gate_correlations(results: Results) -> Table:
    """Spearman's correlation of the mean gate with the energy and with the distance."""
    sources = gem_sources(results, "ablation-core", "ablation-mix")
    require_arrays(results, sources)
    others = {"energy": _ENERGY, "distance": _DISTANCE}
    columns = [
        Column("Gate"),
        *(Column(name, title, decimals=3) for title in _POOLS.values() for name in others),
        Column("Label changes"),
    ]
    rows = []
    for source in sources:
        measured = [_correlated(source, _GATE, array) for array in others.values()]
        gate = NOT_RUN
        for run in source.runs[:1]:
            head = run.spec["head"]
            gate = head.get("gate", "energy") if head.get("core", True) else "none"
        changes = {"energy": "0", "none": "0", NOT_RUN: NOT_RUN}.get(gate, "not kept")
        cells = (numbers.cell(pool) for pool in _POOLS for numbers in measured)
        rows.append(source.to_row([gate, *cells, changes]))
    notes = (
        "Spearman's correlation of the gate (its mean over the classes) with the learned energy "
        "and with the distance: negative where the gate closes off the support. "
        + _distance_note(results),
        (
            "Gate “energy” is a falling function of the energy: −1 is by construction, and as it "
            "scales all classes alike no label changes. Of gate “prob” a common scale cancels; the "
            "labels without the gate are not kept in the arrays."
        ),
        "The paper claims this inverse mapping and has no such table.",
    )
    title = "Rank correlation of the gate with energy and distance"
    label = "gate_correlations"
    return with_notes(results, label, title, columns, rows, notes, sources=sources, stub="Model")


def _distance_note(results: Results) -> str:
    here = [results.title(name) for name in results.unseen_sets if not results.is_absent(name)]
    return (
        "Distance: to the tenth nearest training feature (of at most 5,000), on unit-norm "
        "features. ID and OOD: test data and OOD test sets in one pool "
        f"({', '.join(here) or 'none is at hand'})."
    )


def _correlated(source: Source, first: str, second: str) -> Measured:
    outside = source.results.unseen_sets
    return Measured(source, partial(correlations, outside=outside, first=first, second=second))


def correlations(
    sets: Sets, *, outside: Sequence[str], first: str, second: str
) -> Mapping[str, float]:
    """Of two arrays, on test data and on all of it, with their p-values; NaN without either.

    Args:
        sets: the arrays of a run.
        outside: names of the OOD sets.
        first: name of an array.
        second: name of another.
    """
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
    from scipy.special import stdtr  # noqa: PLC0415 - seconds to import; scikit-learn has it

    if math.isnan(rho) or n < 3:
        return math.nan
    if abs(rho) >= 1:
        return 0.0
    t = abs(rho) * math.sqrt((n - 2) / (1 - rho * rho))
    return float(2 * stdtr(n - 2, -t))


def energy_deciles(results: Results) -> Table:
    """Mean and deviation of the distance in each tenth of the test data by energy."""
    sources = gem_sources(results)
    require_arrays(results, sources)
    rows = []
    for source in sources:
        measured = Measured(source, _deciles)
        for array, space in _DISTANCES.items():
            for statistic, name in (("mean", "Mean distance"), ("std", "Std. dev.")):
                line = replace(source, name=f"{name}, {space}", section=source.name)
                cells = (measured.cell(f"{array} {statistic} {at}") for at in range(_DECILES))
                rows.append(line.to_row(cells))
    head = "Decile of energy, lowest first"
    columns = [Column(str(at + 1), head, decimals=3) for at in range(_DECILES)]
    notes = (
        (
            "Test data, ordered by the learned energy and cut into ten equal parts. Std. dev. is "
            "that of the distances within a part; ± is over the seeds."
        ),
        (
            "The paper's distances, 4.8 to 12.5, can only be of raw features: on the unit sphere "
            "none exceeds 2."
        ),
    )
    title = "Distance to the training data by deciles of the energy"
    label = "energy_bins_appendix"
    return with_notes(results, label, title, columns, rows, notes, sources=sources, stub="")


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
    sources = _mixtures(results)
    columns = {
        "cosine": Column("Pairwise cosine", decimals=3),
        "differ": Column("Disagreement (%)"),
    }
    rows = []
    for source in sources:
        measured = Measured(source, partial(_diversity, results.ood_sets))
        rows += _set_rows(source, measured, list(columns), {"test": "ID test"})
    notes = (
        (
            "Cosine of the predictions p of two heads, and share of pairs of heads whose most "
            "probable class differs; mean over pairs and inputs, ± over the seeds."
        ),
    )
    label, title = "head_diversity_appendix", "Diversity of the heads"
    heads = list(columns.values())
    return with_notes(results, label, title, heads, rows, notes, sources=sources, stub="Data")


def _diversity(names: list[str], sets: Sets) -> Mapping[str, float]:
    numbers = {}
    for name in ("test", *names):
        arrays = sets.get(name, {})
        if "part/cosine" in arrays:
            numbers[f"{name} cosine"] = _mean(arrays["part/cosine"])
            numbers[f"{name} differ"] = 100 * _mean(arrays["part/differ"])
    return numbers


def routing(results: Results) -> Table:
    """Entropy and largest weight of the router, on easy, hard and unfamiliar inputs."""
    sources = _mixtures(results)
    columns = {
        "entropy": Column("Entropy of π", decimals=3),
        "max": Column("Largest weight", decimals=3),
        "count": Column("Inputs", decimals=0),
    }
    inside = {
        "easy": f"Easy ID (right, confidence ≥ {EASY:g})",
        "boundary": f"Boundary ID (right, confidence < {BOUNDARY:g})",
    }
    rows = []
    for source in sources:
        measured = Measured(source, partial(_routing, results.ood_sets))
        rows += _set_rows(source, measured, list(columns), inside)
    notes = (
        (
            "Entropy of the router's weights π in nats and their largest, mean over the inputs, ± "
            f"over the seeds; at most log K, {math.log(3):.3f} for three heads. Inputs is how many "
            "there are in a run, of the runs with any."
        ),
        "gem-fi here has a term that favours an even π; with the paper's settings there is none.",
    )
    label, title = "routing_specialization_appendix", "Specialisation of the router"
    heads = list(columns.values())
    return with_notes(results, label, title, heads, rows, notes, sources=sources, stub="Condition")


def _routing(names: list[str], sets: Sets) -> Mapping[str, float]:
    test = sets["test"]
    if "part/router_entropy" not in test:
        return {}
    masked = {name: (test, mask) for name, mask in conditions(test).items()}
    masked |= {
        name: (sets[name], np.ones(len(sets[name]["prediction"]), dtype=bool))
        for name in names
        if name in sets
    }
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


def _mixtures(results: Results) -> list[Source]:
    """Mixtures alone: what is known to have one head is left out."""
    sources = [
        replace(source, section=source.name)
        for source in gem_sources(results)
        if not _has_one_head(source)
    ]
    if not sources:
        raise Unavailable("the protocol has no mixture of heads")
    require_arrays(results, sources)
    return sources


def _has_one_head(source: Source) -> bool:
    if source.method == "gem-core":
        return True
    heads = [run.spec["head"] for run in source.runs]
    return any(head["num_components"] == 1 for head in heads)


def _set_rows(
    source: Source, measured: Measured, numbers: Sequence[str], inside: Mapping[str, str]
) -> list[Row]:
    """A row for each part of the test data, then one for each OOD set."""
    results = source.results
    rows = [
        replace(source, name=title).to_row(measured.cell(f"{part} {number}") for number in numbers)
        for part, title in inside.items()
    ]
    for name in results.ood_sets:
        absent = results.is_absent(name)
        cells = (DATA_ABSENT if absent else measured.cell(f"{name} {key}") for key in numbers)
        rows.append(replace(source, name=f"OOD: {set_title(results, name)}").to_row(cells))
    return rows


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.astype(np.float64).mean()) if len(values) else math.nan
