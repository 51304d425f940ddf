"""Tables: CSV with the standard library, parquet with pyarrow.

A column holds numbers, or text: categories. Cells may be missing: empty, or one of `MISSING`.
Labels may be anything: their values, as text, are the class names, sorted as numbers where all of
them are, and as text otherwise. A number must be written in one way: 1 and 1.0 would be two
classes, and are refused.

CSV is not read with pandas: it fills short rows up in silence, and does not tell the line of a row.
"""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi._files import require_module
from gemfi.data.columns import Cells, Columns, to_number, to_numbers, to_text
from gemfi.data.readers import base
from gemfi.data.readers.remote import File, RemoteFile
from gemfi.errors import InputError

NUMBERS: Final = 1 << 20
"""Numbers of a piece of a table, at most; a cell of text takes some 60 bytes."""

_SAFE_PYARROW: Final = (14, 0, 1)  # before it, a parquet file could make pyarrow unpickle
_FEW: Final = 0.1  # a smaller share of text among numbers is a mistake, and no category


@dataclass(frozen=True, eq=False)
class Table:
    """Columns and labels of rows.

    A column that the header does not name is `Unnamed: 0`, as pandas has it.
    """

    columns: Mapping[str, Cells]
    labels: npt.NDArray[np.int64] | None = None
    class_names: tuple[str, ...] | None = None  # in the order of the labels
    label_name: str | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(self.columns)

    @property
    def features(self) -> npt.NDArray[np.float64]:
        """(N, D) of a table of numbers without missing cells."""
        for name, cells in self.columns.items():
            if cells.dtype == object or np.isnan(cells).any():
                what = "text" if cells.dtype == object else "missing cells"
                raise InputError(
                    f"column {name!r} has {what}: Columns.fit(table.columns) makes numbers of it"
                )
        return np.stack(list(self.columns.values()), axis=1)


