"""OOD detection by the score that OOD-validation data choose for each method."""

from __future__ import annotations

from gemfi.scores import DIFFERENTIAL_ENTROPY_NOTE, score_label
from gemfi_bench.choice import chosen
from gemfi_bench.results import Results
from gemfi_bench.table import Cell, Column, Row, Table, Value
from gemfi_bench.tables.common import (
    NOT_RUN,
    Origin,
    contestants,
    make_table,
    of_ood,
    pair_title,
    require_outside,
)
from gemfi_bench.unavailable import Unavailable

_METRICS = {"aupr_id": "AUPR", "auroc": "AUROC"}


def by_validation(results: Results) -> Table:
    """Each method with its best score on OOD-validation data, on the OOD test sets."""
    require_outside(results)
    tuning = _tuning(results)
    sources = contestants(results)
    columns = [
        Column("Score"),
        Column("of"),
        Column("AUROC", tuning, "high"),
        *(
            Column(head, pair_title(results, name), "high")
            for name in results.ood_sets
            for head in _METRICS.values()
        ),
    ]
    rows: list[Row] = []
    for source in sources:
        rows.append(_row(results, source, source.name))
        if any(run.detectors for run in source.runs(results)):
            rows.append(_row(results, source, f"{source.name} + detector", detector=True))
    notes = [
        (
            "Every method has the one of its scores with the highest mean AUROC over its runs on "
            "OOD-validation data, where the other tables have the score that it names beforehand. "
            "Nothing of the OOD test sets takes part in the choice. The third column counts the "
            "scores, or post-hoc detectors, that there were to choose from."
        ),
        "AUPR has ID as the positive class.",
    ]
    labels = {score_label(name) for name in ("differential_entropy", "differential_entropy_upper")}
    if any(row.cells[0] in labels for row in rows):
        notes.append(DIFFERENTIAL_ENTROPY_NOTE)
    title = "OOD detection by the score that OOD-validation data choose"
    return make_table(results, "ood_chosen", title, columns, rows, notes, sources=sources)


def _row(results: Results, source: Origin, name: str, *, detector: bool = False) -> Row:
    shown = Origin(name, source.row, source.group, ours=source.ours)
    if not source.runs(results):
        return shown.to_row(results, [NOT_RUN] * (3 + len(_METRICS) * len(results.ood_sets)))
    choice = chosen(results, source.row, source.group, detector=detector)
    value = Value.of(list(choice.aurocs.values()), list(choice.aurocs))
    cells: list[Cell] = [choice.label, str(choice.among), value]
    cells += [
        of_ood(results, source, each, choice.name, metric, detector=detector)
        for each in results.ood_sets
        for metric in _METRICS
    ]
    return shown.to_row(results, cells)


def _tuning(results: Results) -> str:
    """The OOD-validation sets, by their names as soon as a run was evaluated on them."""
    tested = [run for run in results.records.values() if "ood" in run.numbers]
    names = {name: None for run in tested for name in run.numbers.get("ood_validation", {})}
    if tested and not names:
        raise Unavailable("the task has no OOD-validation sets")
    return f"{' and '.join(map(results.title, names)) or 'OOD-validation'} (tuning)"
