"""Tables: CSV with the standard library, parquet with pyarrow where it is installed.

Every column but the label holds finite numbers. Labels may be anything: their values, as text, are
the class names, sorted as numbers where all of them are, and as text otherwise. A number must be
written in one way: 1 and 1.0 would be two classes, and are refused.
"""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.data.readers import base
from gemfi.errors import InputError
from gemfi.extras import require_module

_SAFE_PYARROW: Final = (14, 0, 1)  # before it, a parquet file could make pyarrow unpickle


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of numbers and their labels.

    Attributes:
        features: (N, D) float64.
        feature_names: D names; the numbers of the columns, from 0, where there is no header.
        labels: (N,) int64, or None.
        class_names: C names in the order of the labels, or None.
    """

    features: npt.NDArray[np.float64]
    feature_names: tuple[str, ...]
    labels: npt.NDArray[np.int64] | None = None
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.features)


def read_csv(
    path: base.PathLike,
    *,
    label: str | int | None = None,
    class_names: Sequence[str] | None = None,
    delimiter: str = ",",
    header: bool = True,
) -> Table:
    """Read a CSV file (UTF-8) of numbers.

    Args:
        path: the file.
        label: column of the labels, by name or by index from 0 (-1 is the last); None if there are
            no labels.
        class_names: the classes in order, such as those of the training table, so that a table
            which lacks one keeps the same labels; None takes what is found.
        delimiter: between cells.
        header: whether the first row holds the names.
    """
    rows = _rows(path, delimiter)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{path} has no rows")
    names = first[1] if header else [str(index) for index in range(len(first[1]))]
    chosen = _label_column(names, label, path)
    if header:
        _require_names([name for index, name in enumerate(names) if index != chosen], path)
    texts: list[str] = []
    places: list[str] = []
    numbers = array("d")
    kept = [name for index, name in enumerate(names) if index != chosen]
    for line, row in rows if header else chain([first], rows):
        if len(row) != len(names):
            source = "header" if header else "first row"
            raise InputError(
                f"{path}, line {line}: {len(row)} cells, but the {source} has {len(names)}"
            )
        if chosen is not None:
            texts.append(row.pop(chosen))
            places.append(f"line {line}")
        try:
            numbers.extend(parse_numbers(row, kept))
        except InputError as error:
            raise InputError(f"{path}, line {line}, {error}") from error
    if not numbers:
        raise InputError(f"{path} has a header, but no rows")
    features = np.array(numbers, np.float64).reshape(-1, len(names) - (chosen is not None))
    return _table(features, names, chosen, texts, places, class_names, path)


def read_parquet(
    path: base.PathLike,
    *,
    label: str | int | None = None,
    class_names: Sequence[str] | None = None,
) -> Table:
    """Read a parquet file of numbers; arguments as in `read_csv`. Needs pyarrow 14.0.1 or later."""
    pyarrow, table = _load_parquet(path)
    if not table.num_rows or not table.num_columns:
        raise InputError(f"{path} has no rows")
    names = list(table.column_names)
    chosen = _label_column(names, label, path)
    kept = [index for index in range(len(names)) if index != chosen]
    numbers = np.empty((table.num_rows, len(kept)), np.float64)
    for place, index in enumerate(kept):
        numbers[:, place] = _parquet_column(pyarrow, table.column(index), names[index], path)
    texts: list[str] = []
    if chosen is not None:
        texts = ["" if v is None else str(v).strip() for v in table.column(chosen).to_pylist()]
    places = [f"row {row}" for row in range(len(texts))]
    return _table(numbers, names, chosen, texts, places, class_names, path)


def _rows(path: base.PathLike, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line, stripped cells) of each row that is not blank."""
    try:
        text = base.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: offset {error.start} is not UTF-8; save it as UTF-8") from error
    if len(delimiter) != 1:
        raise InputError(f"delimiter must be one character, got {delimiter!r}")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from error


