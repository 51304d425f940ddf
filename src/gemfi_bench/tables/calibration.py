"""Temperature scaling: all methods before and after it (table13-cifar10), and the GEM family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch

from gemfi import metrics
from gemfi.calibration import HIGHEST, LOWEST, at_bound, fit_temperature
from gemfi_bench.record_file import View
from gemfi_bench.results import Results, mean_of, of_set
from gemfi_bench.table import Cell, Column, Table, Value
from gemfi_bench.tables.arrays import Measured, measured, measured_cell, require_arrays
from gemfi_bench.tables.common import (
    Origin,
    contestants,
    gem_sources,
    make_table,
    number,
)

_METRICS: Final = {
    "ece": Column("", "ECE", "low"),
    "nll": Column("", "NLL", "low", 3),
    "brier": Column("", "Brier ×100", "low"),
    "aupr_correct": Column("", "AUPR of right predictions", "high"),
}
_MOMENTS: Final = ("before", "after")
_NOTE: Final = (
    "Before and after temperature scaling, p^(1/T) renormalised: T has the least NLL on ID "
    "validation data, the numbers are of test data. ECE with 15 bins, Brier score summed over the "
    "classes."
)


def comparison(results: Results) -> Table:
    """Every method before and after temperature scaling, with error and OOD detection."""
    sources = contestants(results)
    require_arrays(results, sources)
    names = tuple(_METRICS)
    here = [name for name in results.ood_sets if not results.is_absent(name)]
    absent = [name for name in results.ood_sets if name not in here]
    auroc = mean_of([of_set(name, "epistemic", "auroc") for name in here])
    rows = []
    for source in sources:
        found = measured(results, source, scaled)
        cells = _cells(results, source, found, names)
        rows.append(source.to_row(results, [*cells, number(results, source, auroc)]))
    columns = [*_columns(names), Column("Mean AUROC", "OOD detection", "high")]
    notes = [
        _NOTE,
        (
            "The paper compares TS of a softmax network with the raw output of the others: that is "
            "Softmax after against the others before."
        ),
        "Mean AUROC: epistemic score, mean over the OOD sets; TS is not part of it."
        + (f" Data absent: {', '.join(map(results.title, absent))}." if absent else ""),
    ]
    title = "Temperature scaling of every method"
    return make_table(results, "table13-cifar10", title, columns, rows, notes, sources=sources)


def effect_on_gem(results: Results) -> Table:
    """The GEM variants before and after temperature scaling."""
    sources = [replace(each, ours=False) for each in gem_sources(results)]
    require_arrays(results, sources)
    names = ("ece", "nll", "brier")
    rows = [
        source.to_row(results, _cells(results, source, measured(results, source, scaled), names))
        for source in sources
    ]
    notes = (
        _NOTE,
        (
            "The paper's table averages the Brier score over the classes: ten times less for ten. "
            "Fitted and measured on the same data TS cannot raise the NLL; on other data it can."
        ),
    )
    title = "Effect of temperature scaling on the GEM family"
    columns = _columns(names)
    return make_table(
        results,
        "ts_calibration",
        title,
        columns,
        rows,
        notes,
        sources=sources,
        stub="Model",
        inside=True,
    )


def scaled(sets: View) -> Mapping[str, float]:
    """T of the validation data, and the metrics of the test data before and after it."""
    validation, test = sets["validation"], sets["test"]
    log_temperature = fit_temperature(
        torch.from_numpy(validation["log_probs"]), torch.from_numpy(validation["label"])
    )
    log_probs = torch.from_numpy(test["log_probs"]).to(torch.float64)
    cooled = torch.log_softmax(log_probs / log_temperature.exp(), dim=1)
    before = metrics.classification_metrics(log_probs, test["label"])
    after = metrics.classification_metrics(cooled, test["label"])
    return {
        "temperature": float(log_temperature.exp()),
        "at bound": float(at_bound(log_temperature)),
        **{f"{name} before": before[name] for name in _METRICS},
        **{f"{name} after": after[name] for name in _METRICS},
    }


def _columns(names: Sequence[str]) -> list[Column]:
    pairs = [replace(_METRICS[name], name=moment) for name in names for moment in _MOMENTS]
    return [*pairs, Column("T", decimals=3)]


def _cells(results: Results, source: Origin, found: Measured, names: Sequence[str]) -> list[Cell]:
    wanted = [f"{name} {moment}" for name in names for moment in _MOMENTS]
    cells = [measured_cell(results, source, found, name) for name in wanted]
    return [*cells, _temperature(results, source, found)]


def _temperature(results: Results, source: Origin, found: Measured) -> Cell:
    """T, with a remark where it has no optimum."""
    cell = measured_cell(results, source, found, "temperature")
    bound = int(sum(found.get("at bound", {}).values()))
    if not isinstance(cell, Value) or not bound:
        return cell
    flag = (
        f"T is at a bound ({LOWEST:g} or {HIGHEST:g}) in {bound} of {cell.n} runs: where every "
        "validation label is right the NLL falls as T does, and there is no optimum"
    )
    return replace(cell, flag=flag)
