"""Ours beside theirs: each published number that a protocol has a counterpart for.

The convention is that under which the paper's number was really computed; a number that cannot be,
or is doubtful, carries the finding of the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gemfi.scores import score_label
from gemfi_bench.audit import Flag, audit
from gemfi_bench.grid import ABLATION, COMPONENTS, FISHER, KL, MAIN, OUTLIERS
from gemfi_bench.published import PAIRS, PUBLISHED, Key, Pair, Published
from gemfi_bench.results import (
    Pick,
    Results,
    data_title,
    mean_of,
    of_detector,
    of_set,
    of_shift,
    of_test,
)
from gemfi_bench.tables.common import DATA_ABSENT, NOT_RUN, WORDS, worded_table
from gemfi_bench.tables.labels import OF_PROBABILITY, published_label
from gemfi_bench.tables.settings import SETTING_LABELS
from gemfi_bench.tabular import Cell, Column, Row, Table, Value
from gemfi_bench.words import one_line

_DATA: Final = {"mnist": "mnist", "cifar10": "cifar10", "cifar10-frozen": "cifar10"}
"""Task -> the data set of the paper that it stands for."""

_SETS: Final = {"fmnist": "fashion-mnist", "tinyimagenet": "tiny-imagenet"}
"""OOD set of the paper -> its name here, where that differs."""

_PAPERS: Final = {here: there for there, here in _SETS.items()}

_INSTEAD: Final = {"tiny-imagenet": "tiny-imagenet-158"}
"""OOD set of the paper, by its name here -> what runs have in its place."""

_SHIFT: Final = "shift_detection_corruptions"
_WORDS: Final = WORDS["published"]

_METRICS: Final = {
    "aupr_id": "AUPR",
    "auroc": "AUROC",
    "aupr_correct": "AUPR of right predictions",
    "brier": "Brier",
    "ece": "ECE",
    "mean_auroc": "mean AUROC",
}
"""Metrics in the columns of the paper's tables, in words."""

Flags = Mapping[Key, tuple[Flag, ...]]


def comparisons(results: Results) -> list[Table]:
    """A table for each of the paper's that has counterparts here, then the audit of them all."""
    data, flags = _DATA.get(results.protocol.task), audit()
    tables = []
    for label in _COUNTERPARTS:
        entries = [
            entry for entry in PUBLISHED if (entry.label, _sets_of(entry)[0]) == (label, data)
        ]
        if entries:
            tables.append(_table(results, label, entries, flags))
    return [*tables, _audit_table(flags)]


def _audit_table(flags: Flags) -> Table:
    """Every published number with a flag."""
    rows = [
        Row(
            _label(entry.row),
            (entry.label, entry.column, _theirs(entry), flag.severity, flag.reason),
            method=entry.row,
        )
        for entry in PUBLISHED
        for flag in flags.get(entry.key, ())
    ]
    columns = [Column("Table"), Column("Column"), Column("Printed", marked=False)]
    return worded_table("published-audit", [*columns, Column("Severity"), Column("Why")], rows)


def _table(results: Results, label: str, entries: list[Published], flags: Flags) -> Table:
    rows = []
    for printed in entries:
        entry = _localised(results, printed)
        what = ": ".join(map(_word, entry.column.split("/")))  # `SVHN: epistemic`
        flag = "; ".join(f"{flag.severity}: {flag.reason}" for flag in flags.get(printed.key, ()))
        cells = (what, _ours(results, entry), _theirs(entry, flag), entry.convention)
        rows.append(Row(_label(entry.row), cells, method=entry.row))
    columns = (
        Column("What"),
        Column("Ours", marked=False),
        Column("The paper's", marked=False),
        Column("The paper's convention"),
    )
    sets = [_name_here(results, name) for entry in entries if (name := _set_of(entry))]
    positive = "corrupted" if label == _SHIFT else "ID"
    title, *remarks = _WORDS["tables"][label]
    notes = (
        *(one_line(note, positive=positive) for note in _WORDS["notes"]),
        *(one_line(_WORDS[remark]) for remark in remarks),
        *_sizes(results, entries),
        *results.caveats(dict.fromkeys(sets)),
        *results.protocol.notes,
    )
    title = f"Ours and the paper's: {title}"
    return Table(f"published-{label}", title, columns, tuple(rows), "Row", notes)


