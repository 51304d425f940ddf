"""Detection of corrupted inputs, and accuracy on them, by severity."""

from __future__ import annotations

from typing import Final

from gemfi import metrics
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Pick, Results, data_title, of_shift, of_test
from gemfi_bench.table import Cell, Column, Table
from gemfi_bench.tables.common import (
    KINDS,
    Origin,
    contestants,
    make_table,
    number,
    score_names,
)
from gemfi_bench.unavailable import Unavailable

_GROUPS: Final = {
    "aleatoric": "AUPR, aleatoric",
    "epistemic": "AUPR, epistemic",
}


def corruptions(results: Results) -> Table:
    """AUPR of corrupted against clean inputs, and accuracy, averaged over the corruptions."""
    shift = results.protocol.shift
    if not shift.corruptions:
        raise Unavailable("the protocol has no corruptions: shift.corruptions is not set")
    severities = shift.severities or (None,)
    sources = contestants(results)
    columns = [
        *(Column(_head(each), _GROUPS[kind], "high") for kind in KINDS for each in severities),
        Column("clean", "Accuracy", "high"),
        *(Column(_head(each), "Accuracy", "high") for each in severities),
    ]
    rows = [source.to_row(results, _cells(results, source, severities)) for source in sources]
    task = data_title(results.protocol.task)
    notes = (
        (
            f"{task} → {len(shift.corruptions)} corruptions of the first {shift.images:,} test "
            f"inputs at most: {', '.join(each.replace('_', ' ') for each in shift.corruptions)}."
        ),
        (
            "AUPR is average precision with corrupted inputs as the positive class against the "
            "clean ones that they were made from, mean over the corruptions; a constant score has "
            "50."
        ),
        "The paper shows aleatoric uncertainty alone. " + score_names(results, sources),
    )
    title = "Detection of corruption shift by severity"
    label = "shift_detection_corruptions"
    return make_table(results, label, title, columns, rows, notes, sources=sources)


def _head(severity: int | None) -> str:
    return "corrupted" if severity is None else f"C = {severity}"


def _cells(results: Results, source: Origin, severities: tuple[int | None, ...]) -> list[Cell]:
    picks = [
        *(of_corrupted(results, each, kind) for kind in KINDS for each in severities),
        of_test("accuracy"),
        *(of_shift(each, "id", "accuracy") for each in severities),
    ]
    return [number(results, source, pick) for pick in picks]


def of_corrupted(results: Results, severity: int | None, kind: str) -> Pick:
    """AUPR of corrupted inputs; from the arrays where the records leave the score out."""
    recorded = of_shift(severity, kind, "aupr_ood")

    def pick(run: RunRecord) -> float | None:
        value = recorded(run)
        if value is not None or not results.has_arrays(run):
            return value
        return _from_arrays(results, run, severity, f"score/{run.scores[kind]}")

    return pick


def _from_arrays(
    results: Results, run: RunRecord, severity: int | None, array: str
) -> float | None:
    sets = results.arrays(run)
    clean = sets.get("test", {}).get(array)
    found = []
    for name, arrays in sets.items():
        ends = severity is None or name.endswith(f"-{severity}")
        if name.startswith("shift/") and ends and array in arrays and clean is not None:
            values = arrays[array]
            found.append(metrics.aupr_ood(clean[: len(values)], values))
    return sum(found) / len(found) if found else None
