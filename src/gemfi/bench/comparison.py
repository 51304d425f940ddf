"""Ours beside theirs: each published number that a protocol has a counterpart for.

The convention is that under which the paper's number was really computed; a number that cannot be,
or is doubtful, carries the finding of the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gemfi.bench.audit import Flag, audit
from gemfi.bench.grid import ABLATION, COMPONENTS, FISHER, KL, MAIN, OUTLIERS
from gemfi.bench.published import PUBLISHED, Key, Published
from gemfi.bench.results import Pick, Results, mean_of, of_set, of_shift, of_test
from gemfi.bench.table import Cell, Column, Row, Table, Value
from gemfi.style import method_label

_DATA: Final = {"mnist": "mnist", "cifar10": "cifar10", "cifar10-frozen": "cifar10"}
"""Task -> the data set of the paper that it stands for."""

_SETS: Final = {"fmnist": "fashion-mnist", "tinyimagenet": "tiny-imagenet"}
"""OOD set of the paper -> its name here, where that differs."""

_TITLES: Final = {
    "table2": "OOD detection, AUPR",
    "table2b": "OOD detection, AUROC",
    "table3": "classification and calibration",
    "ood_aupr_auroc": "GEM-FI by score",
    "shift_detection_corruptions": "corruption shift, AUPR",
    "table13-cifar10": "against temperature scaling",
    "table5": "ablation",
    "lambda_fi_appendix": "sensitivity to λ_FI",
    "lambda_kl_appendix": "sensitivity to λ_KL",
    "gemfi_k_cifar": "number of heads",
    "fair_vos_appendix": "virtual outliers for all",
    "vos_replace_appendix": "VOS against noise",
    "rho_one_appendix": "ρ = 1",
}

Flags = Mapping[Key, tuple[Flag, ...]]
Counterpart = tuple[str, str, Pick]
"""Group, row and number of ours."""


def comparisons(results: Results) -> list[Table]:
    """A table for each of the paper's that has counterparts here, then the audit of them all."""
    data, flags = _DATA.get(results.protocol.task), audit()
    tables = []
    for label, title in _TITLES.items():
        entries = [e for e in PUBLISHED if e.label == label and _data_of(e) == data]
        if entries:
            tables.append(_table(results, label, title, entries, flags))
    return [*tables, audit_table(flags)]


def audit_table(flags: Flags) -> Table:
    """Every published number with a flag."""
    rows = [
        Row(
            name=method_label(entry.row),
            cells=(entry.label, entry.column, _theirs(entry), flag.severity, flag.reason),
            method=entry.row,
        )
        for entry in PUBLISHED
        for flag in flags.get(entry.key, ())
    ]
    return Table(
        label="published-audit",
        title="Published numbers that cannot be, or are doubtful",
        columns=(
            Column("Table"),
            Column("Column"),
            Column("Printed", marked=False),
            Column("Severity"),
            Column("Why"),
        ),
        rows=tuple(rows),
        stub="Row",
        notes=(
            "Impossible: by rules that any number of that kind must obey.",
            "Suspicious: by such rules, or by what is known of the released code.",
        ),
    )


def _table(
    results: Results, label: str, title: str, entries: list[Published], flags: Flags
) -> Table:
    rows = []
    for entry in entries:
        found = flags.get(entry.key, ())
        theirs = _theirs(entry, "; ".join(f"{each.severity}: {each.reason}" for each in found))
        cells: tuple[Cell, ...] = (entry.column, _ours(results, entry), theirs, entry.convention)
        rows.append(Row(method_label(entry.row), cells, method=entry.row))
    return Table(
        label=f"published-{label}",
        title=f"Ours and the paper's: {title}",
        columns=(
            Column("What"),
            Column("Ours", marked=False),
            Column("The paper's", marked=False),
            Column("The paper's convention"),
        ),
        rows=tuple(rows),
        stub="Row",
        notes=(
            "Budget, network and sets differ from the paper's: see the notes of the protocol.",
            "Ours: AUPR is average precision with ID positive, Brier the sum over classes ×100.",
        ),
    )


def _theirs(entry: Published, flag: str = "") -> Value:
    return Value(entry.mean, entry.std, n=5 if entry.std is not None else 1, flag=flag or None)


def _ours(results: Results, entry: Published) -> Cell:
    found = _COUNTERPARTS[entry.label](entry)
    if found is None:
        return "no counterpart"
    group, row, pick = found
    name = _set_of(entry)
    if name is not None and results.is_absent(name):
        return "data absent"
    value = results.value(row, pick, group)
    return "not run" if value is None else value