def _word(part: str) -> str:
    """A part of the name of a column, in words."""
    if ">" in part:
        name = part.partition(">")[2]
        return "corrupted" if name.endswith("-c") else data_title(_SETS.get(name, name))
    return f"severity {part}" if part.isdigit() else _METRICS.get(part, score_label(part))


def _sizes(results: Results, entries: list[Published]) -> list[str]:
    """Of sets of other sizes than the paper's: how many, and what that does to AUPR.

    A constant score has the share of ID inputs as AUPR, so that a number of ours above one of
    theirs may be no better.
    """
    known, texts = results.sizes, []
    for pair, theirs in PAIRS.items():
        name = _name_here(results, pair.partition(">")[2])
        ours = Pair(known.get("test", 0), known.get(name, 0))
        metrics = {
            entry.metric for entry in entries if pair in (entry.row, entry.column.partition("/")[0])
        }
        if not metrics or not ours.n_id or not ours.n_ood or ours == theirs:
            continue
        text = f"{data_title(name)}: ours are {ours.n_ood:,} images beside {ours.n_id:,} ID ones, "
        text += f"the paper's {theirs.n_ood:,} beside {theirs.n_id:,}"
        if "aupr_id" in metrics:
            here, there = (f"{100 * sizes.base_rate_id:.1f}" for sizes in (ours, theirs))
            text += f"; AUPRs do not compare: a constant score has {here} here, {there} there"
        texts.append(f"{text}.")
    return texts


def _theirs(entry: Published, flag: str = "") -> Value:
    return Value(entry.mean, entry.std, n=5 if entry.std is not None else 1, flag=flag or None)


def _ours(results: Results, entry: Published) -> Cell:
    """The number of ours, or why there is none."""
    ours = _COUNTERPARTS[entry.label](entry)
    if ours is None:
        return "no counterpart"
    runs = results.runs(ours.row, ours.group)
    if any(results.lacks(name, runs) for name in ours.sets):
        return DATA_ABSENT
    if not runs:
        return NOT_RUN
    if entry.label == _SHIFT and not results.protocol.shift.corruptions:
        return "no corruptions here"
    return results.value(ours.row, ours.pick, ours.group) or "no number"


def _label(row: str) -> str:
    """A row of the paper's tables; sets and pairs of them by their own names."""
    known = SETTING_LABELS.get(row) or published_label(row)
    if known != row:
        return known
    return " → ".join(data_title(_SETS.get(name, name)) for name in row.split(">"))


def _localised(results: Results, entry: Published) -> Published:
    """A published number with its OOD set by the name that it has in these results."""
    name = _set_of(entry)
    if not name:
        return entry
    there, here = f">{_PAPERS.get(name, name)}", f">{_name_here(results, name)}"
    return replace(
        entry, row=entry.row.replace(there, here), column=entry.column.replace(there, here)
    )


def _name_here(results: Results, name: str) -> str:
    """The name of an OOD set of the paper in these results."""
    known = _SETS.get(name, name)
    instead = _INSTEAD.get(known, known)
    return instead if instead in results.ood_sets else known


def _sets_of(entry: Published) -> tuple[str, str]:
    """The data set that a number is of, and the OOD set if it is of one, as the paper calls it.

    Tables without a data set in their columns are on CIFAR-10.
    """
    for text in (entry.column, entry.row):
        if ">" in text:
            data, _, rest = text.partition(">")
            return data, rest.partition("/")[0]
    return "cifar10", ""


def _set_of(entry: Published) -> str:
    """The OOD set of a number, by its name here; empty for ID data and corruptions."""
    name = _sets_of(entry)[1]
    return "" if name.endswith("-c") else _SETS.get(name, name)


