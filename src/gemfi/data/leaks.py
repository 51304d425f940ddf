"""Columns that a model should not learn from.

A nameless column, a copy of the label and a name of each row are refused; a constant column is left
out; a column that only rises or falls, and one that tells the label by itself, are warned about.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.data.columns import Cells, Columns
from gemfi.data.sampling import generator
from gemfi.errors import InputError

Ints = npt.NDArray[np.int64]

_NAMELESS: Final = re.compile(r"Unnamed: \d+|__index_level_\d+__")  # by pandas
_FEWEST: Final = 20  # rows from which on a pattern is no accident
_ROWS: Final = 5_000  # that a rule of one column is tried on
_ACCURACY: Final = 0.98  # of a rule that tells the label
_SHARE: Final = 0.1  # of the majority's errors that it may still make
_DISTINCT: Final = 0.5  # more values than this share of rows are names of rows


@dataclass(frozen=True)
class ColumnWarning:
    """Something about a column that its owner should look at.

    Attributes:
        column: its name.
        share: of rows for which it holds.
        limit: what is asked of the share, in words.
        meaning: what was seen, in one sentence.
        remedy: what to do.
    """

    column: str
    share: float
    limit: str
    meaning: str
    remedy: str

    def __str__(self) -> str:
        return f"column {self.column!r} {self.meaning}; {self.remedy}"


def checked_columns(
    table: Mapping[str, Cells],
    labels: Ints,
    rows: Ints,
    *,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> tuple[dict[str, Cells], tuple[ColumnWarning, ...]]:
    """The columns to learn from, and what to warn about.

    Args:
        table: name -> cells of all rows, in the order of the file.
        labels: (N,) of all rows.
        rows: those to learn from, which alone are compared with their labels.
        drop: columns to leave out.
        keep: columns to learn from, whatever they look like.
    """
    for name in (*drop, *keep):
        if name not in table:
            known = ", ".join(map(repr, table))
            raise InputError(
                f"--drop and --keep: there is no column {name!r} to learn from; there are {known}"
            )
        if name in drop and name in keep:
            raise InputError(f"column {name!r} cannot be dropped and kept: choose one")
    columns = {name: cells for name, cells in table.items() if name not in drop}
    warnings: list[ColumnWarning] = []
    for name in [name for name in columns if name not in keep]:
        cells = columns[name]
        if _codes(cells[rows]).max() == 0:
            meaning = "has one value in all training rows, and was left out"
            remedy = f"{_option('drop', name)} says so, and {_option('keep', name)} takes it in"
            warnings.append(ColumnWarning(name, 1.0, "below 100 %", meaning, remedy))
            del columns[name]
            continue
        _refuse(name, cells[rows], labels[rows])
        warnings += _doubts(name, cells, labels, rows)
    if not columns:
        raise InputError("no column is left to learn from: each is constant, or dropped")
    return columns, tuple(warnings)


def _refuse(name: str, cells: Cells, labels: Ints) -> None:
    """Refuse a column from which a model would learn what new data cannot tell it."""
    codes = _codes(cells)
    values = int(codes.max()) + 1
    choose = f"leave it out with {_option('drop', name)}, or {_option('keep', name)} if it is meant"
    if _NAMELESS.fullmatch(name):
        raise InputError(
            f"a column has no name ({name!r}): it looks like the row numbers that pandas writes, "
            f"from which a model learns the order of the file; {choose}, or save the table with "
            "to_csv(index=False)"
        )
    if values == len(np.unique(labels)) == len(np.unique(np.stack([codes, labels]), axis=1).T):
        raise InputError(
            f"column {name!r} is a copy of the label: each of its values goes with one class, and "
            f"each class with one value; {choose}"
        )
    if cells.dtype == object and len(cells) >= _FEWEST and values > _DISTINCT * len(cells):
        raise InputError(
            f"column {name!r} has {values:,} values in {len(cells):,} rows: these are names of "
            f"rows and not categories; {choose}"
        )


def _doubts(name: str, cells: Cells, labels: Ints, rows: Ints) -> list[ColumnWarning]:
    remedy = f"if new rows will not have it, leave it out with {_option('drop', name)}"
    warnings = []
    if len(cells) >= _FEWEST and cells.dtype != object:
        steps = np.diff(cells)
        way = "rises" if (steps > 0).all() else "falls" if (steps < 0).all() else None
        if way is not None:
            meaning = f"{way} from row to row, as row numbers and times do"
            warnings.append(ColumnWarning(name, 1.0, "below 100 %", meaning, remedy))
    accuracy = _lone_accuracy(name, cells[rows], labels[rows])
    base = np.bincount(labels[rows]).max() / len(rows)
    if accuracy >= _ACCURACY and 1 - accuracy <= _SHARE * (1 - base):
        meaning = f"tells the label by itself, in {100 * accuracy:.1f} % of rows"
        limit = f"below {100 * _ACCURACY:.0f} %"
        warnings.append(ColumnWarning(name, accuracy, limit, meaning, remedy))
    return warnings


def _lone_accuracy(name: str, cells: Cells, labels: Ints) -> float:
    """Accuracy of a decision tree on one column, each half of the rows judged by the other's."""
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415 - seconds to import

    if len(cells) < 2 * _FEWEST:
        return 0.0
    order = generator(0).permutation(len(cells))[:_ROWS]
    x, _ = Columns.fit({name: cells[order]}).encode({name: cells[order]})
    y, half = labels[order], len(order) // 2
    parts = (slice(half), slice(half, None))
    right = 0
    for seen, unseen in (parts, parts[::-1]):
        tree = DecisionTreeClassifier(random_state=0).fit(x[seen], y[seen])
        right += int((tree.predict(x[unseen]) == y[unseen]).sum())
    return right / len(order)


def _codes(cells: Cells) -> Ints:
    """(N,) a number for each value; what is missing is a value too."""
    values: Any = (
        ["" if cell is None else cell for cell in cells] if cells.dtype == object else cells
    )
    codes: Ints = np.unique(np.asarray(values), return_inverse=True)[1]
    return codes


def _option(option: str, name: str) -> str:
    return f"--{option} {shlex.quote(name)}"
