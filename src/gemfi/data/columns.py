"""Columns of a table as the numbers that a model takes.

`Columns` is fitted on training rows and goes with the model: `gemfi train`, `gemfi predict`, the
server and the estimator all use the same one. It is plain values, so that a bundle can hold it.

- A number stays as it is. A missing one becomes the median, and where training data lack some, a
  column of 0 and 1 says which were missing.
- A category becomes a column of 0 and 1 for each value, one for all other values, and one for
  missing ones where training data have some.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from gemfi.errors import GemfiWarning, InputError, user_level

Cells = npt.NDArray[Any]
"""A column: float64 with NaN for what is missing, or objects: text, and None for what is."""
Floats = npt.NDArray[np.float64]

MISSING: Final = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""What is written for a missing value, in small letters."""
BOOLEANS: Final = {"false": 0.0, "true": 1.0}
"""Words that are numbers."""
MOST_COLUMNS: Final = 100_000
MOST_CATEGORIES: Final = 100
"""Values of a column that have a number of their own: the most frequent ones."""
LEAST_ROWS: Final = 2
"""Training rows that a value needs for that; rarer ones teach what other values are like."""
_LARGEST: Final = float(np.finfo(np.float32).max)
LONGEST: Final = 200
"""Characters of a category, and of the name of a column, at most."""


