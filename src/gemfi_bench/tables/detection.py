"""OOD detection: by method, by score, by the score that validation chooses, under corruption."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from gemfi import metrics
from gemfi.detectors import DETECTORS
from gemfi.methods import METHODS
from gemfi.scores import DIFFERENTIAL_ENTROPY_NOTE, score_label
from gemfi_bench.choice import chosen
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Pick, Results, data_title, of_shift, of_test
from gemfi_bench.style import detector_label
from gemfi_bench.tables.common import (
    KINDS,
    NOT_RUN,
    Field,
    Source,
    both_settings,
    contestants,
    make_table,
    number_field,
    ood_fields,
    require_outside,
    score_names,
)
from gemfi_bench.tables.labels import OF_PROBABILITY
from gemfi_bench.tabular import Cell, Column, Table, Value
from gemfi_bench.unavailable import Unavailable

_VENUES: Final = {
    "Expert Systems with Applications": "ESWA",
    "Machine Vision and Applications": "MVA",
}

_METRICS: Final = {"table2": "aupr_id", "table2b": "auroc"}

# -- by method ------------------------------------------------------------------------------------


def by_method(results: Results, label: str) -> Table:
    """OOD detection by method, and by the detectors that were fitted on its runs."""

    def cell(source: Source, name: str, kind: str) -> Cell:
        one_kind = "aleatoric" if source.score in OF_PROBABILITY else "epistemic"
        if source.detector and kind != one_kind:
            return None
        return source.ood(name, source.score or kind, _METRICS[label])

    fields = [Field(Column("Venue"), _venue), *ood_fields(results, KINDS, cell)]
    sources = contestants(results)
    detectors = [
        replace(
            source,
            name=f"{source.name} + {detector_label(name)}",
            ours=False,
            score=name,
            detector=True,
        )
        for source in sources
        for name in DETECTORS
        if any(name in run.detectors for run in source.runs)
    ]
    note = ""
    if detectors:
        hosts = dict.fromkeys(detector.row for detector in detectors)
        on = ", ".join(source.name for source in sources if source.row in hosts)
        known = {detector.score for detector in detectors}
        probable = ", ".join(detector_label(name) for name in OF_PROBABILITY if name in known)
        note = (
            f"Post-hoc detectors (on {on}) have one score each: those of a "
            f"probability ({probable or 'none here'}) are under Alea., the others under Epis."
        )
    baselines = [source for source in sources if not source.ours]
    gem = [source for source in sources if source.ours]
    rows = [*baselines, *detectors, *gem]
    return make_table(results, label, rows, fields, detectors=note, scores=score_names(sources))


def _venue(source: Source) -> str:
    """Where the method was published, as the paper writes it: `NeurIPS18`."""
    info = (DETECTORS[source.score] if source.detector else METHODS[source.method]).info
    return f"{_VENUES.get(info.venue, info.venue)}{info.year % 100:02d}"


# -- by score -------------------------------------------------------------------------------------

SCORES: Final = {
    "max_prob": "MaxP (1 − max p)",
    "evidence": "α0 (evidence, with ρ)",
    "energy": "Energy (learned)",
    "entropy": "Entropy",
    "disagreement": "MI as JSD of the heads",
    "mutual_information": "MI, total",
    "unfamiliarity": "Unfamiliarity",
    "bare_evidence": "α0 with ρ = 1",
    "density": "Density (−log p(z))",
    "logit_energy": "Energy of the logits",
}
"""Score -> its row: those of the paper, then ours."""


def by_score(results: Results) -> Table:
    """AUPR and AUROC of each score of GEM-FI on each OOD set."""
    heads = {"aupr_id": "AUPR", "aupr_ood": "AUPR, OOD+", "auroc": "AUROC"}
    fields = ood_fields(
        results, heads, lambda source, name, metric: source.ood(name, source.score, metric)
    )
    sources = both_settings(results, "GEM-FI", "GEM-FI, paper's settings")
    notes = []
    for source in sources:
        accuracy = source.number(of_test("accuracy"))
        if isinstance(accuracy, Value):
            notes.append(f"Test accuracy of {source.name}: {accuracy.mean:.2f}.")
    rows = [
        replace(source, name=name, score=score)
        for source in sources
        for score, name in SCORES.items()
    ]
    return make_table(results, "ood_aupr_auroc", rows, fields, notes)


def rho_one(results: Results) -> Table:
    """Evidence with and without the density scaler, of the same runs."""

    def cell(source: Source, name: str, kind: str) -> Cell:
        return source.ood(name, source.score if kind == "epistemic" else "max_prob", "aupr_id")

    fields = ood_fields(results, KINDS, cell, marked=("epistemic",))
    names = {"evidence": "GEM-FI with ρ(z)", "bare_evidence": "GEM-FI with ρ(z) = 1"}
    rows = [
        replace(source, name=name, score=score)
        for source in both_settings(results, "Settings here", "Paper's settings")
        for score, name in names.items()
    ]
    return make_table(results, "rho_one_appendix", rows, fields)


# -- by the score that validation chooses ---------------------------------------------------------


def by_validation(results: Results) -> Table:
    """Each method with its best score on OOD-validation data, on the OOD test sets."""
    require_outside(results)
    tuning = _tuning(results)
    rows, facts = [], dict[Source, tuple[Cell, ...]]()
    for source in contestants(results):
        for detector in (False, True):
            if detector and not any(run.detectors for run in source.runs):
                continue
            row = replace(source, detector=detector)
            if source.runs:
                choice = chosen(results, source.row, source.group, detector=detector)
                name = f"{source.name} + detector" if detector else source.name
                row = replace(row, name=name, score=choice.name)
                value = Value.of(list(choice.aurocs.values()), list(choice.aurocs))
                facts[row] = (choice.label, str(choice.among), value)
            rows.append(row)

    def fact(at: int, source: Source) -> Cell:
        return facts[source][at] if source in facts else NOT_RUN

    def cell(source: Source, name: str, metric: str) -> Cell:
        return source.ood(name, source.score, metric) if source in facts else NOT_RUN

    columns = (Column("Score"), Column("of"), Column("AUROC", tuning, "high"))
    fields = [
        *(Field(column, partial(fact, at)) for at, column in enumerate(columns)),
        *ood_fields(results, {"aupr_id": "AUPR", "auroc": "AUROC"}, cell),
    ]
    labels = {score_label(name) for name in ("differential_entropy", "differential_entropy_upper")}
    note = DIFFERENTIAL_ENTROPY_NOTE if any(label in labels for label, *_ in facts.values()) else ""
    return make_table(results, "ood_chosen", rows, fields, differential_entropy=note)


def _tuning(results: Results) -> str:
    """The OOD-validation sets, by their names as soon as a run was evaluated on them."""
    tested = [run for run in results.records.values() if "ood" in run.numbers]
    names = {name: None for run in tested for name in run.numbers.get("ood_validation", {})}
    if tested and not names:
        raise Unavailable("the task has no OOD-validation sets")
    return f"{' and '.join(map(results.title, names)) or 'OOD-validation'} (tuning)"


# -- under corruption -----------------------------------------------------------------------------


def corruptions(results: Results) -> Table:
    """AUPR of corrupted against clean inputs, and accuracy, averaged over the corruptions."""
    shift = results.protocol.shift
    if not shift.corruptions:
        raise Unavailable("the protocol has no corruptions: shift.corruptions is not set")
    heads: dict[int | None, str] = {severity: f"C = {severity}" for severity in shift.severities}
    heads = heads or {None: "corrupted"}
    sources = contestants(results)
    columns = [
        (Column(head, f"AUPR, {kind}", "high"), of_corrupted(results, severity, kind))
        for kind in KINDS
        for severity, head in heads.items()
    ]
    columns.append((Column("clean", "Accuracy", "high"), of_test("accuracy")))
    columns += [
        (Column(head, "Accuracy", "high"), of_shift(severity, "id", "accuracy"))
        for severity, head in heads.items()
    ]
    fields = [number_field(column, pick) for column, pick in columns]
    names = ", ".join(name.replace("_", " ") for name in shift.corruptions)
    return make_table(
        results,
        "shift_detection_corruptions",
        sources,
        fields,
        task=data_title(results.protocol.task),
        count=len(shift.corruptions),
        images=shift.images,
        names=names,
    )


def of_corrupted(results: Results, severity: int | None, kind: str) -> Pick:
    """AUPR of corrupted inputs; from the arrays where the records leave the score out."""
    recorded = of_shift(severity, kind, "aupr_ood")

    def pick(run: RunRecord) -> float | None:
        value = recorded(run)
        if value is not None or not results.has_arrays(run):
            return value
        sets, array = results.arrays(run), f"score/{run.scores[kind]}"
        clean = sets.get("test", {}).get(array)
        if clean is None:
            return None
        ending = "" if severity is None else f"-{severity}"
        auprs = [
            metrics.aupr_ood(clean[: len(arrays[array])], arrays[array])
            for name, arrays in sets.items()
            if name.startswith("shift/") and name.endswith(ending) and array in arrays
        ]
        return sum(auprs) / len(auprs) if auprs else None

    return pick