def read_csv(
    path: base.PathLike,
    *,
    label: str | int | None = None,
    class_names: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Table:
    """Read a CSV file (UTF-8) whose first row holds the names of the columns.

    Args:
        path: the file.
        label: column of the labels, by name or by index (-1 is the last); None for no labels.
        class_names: the classes in order, so that a table which lacks one keeps the same labels as
            the training table; None takes what is found.
        delimiter: between cells.
    """
    if len(delimiter) != 1:
        raise InputError(f"delimiter must be one character, got {delimiter!r}")
    text = base.read_text(path, "utf-8-sig")
    rows = _rows(io.StringIO(text, newline=""), path, delimiter)
    _, header = next(rows, (0, None))
    if header is None:
        raise InputError(f"{path} has no rows")
    names = _column_names(header)
    label_at = _label_column(names, label, path)
    inputs = [index for index in range(len(names)) if index != label_at]
    _require_names([header[index] for index in inputs], path)
    labels: list[str] = []
    lines: list[int] = []
    numbers = array("d")
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(
                f"{path}, line {line}: {len(row)} cells, but the header has {len(names)}"
            )
        lines.append(line)
        if label_at is not None:
            labels.append(row[label_at])
        numbers.extend([to_number(row[index]) for index in inputs])
    if not lines:
        raise InputError(f"{path} has a header, but no rows")
    values = np.array(numbers, np.float64).reshape(len(lines), len(inputs))
    columns: dict[str, Cells] = {names[index]: values[:, i] for i, index in enumerate(inputs)}
    texts = [inputs[place] for place in np.flatnonzero(np.isinf(values).any(axis=0))]
    if texts:  # only these are kept as text, which takes ten times the memory
        again = islice(_rows(io.StringIO(text, newline=""), path, delimiter), 1, None)
        cells = [[row[index] for index in texts] for _, row in again]
        for index, column in zip(texts, zip(*cells, strict=True), strict=True):
            columns[names[index]] = _words(column, columns[names[index]], names[index], lines, path)
    places = [f"line {line}" for line in lines]
    return _table(columns, names, label_at, labels, places, class_names, path)


def read_parquet(
    path: base.PathLike,
    *,
    label: str | int | None = None,
    class_names: Sequence[str] | None = None,
) -> Table:
    """Read a parquet file; arguments as in `read_csv`. Needs pyarrow 14.0.1 or later."""
    with _opened_parquet(path) as (pyarrow, file):
        cells = file.metadata.num_rows * file.metadata.num_columns
        if 8 * cells > base.MAX_BYTES:
            raise InputError(f"{path} claims {cells:,} cells, more than such a file may have")
        table = file.read()
        table.validate(full=True)  # text that is not UTF-8, indices out of range
        names = _column_names(table.column_names)
    if not table.num_rows or not table.num_columns:
        raise InputError(f"{path} has no rows")
    label_at = _label_column(names, label, path)
    columns = {
        name: _parquet_cells(pyarrow, table.column(index), name, path)
        for index, name in enumerate(names)
        if index != label_at
    }
    for name, column in columns.items():
        errors = {} if column.dtype == object else to_numbers(column)[1]
        if errors:
            row, why = next(iter(errors.items()))
            raise InputError(f"{path}, row {row}, column {name!r}: {why}")
    values = [] if label_at is None else table.column(label_at).to_pylist()
    labels = ["" if value is None else str(value).strip() for value in values]
    places = [f"row {row}" for row in range(len(labels))]
    return _table(columns, names, label_at, labels, places, class_names, path)


def stream_csv(path: Path, columns: Columns | None, count: int) -> Iterator[base.Piece]:
    """The rows of a table (UTF-8, with a row of names) in pieces, as the numbers of a model.

    `columns` are those that the model takes; None for a table of `count` numbers, in their order.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = _rows(file, path)
            header = _column_names(next(rows, (0, []))[1])
            columns = _chosen_columns(header, columns, count, path)
            size = max(1, min(base.ROWS, NUMBERS // len(header)))
            while lines := list(islice(rows, size)):
                yield _csv_piece(path, lines, header, columns)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from error


def stream_parquet(
    file: File,
    columns: Columns | None,
    count: int,
    span: base.Span | None = None,
    key: str | None = None,
) -> Iterator[base.Piece]:
    """The rows of a parquet file; other arguments as in `stream_csv`.

    Args:
        file: to read.
        columns: that the model takes.
        count: of numbers of an input.
        span: the row groups to read; None for all.
        key: a column whose cells name the rows; None for the file and the position in it.
    """
    with _opened_parquet(file) as (pyarrow, opened):
        names = [name for name in opened.schema_arrow.names if columns or name != key]
        if key is not None and key not in opened.schema_arrow.names:
            raise InputError(f"{file} has no column {key!r}, which shall name its rows")
        columns = _chosen_columns(names, columns, count, file)
        groups = [opened.metadata.row_group(at) for at in range(opened.num_row_groups)]
        first, last = (0, len(groups)) if span is None else span
        start = sum(group.num_rows for group in groups[:first])
        wanted = dict.fromkeys((*columns.names, *([] if key is None else [key])))
        for batch in opened.iter_batches(
            base.ROWS, row_groups=range(first, last), columns=list(wanted)
        ):
            cells = {
                name: _parquet_cells(pyarrow, batch.column(name), name, file)
                for name in columns.names
            }
            x, errors = columns.encode(cells)
            rows = [f"{file}[{start + row}]" for row in range(len(x))]
            if key is not None:
                rows = [str(cell) for cell in batch.column(key).to_pylist()]
            yield base.Piece(rows, x, errors)
            start += len(x)


def split_row_groups(file: File, rows: int) -> list[base.Span]:
    """The row groups of a parquet file, in order, as many together as make so many rows."""
    with _opened_parquet(file) as (_, opened):
        spans, first, count = [], 0, 0
        for group in range(opened.num_row_groups):
            count += opened.metadata.row_group(group).num_rows
            if count >= rows or group + 1 == opened.num_row_groups:
                spans.append((first, group + 1))
                first, count = group + 1, 0
        return spans


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


@contextmanager
def _opened_parquet(path: base.PathLike | RemoteFile) -> Iterator[tuple[Any, Any]]:
    """The module pyarrow, and an open file; what pyarrow raises is an `InputError`."""
    pyarrow, parquet = parquet_modules()
    try:
        with parquet.ParquetFile(path.open() if isinstance(path, RemoteFile) else path) as file:
            yield pyarrow, file
    except InputError:
        raise
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise InputError(f"cannot read {path} as parquet: {error}") from error


def _rows(
    file: Iterable[str], path: base.PathLike, delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """(line, stripped cells) of each row that is not blank."""
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from error


def _column_names(header: Sequence[str]) -> list[str]:
    return [name or f"Unnamed: {index}" for index, name in enumerate(header)]


def _label_column(names: Sequence[str], label: str | int | None, path: base.PathLike) -> int | None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"{path}: more than one column is named {repeated[0]!r}")
    if label is None:
        return None
    if isinstance(label, str):
        if label not in names:
            raise InputError(f"{path} has no column {label!r}; it has: {', '.join(names)}")
        label = names.index(label)
    if not -len(names) <= label < len(names):
        raise InputError(f"{path} has {len(names)} columns, so there is no column {label}")
    if len(names) == 1:
        raise InputError(f"{path} has no column but the label {names[0]!r}")
    return label % len(names)


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


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_finite(cell: str) -> bool:
    """Whether a cell is a finite number; Python reads 1_000, no one else does."""
    return _is_number(cell) and math.isfinite(float(cell)) and "_" not in cell


def _words(
    cells: Sequence[str], values: Cells, name: str, lines: Sequence[int], path: base.PathLike
) -> Cells:
    """A column of text; one of numbers with a few words, or with infinite ones, is refused."""
    words = np.flatnonzero(np.isinf(values)).tolist()
    rare = len(words) < _FEW * np.count_nonzero(~np.isnan(values))
    for row in words:
        if rare or _is_number(cells[row]):
            raise InputError(
                f"{path}, line {lines[row]}, column {name!r}: {cells[row][:40]!r} is not a finite "
                "number, as the others of this column are; mend it, or leave the cell empty"
            )
    return np.array([to_text(cell) for cell in cells], dtype=object)


def _parquet_cells(pyarrow: Any, column: Any, name: str, path: base.PathLike | RemoteFile) -> Cells:
    """A column of parquet as cells of a `Table`."""
    kinds, kind = pyarrow.types, column.type
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind):
        return np.array([math.nan if v is None else v for v in column.to_pylist()], np.float64)
    if not (kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind)):
        raise InputError(f"{path}, column {name!r}: {column.type} is neither numbers nor text")
    return np.array([to_text(cell) for cell in column.to_pylist()], dtype=object)


def _table(
    columns: Mapping[str, Cells],
    names: Sequence[str],
    label: int | None,
    texts: Sequence[str],
    places: Sequence[str],
    class_names: Sequence[str] | None,
    path: base.PathLike,
) -> Table:
    """A table with its labels; `places` are the rows in messages, such as `line 7`."""
    if label is None:
        return Table(columns)
    if class_names is None:
        _require_one_spelling(texts, places, path)
        numeric = all(map(_is_finite, texts))
        class_names = sorted(set(texts), key=lambda text: (float(text) if numeric else 0, text))
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
    labels = np.array([index_of[text] for text in texts], np.int64)
    return Table(columns, labels, classes, names[label])


def _require_one_spelling(texts: Sequence[str], places: Sequence[str], path: base.PathLike) -> None:
    """Raise if one number is written in two ways, as 1 and 1.0, which would be two classes."""
    first = dict(zip(reversed(texts), reversed(places), strict=True))  # label -> where it comes
    spelled: dict[Decimal, str] = {}
    for text in filter(_is_finite, dict.fromkeys(texts)):
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


def _chosen_columns(header: list[str], columns: Columns | None, count: int, path: File) -> Columns:
    """The columns that are inputs."""
    if not header:
        raise InputError(f"{path} has no rows")
    if columns is None:
        # Of a model that knows no names: which columns were meant must not be guessed.
        if len(header) != count:
            raise InputError(
                f"{path} has {len(header)} columns, but an input has {count} numbers, and the "
                "model knows no names of columns: give these columns alone, in their order"
            )
        if all(map(_is_number, header)):
            raise InputError(
                f"{path} begins with numbers where the names of the columns belong: put a line of "
                "names before them"
            )
        return Columns.of_numbers(header)
    for name in columns.names:
        if name not in header:
            raise InputError(
                f"{path} has no column {name!r}, on which the model was trained; it has: "
                f"{', '.join(header[:12])}{', …' if len(header) > 12 else ''}"
            )
        if header.count(name) > 1:
            raise InputError(f"{path} has two columns {name!r}; which one is meant?")
    return columns


def _csv_piece(
    path: Path, lines: list[tuple[int, list[str]]], header: Sequence[str], columns: Columns
) -> base.Piece:
    width = len(header)
    errors = {
        row: f"line {line}: {len(cells)} cells, but the header has {width}"
        for row, (line, cells) in enumerate(lines)
        if len(cells) != width
    }
    good = [row for row in range(len(lines)) if row not in errors]
    x = np.zeros((len(lines), len(columns.outputs)))
    places = {name: header.index(name) for name in columns.names}
    cells = {name: [lines[row][1][at] for row in good] for name, at in places.items()}
    x[good], wrong = columns.encode(cells)
    errors |= {good[row]: f"line {lines[good[row]][0]}, {why}" for row, why in wrong.items()}
    return base.Piece([f"{path}:{line}" for line, _ in lines], x, errors)
