"""Accuracy, error detection and calibration on ID data; temperature scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import torch

from gemfi import metrics
from gemfi.calibration import HIGHEST, LOWEST, at_bound, fit_temperature
from gemfi_bench.record_file import View
from gemfi_bench.results import Results, mean_of, of_set, of_test
from gemfi_bench.tables.common import (
    Field,
    Measured,
    Source,
    contestants,
    gem_sources,
    make_table,
    number_field,
    require_arrays,
)
from gemfi_bench.tabular import Cell, Column, Table, Value

_ERRORS: Final = "Error detection by max p"
_COLUMNS: Final = {
    "accuracy": Column("Test acc.", "", "high"),
    "aupr_correct": Column("AUPR", _ERRORS, "high"),
    "aupr_error": Column("AP of errors", _ERRORS, "high"),
    "auroc_error": Column("AUROC", _ERRORS, "high"),
    "aurc": Column("AURC", _ERRORS, "low", 3),
    "brier": Column("Brier ×100", "Calibration", "low"),
    "nll": Column("NLL", "Calibration", "low", 3),
    "ece": Column("ECE", "Calibration", "low"),
}
_SCALED: Final = {
    "ece": Column("", "ECE", "low"),
    "nll": Column("", "NLL", "low", 3),
    "brier": Column("", "Brier ×100", "low"),
    "aupr_correct": Column("", "AUPR of right predictions", "high"),
}


def classification(results: Results) -> Table:
    """Accuracy, error detection, Brier score, NLL and ECE on the ID test data."""
    fields = [number_field(column, of_test(name)) for name, column in _COLUMNS.items()]
    return make_table(results, "table3", contestants(results), fields, inside=True)


def temperature_scaling(results: Results) -> Table:
    """Every method before and after temperature scaling, with error and OOD detection."""
    sources = contestants(results)
    here = [name for name in results.ood_sets if not results.is_absent(name)]
    absent = [results.title(name) for name in results.ood_sets if name not in here]
    auroc = mean_of([of_set(name, "epistemic", "auroc") for name in here])
    fields = _scaled_fields(results, sources, tuple(_SCALED))
    fields.append(number_field(Column("Mean AUROC", "OOD detection", "high"), auroc))
    without = f" Data absent: {', '.join(absent)}." if absent else ""
    return make_table(results, "table13-cifar10", sources, fields, absent=without)


def scaling_of_gem(results: Results) -> Table:
    """The GEM variants before and after temperature scaling."""
    sources = gem_sources(results)
    fields = _scaled_fields(results, sources, ("ece", "nll", "brier"))
    return make_table(results, "ts_calibration", sources, fields, inside=True)


def scaled(sets: View) -> Mapping[str, float]:
    """T of the validation data, and the metrics of the test data before and after it."""
    validation, test = sets["validation"], sets["test"]
    log_temperature = fit_temperature(
        torch.from_numpy(validation["log_probs"]), torch.from_numpy(validation["label"])
    )
    log_probs = torch.from_numpy(test["log_probs"]).to(torch.float64)
    cooled = torch.log_softmax(log_probs / log_temperature.exp(), dim=1)
    numbers = {
        "temperature": float(log_temperature.exp()),
        "at bound": float(at_bound(log_temperature)),
    }
    for moment, predicted in (("before", log_probs), ("after", cooled)):
        found = metrics.classification_metrics(predicted, test["label"])
        numbers |= {f"{name} {moment}": found[name] for name in _SCALED}
    return numbers


def _scaled_fields(
    results: Results, sources: Sequence[Source], names: Sequence[str]
) -> list[Field]:
    """Each metric before and after scaling, then T."""
    require_arrays(results, sources)
    measured = {source: Measured(source, scaled) for source in sources}

    def number(name: str, source: Source) -> Cell:
        return measured[source].cell(name)

    fields = [
        Field(replace(_SCALED[name], name=moment), partial(number, f"{name} {moment}"))
        for name in names
        for moment in ("before", "after")
    ]
    temperature = Column("T", decimals=3)
    return [*fields, Field(temperature, lambda source: _temperature(measured[source]))]


def _temperature(measured: Measured) -> Cell:
    """T, with a remark where it has no optimum."""
    cell = measured.cell("temperature")
    bound = int(sum(measured.numbers.get("at bound", {}).values()))
    if not isinstance(cell, Value) or not bound:
        return cell
    flag = (
        f"T is at a bound ({LOWEST:g} or {HIGHEST:g}) in {bound} of {cell.n} runs: where every "
        "validation label is right the NLL falls as T does, and there is no optimum"
    )
    return replace(cell, flag=flag)