@dataclass(frozen=True)
class Column:
    """One column, and the numbers that it becomes."""

    name: str
    kind: Literal["number", "category"] = "number"
    missing: bool = False  # whether some cell was empty when the model was trained
    fill: float = 0.0  # of numbers, what stands for a missing one
    categories: tuple[str, ...] = ()  # the values that have a number of their own

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= LONGEST:
            raise InputError(
                f"the name of a column has 1 to {LONGEST} characters, got {len(self.name)}"
            )
        values = set(self.categories)
        problems = {
            "fill must be a finite number": not abs(self.fill) <= _LARGEST,  # NaN too
            "numbers have no categories": self.kind == "number" and self.categories,
            f"categories must differ, and be {MOST_CATEGORIES} at most": (
                len(values) < len(self.categories) or len(values) > MOST_CATEGORIES
            ),
            f"a category has 1 to {LONGEST} characters": (
                not all(1 <= len(value) <= LONGEST for value in values)
            ),
        }
        for problem, is_there in problems.items():
            if is_there:
                raise InputError(f"column {self.name!r}: {problem}")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the numbers that the column becomes."""
        if self.kind == "number":
            return (self.name, *([f"{self.name} is missing"] if self.missing else []))
        values = (*self.categories, "(other)", *(["(missing)"] if self.missing else []))
        return tuple(f"{self.name}={value}" for value in values)

    def encode(self, cells: Sequence[Any] | Cells) -> tuple[Floats, dict[int, str]]:
        """The numbers (N, width) of cells, and row -> what is wrong with its cell."""
        if self.kind == "category":
            place = {value: index for index, value in enumerate(self.categories)}
            other = len(self.categories)
            lacking = other + self.missing
            rows = [lacking if text is None else place.get(text, other) for text in to_texts(cells)]
            return np.eye(len(self.outputs))[rows], {}
        values, errors = to_numbers(cells)
        empty = np.isnan(values)
        if not self.missing:
            why = "the cell is empty, and no row of the training data had an empty one"
            errors |= dict.fromkeys(np.flatnonzero(empty).tolist(), why)
        values[empty] = self.fill
        return np.stack([values, empty], axis=1) if self.missing else values[:, None], errors

    def words(self) -> str:
        """What a cell is, for people."""
        kinds = ["a number"] if self.kind == "number" else [*self.categories, "another value"]
        kinds += ["missing"] if self.missing else []
        return " or ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)


@dataclass(frozen=True)
class Columns:
    """The columns that a model takes, in order: at least one, and their names differ."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.columns) <= MOST_COLUMNS:
            raise InputError(f"a table has 1 to {MOST_COLUMNS:,} columns, got {len(self.columns)}")
        name, count = Counter(self.names).most_common(1)[0]
        if count > 1:
            raise InputError(f"more than one column is named {name!r}")

    @classmethod
    def of_numbers(cls, names: Iterable[str]) -> Columns:
        """Columns of numbers without missing values, which stay as they are."""
        return cls(tuple(Column(name) for name in names))

    @classmethod
    def fit(cls, table: Mapping[str, Cells], rows: Any = slice(None)) -> Columns:
        """Learn medians and categories from `rows` of a table, name -> cells.

        Where a cell of any row is missing, one may be missing later.
        """
        return cls(tuple(_fitted(name, cells, cells[rows]) for name, cells in table.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the numbers that the model takes."""
        return tuple(name for column in self.columns for name in column.outputs)

    @property
    def is_plain(self) -> bool:
        """Whether the numbers are the cells themselves."""
        return all(column.kind == "number" and not column.missing for column in self.columns)

    @cached_property
    def indicators(self) -> npt.NDArray[np.bool_]:
        """(D,) which of the numbers are 0 or 1; these are not standardised.

        A rare category would otherwise be tens of standard deviations from its mean.
        """
        return np.array(
            [
                column.kind == "category" or index > 0
                for column in self.columns
                for index in range(len(column.outputs))
            ]
        )

    def unscaled(self, mean: Any, std: Any) -> tuple[Floats, Floats]:
        """Means and deviations (D,) of the numbers, with 0 and 1 for indicators."""
        return np.where(self.indicators, 0.0, mean), np.where(self.indicators, 1.0, std)

    def encode(self, table: Mapping[str, Sequence[Any] | Cells]) -> tuple[Floats, dict[int, str]]:
        """The numbers (N, D) of rows, and row -> what is wrong with it; such a row is zero."""
        blocks, errors = [], dict[int, str]()
        for column in self.columns:
            block, wrong = column.encode(table[column.name])
            blocks.append(block)
            errors = {row: f"column {column.name!r}: {why}" for row, why in wrong.items()} | errors
        x = np.concatenate(blocks, axis=1)
        x[list(errors)] = 0
        return x, errors

    def filled(self, table: Mapping[str, Cells]) -> tuple[dict[str, Cells], list[str]]:
        """The table with medians for numbers that no training row lacked, and where there were."""
        filled, names = dict(table), []
        for column in self.columns:
            if column.kind == "number" and not column.missing and column.name in table:
                values, errors = to_numbers(table[column.name])
                lacking = np.isnan(values)
                if lacking.any() and not errors:
                    filled[column.name] = np.where(lacking, column.fill, values)
                    names.append(column.name)
        return filled, names

    def encode_all(self, table: Mapping[str, Cells], where: Callable[[int], str]) -> Floats:
        """The numbers (N, D) of rows that must all be right; `where` names a row in messages."""
        lacking = [name for name in self.names if name not in table]
        if lacking:
            raise InputError(f"there is no column {lacking[0]!r}, which the model was trained on")
        x, errors = self.encode(table)
        if errors:
            row = min(errors)
            raise InputError(f"{where(row)}, {errors[row]}")
        return x


def warn_of_missing(names: Sequence[Any]) -> None:
    """Warn of columns, by name or number, in which `filled` has put medians; there may be none."""
    if names:
        warnings.warn(
            f"column {names[0]!r} has missing values, and the training data had none there: they "
            "are filled with its median; fit on data with missing values to learn what they mean",
            GemfiWarning,
            stacklevel=user_level(),
        )


def _fitted(name: str, cells: Cells, training: Cells) -> Column:
    if cells.dtype != object:
        values = training[~np.isnan(training)]
        fill = float(np.median(values)) if len(values) else 0.0
        return Column(name, missing=bool(np.isnan(cells).any()), fill=fill)
    counts = Counter(text for text in to_texts(training) if text is not None)
    frequent = [
        text
        for text, count in counts.most_common(MOST_CATEGORIES)
        if count >= LEAST_ROWS and len(text) <= LONGEST
    ]
    return Column(name, "category", None in to_texts(cells), categories=tuple(sorted(frequent)))


def to_texts(cells: Iterable[Any]) -> list[str | None]:
    """Cells as the names of categories, None for what is missing."""
    return [to_text(cell) for cell in cells]


def to_text(cell: Any) -> str | None:
    """A cell as the name of a category; None for a missing one."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    text = str(cell).strip()
    return None if text.casefold() in MISSING else text


def to_numbers(cells: Sequence[Any] | Cells) -> tuple[Floats, dict[int, str]]:
    """Cells as numbers, NaN for what is missing, and row -> why its cell is not a number."""
    if isinstance(cells, np.ndarray) and cells.dtype != object:
        values = cells.astype(np.float64)
    else:
        values = np.array([to_number(cell) for cell in cells], np.float64)
    bad = np.flatnonzero(np.isinf(values)).tolist()
    return values, {row: f"{str(cells[row])[:40]!r} is not a finite number" for row in bad}


def to_number(cell: Any) -> float:
    """A cell as a number; NaN for a missing one, infinity for what is not a finite number."""
    try:
        value = math.nan if cell is None else float(cell)
    except (ValueError, TypeError, OverflowError):
        word = str(cell).strip().casefold()
        return math.nan if word in MISSING else BOOLEANS.get(word, math.inf)
    # Python reads 1_000, no one else does
    return math.inf if isinstance(cell, str) and "_" in cell else value


def frame_cells(frame: Any) -> dict[str, Cells]:
    """The columns of a pandas data frame, by name."""
    columns: dict[str, Cells] = {}
    for position, name in enumerate(map(str, frame.columns)):
        if name in columns:
            raise InputError(f"X has more than one column {name!r}; rename one")
        columns[name] = _series_cells(frame.iloc[:, position], name)
    return columns


def _series_cells(series: Any, name: str) -> Cells:
    kind = series.dtype.kind
    if kind in "iufb":
        floats: Floats = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return floats
    if kind not in "OUT":
        raise InputError(
            f"column {name!r} is of {series.dtype}, and a model takes numbers and categories: make "
            "it numbers first, or leave it out"
        )
    values = series.astype(object).where(series.notna(), None).tolist()
    present = [value for value in values if value is not None]
    is_text = str(series.dtype) == "category" or any(isinstance(value, str) for value in present)
    if present and not is_text:
        numbers, errors = to_numbers(values)
        if not errors:
            return numbers
    return np.array(to_texts(values), dtype=object)
