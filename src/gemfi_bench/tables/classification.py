"""Classification, calibration and error detection by method (table3)."""

from __future__ import annotations

from typing import Final

from gemfi_bench.results import Results, of_test
from gemfi_bench.table import Column, Table
from gemfi_bench.tables.common import contestants, make_table, number

_COLUMNS: Final = {
    "accuracy": Column("Test acc.", "", "high"),
    "aupr_correct": Column("AUPR", "Error detection by max p", "high"),
    "aupr_error": Column("AP of errors", "Error detection by max p", "high"),
    "auroc_error": Column("AUROC", "Error detection by max p", "high"),
    "aurc": Column("AURC", "Error detection by max p", "low", 3),
    "brier": Column("Brier ×100", "Calibration", "low"),
    "nll": Column("NLL", "Calibration", "low", 3),
    "ece": Column("ECE", "Calibration", "low"),
}


def classification(results: Results) -> Table:
    """Accuracy, error detection, Brier score, NLL and ECE on the ID test data."""
    sources = contestants(results)
    rows = [
        source.to_row(results, [number(results, source, of_test(name)) for name in _COLUMNS])
        for source in sources
    ]
    notes = (
        (
            "AUPR: right predictions are positive, so that the base rate is the accuracy. AP of "
            "errors and AUROC: wrong ones are; a run without errors has neither. AURC: area under "
            "the risk-coverage curve."
        ),
        (
            "Brier score: sum over the classes, ×100; NLL in nats; ECE with 15 bins. The paper "
            "mixes at least four definitions of the Brier score in one column."
        ),
        (
            "Post-hoc detectors leave p as it is: they have the numbers of the runs they were "
            "fitted on."
        ),
    )
    title = "Classification, error detection and calibration on ID test data"
    columns = list(_COLUMNS.values())
    return make_table(results, "table3", title, columns, rows, notes, sources=sources, inside=True)