# -- counterparts ---------------------------------------------------------------------------------


def _data_of(entry: Published) -> str:
    """The data set that a number is of; tables without one in their columns are on CIFAR-10."""
    for text in (entry.column, entry.row):
        if ">" in text:
            return text.partition(">")[0]
    return "cifar10"


def _set_of(entry: Published) -> str | None:
    """The OOD set of a number, by its name here; None for ID data and corruptions."""
    for text in (entry.column, entry.row):
        if ">" in text:
            name = text.partition(">")[2].partition("/")[0]
            return None if name.endswith("-c") else _SETS.get(name, name)
    return None


def _row_of(name: str) -> tuple[str, str | None]:
    """The row of ours, and the detector if it is one on the softmax runs."""
    detectors = {"maxp": "maxp", "lts": "lts", "temperature": "temperature"}
    return ("softmax", detectors[name]) if name in detectors else (name, None)


def _detection(metric: str, group: str = MAIN) -> Callable[[Published], Counterpart | None]:
    """OOD detection, and beside it accuracy and error detection, as the paper's tables mix them."""

    def counterpart(entry: Published) -> Counterpart | None:
        row, detector = _row_of(_value(entry.row) if group in (FISHER, KL) else entry.row)
        name = _set_of(entry)
        if name is None:
            return group, row, of_test(entry.metric)
        kind = detector or entry.column.rpartition("/")[2]
        return group, row, of_set(name, kind, metric)

    return counterpart


def _value(text: str) -> str:
    return f"{float(text):g}"


def _classification(entry: Published) -> Counterpart | None:
    row, _ = _row_of(entry.row)
    if entry.row == "lts":
        return None  # it scores, and classifies as softmax does
    return MAIN, row, of_test(entry.metric)


def _scaled(entry: Published) -> Counterpart | None:
    if entry.row == "temperature":
        return None  # in the table of temperature scaling
    if entry.column == "mean_auroc":
        sets = ("svhn", "cifar100")
        return MAIN, entry.row, mean_of([of_set(name, "epistemic", "auroc") for name in sets])
    return MAIN, entry.row, of_test(entry.metric)


def _by_score(entry: Published) -> Counterpart | None:
    name = _set_of(entry)
    if name is None or entry.column == "accuracy":
        return MAIN, "gem-fi", of_test("accuracy")
    score, _, metric = entry.column.partition("/")
    return MAIN, "gem-fi", of_set(name, score, metric)


def _shift(entry: Published) -> Counterpart | None:
    row, _ = _row_of(entry.row)
    severity = entry.column.rpartition("/")[2]
    return (
        MAIN,
        row,
        of_shift(int(severity) if severity.isdigit() else None, "aleatoric", "aupr_ood"),
    )


def _outliers(entry: Published) -> Counterpart | None:
    rows = {"gem-fi": "gem-fi+vos", "gem-fi-without-vos": "gem-fi+none"}
    kind, name = entry.column.rpartition("/")[2], _set_of(entry)
    row = rows.get(entry.row, entry.row)
    return None if name is None else (OUTLIERS, row, of_set(name, kind, "aupr_id"))


def _scaler(entry: Published) -> Counterpart | None:
    kind, name = entry.column.rpartition("/")[2], _set_of(entry)
    if name is None:
        return None
    if kind == "epistemic":
        kind = "bare_evidence" if entry.row.endswith("without-rho") else "evidence"
    return MAIN, "gem-fi", of_set(name, kind, "aupr_id")


_COUNTERPARTS: Final[Mapping[str, Callable[[Published], Counterpart | None]]] = {
    "table2": _detection("aupr_id"),
    "table2b": _detection("auroc"),
    "table3": _classification,
    "ood_aupr_auroc": _by_score,
    "shift_detection_corruptions": _shift,
    "table13-cifar10": _scaled,
    "table5": _detection("aupr_id", ABLATION),
    "lambda_fi_appendix": _detection("aupr_id", FISHER),
    "lambda_kl_appendix": _detection("aupr_id", KL),
    "gemfi_k_cifar": _detection("aupr_id", COMPONENTS),
    "fair_vos_appendix": _outliers,
    "vos_replace_appendix": _outliers,
    "rho_one_appendix": _scaler,
}
"""Table of the paper -> what of ours stands beside one of its numbers."""