def parquet_modules() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet, if they are safe."""
    pyarrow = require_module("pyarrow", "reading parquet")
    parquet = require_module("pyarrow.parquet", "reading parquet")
    version = tuple(int(part) for part in pyarrow.__version__.split(".")[:3] if part.isdigit())
    if version < _SAFE_PYARROW:
        raise InputError(
            f"pyarrow {pyarrow.__version__} can be made to unpickle: pip install -U pyarrow"
        )
    return pyarrow, parquet


def _load_parquet(path: base.PathLike) -> tuple[Any, Any]:
    """The module and the table that it has read."""
    pyarrow, parquet = parquet_modules()
    try:
        with parquet.ParquetFile(path) as file:
            cells = file.metadata.num_rows * file.metadata.num_columns
            table = file.read() if 8 * cells <= base.MAX_BYTES else None
        if table is not None:
            table.validate(full=True)  # text that is not UTF-8, indices out of range
            table.column_names  # noqa: B018 - decoded here
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise InputError(f"cannot read {path} as parquet: {error}") from error
    if table is None:
        raise InputError(f"{path} claims {cells:,} cells, more than such a file may have")
    return pyarrow, table


def _label_column(names: Sequence[str], label: str | int | None, path: base.PathLike) -> int | None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"{path}: more than one column is named {repeated[0]!r}")
    if label is None:
        return None
    if isinstance(label, str):
        if label not in names:
            raise InputError(f"{path} has no column {label!r}; it has: {', '.join(names)}")
        chosen = names.index(label)
    elif -len(names) <= label < len(names):
        chosen = label % len(names)
    else:
        raise InputError(f"{path} has {len(names)} columns, so there is no column {label}")
    if len(names) == 1:
        raise InputError(f"{path} has no column but the label {names[0]!r}")
    return chosen


def _require_names(names: Sequence[str], path: base.PathLike) -> None:
    """Refuse a first row of data in the place of names; 0, 1, 2, ... are names."""
    if not all(map(_is_finite, names)):
        return
    numbers = [float(name) for name in names]
    if any(b != a + 1 for a, b in pairwise(numbers)) or len(numbers) == 1:
        raise InputError(
            f"{path}: its first row ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''}) "
            "looks like data and not like names of columns; put a row of names above it"
        )


def parse_numbers(row: Sequence[str], names: Sequence[str]) -> list[float]:
    """Cells as finite numbers.

    Args:
        row: stripped cells.
        names: of their columns, for the message.
    """
    try:
        values = [float(cell) for cell in row]
        if all(map(math.isfinite, values)) and "_" not in "".join(row):
            return values
    except ValueError:
        pass  # the culprit is named below
    bad = next(index for index, cell in enumerate(row) if not _is_finite(cell))
    what = f"{row[bad][:40]!r} is not a finite number" if row[bad] else "the cell is empty"
    raise InputError(f"column {names[bad]!r}: {what}")


def _is_finite(cell: str) -> bool:
    try:
        return (
            math.isfinite(float(cell)) and "_" not in cell
        )  # Python reads 1_000, no one else does
    except ValueError:
        return False


def _parquet_column(
    pyarrow: Any, column: Any, name: str, path: base.PathLike
) -> npt.NDArray[np.float64]:
    kinds = pyarrow.types
    if not any(f(column.type) for f in (kinds.is_integer, kinds.is_floating, kinds.is_boolean)):
        raise InputError(f"{path}, column {name!r}: {column.type} is not numeric")
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise InputError(f"{path}, row {row}, column {name!r}: the cell is empty")
    values = np.asarray(column.to_numpy(), np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise InputError(
            f"{path}, row {bad[0]}, column {name!r}: {values[bad[0]]} is not a finite number"
        )
    return values


def _table(
    numbers: npt.NDArray[np.float64],
    names: Sequence[str],
    label: int | None,
    texts: Sequence[str],
    places: Sequence[str],
    class_names: Sequence[str] | None,
    path: base.PathLike,
) -> Table:
    kept = tuple(name for index, name in enumerate(names) if index != label)
    if label is None:
        return Table(numbers, kept)
    if class_names is None:
        _require_one_spelling(texts, places, path)
        class_names = sorted(set(texts), key=_order(texts))
    classes = tuple(class_names)
    if len(set(classes)) != len(classes):
        raise InputError(f"class_names must differ from each other, got {classes}")
    index_of = {name: index for index, name in enumerate(classes)}
    for place, text in zip(places, texts, strict=True):
        if not text:
            raise InputError(f"{path}, {place}, column {names[label]!r}: the label is empty")
        if text not in index_of:
            known = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
            raise InputError(f"{path}, {place}: label {text[:40]!r} is not a class ({known})")
    return Table(numbers, kept, np.array([index_of[text] for text in texts], np.int64), classes)


def _require_one_spelling(texts: Sequence[str], places: Sequence[str], path: base.PathLike) -> None:
    """Raise if one number is written in two ways, as 1 and 1.0, which would be two classes."""
    first = dict(zip(reversed(texts), reversed(places), strict=True))  # label -> where it comes
    spelled: dict[Decimal, str] = {}
    for text in dict.fromkeys(texts):
        if not _is_finite(text):
            continue
        try:
            number = Decimal(text)  # exact, where a float would join large numbers
        except InvalidOperation:
            continue
        other = spelled.setdefault(number, text)
        if other != text:
            raise InputError(
                f"{path}: the labels {other!r} ({first[other]}) and {text!r} ({first[text]}) are "
                "the same number; write them alike"
            )


def _order(texts: Sequence[str]) -> Any:
    """Sort key: 9 before 10 where all labels are numbers; ties and the rest as text."""
    if all(_is_finite(text) for text in texts):
        return lambda text: (float(text), text)
    return str
