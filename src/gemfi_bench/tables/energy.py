"""Does the learned energy follow the distance to the training data, and the gate the energy?"""

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
from gemfi_bench.table import Cell, Column, Row, Table, Value
from gemfi_bench.tables.arrays import Measured, measured, measured_cell, require_arrays
from gemfi_bench.tables.common import NOT_RUN, Origin, gem_sources, make_table, setting

_LEAST: Final = 1e-6  # a smaller p-value is printed as this bound, as the paper does
_DECILES: Final = 10
_ENERGY, _DISTANCE, _GATE = "score/energy", "part/distance", "part/gate"
_PLACES: Final = {"inside": "ID test", "pooled": "ID and OOD"}
_NOTE: Final = (
    "Distance: to the tenth nearest training feature (of at most 5,000), on unit-norm features. "
    "ID and OOD: test data and OOD test sets in one pool"
)

Floats = npt.NDArray[Any]


# -- correlations ---------------------------------------------------------------------------------


def energy_support(results: Results) -> Table:
    """Spearman's correlation of the energy with the distance."""
    sources = _sources(results)
    measure = partial(correlations, outside=results.unseen_sets, first=_ENERGY, second=_DISTANCE)
    rows = []
    for source in sources:
        found = measured(results, source, measure)
        cells: list[Cell] = []
        for place in _PLACES:
            rho = measured_cell(results, source, found, place)
            known = isinstance(rho, Value)
            cells += [rho, _positive(found, place) if known else rho]
            cells.append(_largest_p(found, place) if known else rho)
        rows.append(source.to_row(results, cells))
    columns = [
        column
        for title in _PLACES.values()
        for column in (
            Column("Spearman ρ", title, decimals=3),
            Column("ρ > 0", title),
            Column("p-value", title),
        )
    ]
    notes = (
        _note(results),
        (
            "ρ > 0: in how many runs. p-value: of no correlation, by Student's t with n − 2 "
            "degrees of freedom, the largest of the runs. It falls with n and does not say how "
            "strong the correlation is."
        ),
        "The paper has a row for each data set, and no pool. A row without an energy is empty.",
    )
    title = "Rank correlation of the learned energy with the distance to the training data"
    label = "energy_support_corr_appendix"
    return make_table(results, label, title, columns, rows, notes, sources=sources, stub="Model")


def gate_correlations(results: Results) -> Table:
    """Spearman's correlation of the mean gate with the energy and with the distance."""
    sources = _sources(results, "ablation-core", "ablation-mix")
    others = {"energy": _ENERGY, "distance": _DISTANCE}
    columns = [
        Column("Gate"),
        *(Column(name, title, decimals=3) for title in _PLACES.values() for name in others),
        Column("Label changes"),
    ]
    rows = [_gate_row(results, source, others) for source in sources]
    notes = (
        "Spearman's correlation of the gate (its mean over the classes) with the learned energy "
        "and with the distance: negative where the gate closes off the support. " + _note(results),
        (
            "Gate “energy” is a falling function of the energy: −1 is by construction, and as it "
            "scales all classes alike no label changes. Of gate “prob” a common scale cancels; the "
            "labels without the gate are not kept in the arrays."
        ),
        "The paper claims this inverse mapping and has no such table.",
    )
    title = "Rank correlation of the gate with energy and distance"
    label = "gate_correlations"
    return make_table(results, label, title, columns, rows, notes, sources=sources, stub="Model")


def _note(results: Results) -> str:
    here = [results.title(name) for name in results.unseen_sets if not results.is_absent(name)]
    return f"{_NOTE} ({', '.join(here) or 'none is at hand'})."


def _sources(results: Results, *more: str) -> list[Origin]:
    sources = [replace(each, ours=False) for each in gem_sources(results, *more)]
    require_arrays(results, sources)
    return sources


def _gate_row(results: Results, source: Origin, others: Mapping[str, str]) -> Row:
    found = {
        name: measured(
            results,
            source,
            partial(correlations, outside=results.unseen_sets, first=_GATE, second=array),
        )
        for name, array in others.items()
    }
    cells = [
        measured_cell(results, source, found[name], place) for place in _PLACES for name in others
    ]
    kind = NOT_RUN
    for run in source.runs(results)[:1]:
        kind = setting(run, "head", "gate") if setting(run, "head", "core") else "none"
    changes = {"energy": "0", "none": "0", NOT_RUN: NOT_RUN}.get(kind, "not kept")
    return source.to_row(results, [kind, *cells, changes])


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
    found = {}
    here = [name for name in outside if name in sets]
    pools = {"inside": ["test"]} | ({"pooled": ["test", *here]} if here else {})
    for place, names in pools.items():
        parts = [sets[name] for name in names]
        if any(first not in part or second not in part for part in parts):
            return {}
        x, y = (np.concatenate([part[name] for part in parts]) for name in (first, second))
        found[place] = spearman(x, y)
        found[f"{place} p"] = p_value(found[place], len(x))
    return found


def p_value(rho: float, n: int) -> float:
    """Of no correlation, two-sided: ρ √((n − 2)/(1 − ρ²)) has Student's t with n − 2 degrees."""
    from scipy.special import stdtr  # noqa: PLC0415 - seconds to import; scikit-learn has it

    if math.isnan(rho) or n < 3:
        return math.nan
    if abs(rho) >= 1:
        return 0.0
    t = abs(rho) * math.sqrt((n - 2) / (1 - rho * rho))
    return float(2 * stdtr(n - 2, -t))


def _positive(found: Measured, place: str) -> str:
    values = list(found[place].values())
    return f"{sum(value > 0 for value in values)} of {len(values)}"


def _largest_p(found: Measured, place: str) -> Cell:
    values = found.get(f"{place} p", {}).values()
    if not values:
        return None
    largest = max(values)
    return "< 10⁻⁶" if largest < _LEAST else f"{largest:.2g}"


# -- deciles --------------------------------------------------------------------------------------

_DISTANCES: Final = {_DISTANCE: "unit-norm features", "part/distance_raw": "raw features"}


def energy_deciles(results: Results) -> Table:
    """Mean and deviation of the distance in each tenth of the test data by energy."""
    sources = _sources(results)
    rows = []
    for source in sources:
        found = measured(results, source, _deciles)
        for array, text in _DISTANCES.items():
            for statistic in ("mean", "std"):
                name = {"mean": "Mean distance", "std": "Std. dev."}[statistic]
                cells = [
                    measured_cell(results, source, found, f"{array} {statistic} {at}")
                    for at in range(_DECILES)
                ]
                line = replace(source, name=f"{name}, {text}", section=source.name)
                rows.append(line.to_row(results, cells))
    columns = [
        Column(str(at + 1), "Decile of energy, lowest first", decimals=3) for at in range(_DECILES)
    ]
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
    return make_table(results, label, title, columns, rows, notes, sources=sources, stub="")


def _deciles(sets: Sets) -> Mapping[str, float]:
    test = sets["test"]
    if _ENERGY not in test:
        return {}
    parts = np.array_split(np.argsort(test[_ENERGY], kind="stable"), _DECILES)
    found = {}
    for array in _DISTANCES:
        for at, part in enumerate(parts):
            values: Floats = test[array][part].astype(np.float64)
            found[f"{array} mean {at}"] = float(values.mean()) if len(values) else math.nan
            spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
            found[f"{array} std {at}"] = spread
    return found