# -- counterparts ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counterpart:
    """What of ours stands beside a published number: a number of a row, maybe of OOD sets."""

    group: str
    row: str
    pick: Pick
    sets: tuple[str, ...] = ()


_OURS: Final = {"gem-fi": "gem-fi+vos", "gem-fi-without-vos": "gem-fi+none"}
"""Row of the paper on outliers -> ours."""

_ON_SOFTMAX: Final = ("maxp", "lts", "temperature")
"""Rows of the paper that are detectors on the softmax runs here."""


def _row_of(entry: Published) -> str:
    return "softmax" if entry.row in _ON_SOFTMAX else entry.row


def _detection(metric: str, group: str = MAIN) -> Callable[[Published], Counterpart | None]:
    """OOD detection, and beside it accuracy and error detection, as the paper's tables mix them."""

    def counterpart(entry: Published) -> Counterpart | None:
        row, name, kind = _row_of(entry), _set_of(entry), entry.column.rpartition("/")[2]
        if group in (FISHER, KL):
            row = f"{float(row):g}"
        if group == OUTLIERS:
            row = _OURS.get(row, row)
        if not name:
            return Counterpart(group, row, of_test(entry.metric))
        if entry.row not in _ON_SOFTMAX:
            return Counterpart(group, row, of_set(name, kind, metric), (name,))
        if kind != ("aleatoric" if entry.row in OF_PROBABILITY else "epistemic"):
            return None  # its one score is of the other kind
        return Counterpart(group, row, of_detector(name, entry.row, metric), (name,))

    return counterpart


def _on_test(entry: Published) -> Counterpart | None:
    if entry.row in {"table3": ("lts",), "table13-cifar10": ("temperature",)}[entry.label]:
        return None  # it scores, and classifies as softmax does; it is in the table of its own
    if entry.column == "mean_auroc":
        sets = ("svhn", "cifar100")
        pick = mean_of([of_set(name, "epistemic", "auroc") for name in sets])
        return Counterpart(MAIN, entry.row, pick, sets)
    return Counterpart(MAIN, _row_of(entry), of_test(entry.metric))


def _by_score(entry: Published) -> Counterpart:
    name = _set_of(entry)
    if entry.column == "accuracy":
        return Counterpart(MAIN, "gem-fi", of_test("accuracy"))
    score, _, metric = entry.column.partition("/")
    return Counterpart(MAIN, "gem-fi", of_set(name, score, metric), (name,))


def _shift(entry: Published) -> Counterpart:
    severity = entry.column.rpartition("/")[2]
    level = int(severity) if severity.isdigit() else None
    return Counterpart(MAIN, _row_of(entry), of_shift(level, "aleatoric", "aupr_ood"))


def _scaler(entry: Published) -> Counterpart:
    kind, name = entry.column.rpartition("/")[2], _set_of(entry)
    if kind == "epistemic":
        kind = "bare_evidence" if entry.row.endswith("without-rho") else "evidence"
    return Counterpart(MAIN, "gem-fi", of_set(name, kind, "aupr_id"), (name,))


_COUNTERPARTS: Final[Mapping[str, Callable[[Published], Counterpart | None]]] = {
    "table2": _detection("aupr_id"),
    "table2b": _detection("auroc"),
    "table3": _on_test,
    "ood_aupr_auroc": _by_score,
    _SHIFT: _shift,
    "table13-cifar10": _on_test,
    "table5": _detection("aupr_id", ABLATION),
    "lambda_fi_appendix": _detection("aupr_id", FISHER),
    "lambda_kl_appendix": _detection("aupr_id", KL),
    "gemfi_k_cifar": _detection("aupr_id", COMPONENTS),
    "fair_vos_appendix": _detection("aupr_id", OUTLIERS),
    "vos_replace_appendix": _detection("aupr_id", OUTLIERS),
    "rho_one_appendix": _scaler,
}
"""Table of the paper -> what of ours stands beside one of its numbers."""
