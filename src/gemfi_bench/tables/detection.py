"""OOD detection by method: AUPR (table2) and AUROC (table2b)."""

from __future__ import annotations

from typing import Final

from gemfi.detectors import DETECTORS
from gemfi.methods import METHODS
from gemfi_bench.results import Results
from gemfi_bench.style import detector_label
from gemfi_bench.table import Cell, Column, Row, Table
from gemfi_bench.tables.common import (
    ID_POSITIVE,
    KINDS,
    Origin,
    contestants,
    detection_cells,
    detection_columns,
    make_table,
    of_ood,
    require_outside,
    score_names,
)
from gemfi_bench.tables.labels import OF_PROBABILITY

_VENUES: Final = {
    "Expert Systems with Applications": "ESWA",
    "Machine Vision and Applications": "MVA",
}


def ood_aupr(results: Results) -> Table:
    """OOD detection by method, AUPR."""
    return _table(results, "table2", "aupr_id", "AUPR", ID_POSITIVE)


def ood_auroc(results: Results) -> Table:
    """OOD detection by method, AUROC."""
    note = "AUROC: an OOD input has a higher score than an ID input, ties counting half."
    return _table(results, "table2b", "auroc", "AUROC", note)


def _table(results: Results, label: str, metric: str, head: str, note: str) -> Table:
    require_outside(results)
    sources = contestants(results)
    columns = [Column("Venue"), *detection_columns(results)]
    baselines = [_row(results, each, metric) for each in sources if not each.ours]
    detectors, fitted_on = _detectors(results, sources, metric)
    gem = [_row(results, each, metric) for each in sources if each.ours]
    notes = [note, score_names(results, sources)]
    if detectors:
        probable = ", ".join(
            detector_label(name)
            for name in OF_PROBABILITY
            if any(name in run.detectors for source in sources for run in source.runs(results))
        )
        notes.append(
            f"Post-hoc detectors (on {', '.join(fitted_on)}) have one score each: those of a "
            f"probability ({probable or 'none here'}) are under Alea., the others under Epis."
        )
    title = f"OOD detection: {head} of aleatoric and epistemic uncertainty"
    rows = [*baselines, *detectors, *gem]
    return make_table(results, label, title, columns, rows, notes, sources=sources)


def _row(results: Results, source: Origin, metric: str) -> Row:
    info = METHODS[results.method(source.row)].info
    cells = detection_cells(results, source, metric)
    return source.to_row(results, [venue(info.venue, info.year), *cells])


def _detectors(results: Results, sources: list[Origin], metric: str) -> tuple[list[Row], list[str]]:
    """A row for each detector, and the methods on whose runs they were fitted."""
    rows, on = [], []
    for source in sources:
        known = {name for run in source.runs(results) for name in run.detectors}
        if known:
            on.append(source.name)
        for name in [each for each in DETECTORS if each in known]:
            shown = f"{source.name} + {detector_label(name)}"
            rows.append(_detector_row(results, source, shown, name, metric))
    return rows, on


def _detector_row(results: Results, source: Origin, shown: str, name: str, metric: str) -> Row:
    kind = "aleatoric" if name in OF_PROBABILITY else "epistemic"
    cells: list[Cell] = [
        of_ood(results, source, each, name, metric, detector=True) if kind == column else None
        for each in results.ood_sets
        for column in KINDS
    ]
    info = DETECTORS[name].info
    method = results.method(source.row)
    return Row(shown, (venue(info.venue, info.year), *cells), method)


def venue(name: str, year: int) -> str:
    """As the paper writes it, `NeurIPS18`."""
    return f"{_VENUES.get(name, name)}{year % 100:02d}"
