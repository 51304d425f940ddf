"""Files read a piece at a time, so that any number of rows takes a bounded memory.

What cannot be read of one row or one image is kept beside the rest as an error; a file that cannot
be read at all raises one.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gemfi.data.columns import Columns
from gemfi.data.readers import arrays, folder, table
from gemfi.errors import InputError

ROWS = 4096
"""Rows of a piece of a table or an array, at most."""

NUMBERS = 1 << 20
"""Numbers of a piece of a table, at most; a cell of text takes some 60 bytes."""

IMAGES = 256
"""Images of a piece."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Some inputs in a row.

    Attributes:
        names: of each input: a file, with its line or position where it holds several.
        x: (n, ...) the inputs; what could not be read is zero.
        errors: position in the piece -> why the input could not be read.
    """

    names: list[str]
    x: npt.NDArray[Any]
    errors: dict[int, str] = field(default_factory=dict)


def stream_images(
    files: Sequence[Path], *, size: tuple[int, int], mode: folder.Mode
) -> Iterator[Piece]:
    """Images, cropped in their middle and resized, as uint8 (n, C, H, W).

    Args:
        files: in this order.
        size: (H, W).
        mode: `RGB` or `L`.
    """
    channels = 3 if mode == "RGB" else 1
    for start in range(0, len(files), IMAGES):
        chosen = files[start : start + IMAGES]
        x, errors = np.zeros((len(chosen), channels, *size), np.uint8), {}
        for row, file in enumerate(chosen):
            try:
                x[row] = folder.read_image(file, size=size, mode=mode, crop=True)
            except InputError as error:
                errors[row] = str(error)
        yield Piece([str(file) for file in chosen], x, errors)


def stream_array(path: Path, rows: int = ROWS) -> Iterator[Piece]:
    """The rows of an `.npy` file, or of `x` or `images` in an `.npz` archive.

    Args:
        path: the file.
        rows: of a piece.
    """
    start = 0
    for x in arrays.stream_rows(path, rows):
        yield Piece([f"{path}[{start + row}]" for row in range(len(x))], x)
        start += len(x)


def stream_csv(path: Path, columns: Columns | None, count: int) -> Iterator[Piece]:
    """The rows of a table as the numbers that a model takes.

    Args:
        path: UTF-8, with a row of names.
        columns: that the model takes; None for a table of `count` numbers, in their order.
        count: how many numbers an input has.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = table.header_names([cell.strip() for cell in next(reader, [])])
            chosen = _chosen(header, columns, count, path)
            rows = ((reader.line_num, row) for row in reader if row)
            size = max(1, min(ROWS, NUMBERS // len(header)))
            while lines := list(islice(rows, size)):
                yield _table_piece(path, lines, header, chosen)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from error


def stream_parquet(path: Path, columns: Columns | None, count: int) -> Iterator[Piece]:
    """The rows of a parquet file; arguments as in `stream_csv`."""
    pyarrow, parquet = table.parquet_modules()
    start = 0
    try:
        with parquet.ParquetFile(path) as file:
            header = list(file.schema_arrow.names)
            chosen = _chosen(header, columns, count, path)
            for batch in file.iter_batches(ROWS, columns=list(chosen.names)):
                cells = {
                    name: table.parquet_cells(pyarrow, batch.column(name), name, path)
                    for name in chosen.names
                }
                x, errors = chosen.encode(cells)
                yield Piece([f"{path}[{start + row}]" for row in range(len(x))], x, errors)
                start += len(x)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"cannot read {path} as parquet: {error}") from error


def _table_piece(
    path: Path, lines: list[tuple[int, list[str]]], header: Sequence[str], columns: Columns
) -> Piece:
    names, width = [f"{path}:{line}" for line, _ in lines], len(header)
    short = {
        row: f"line {line}: {len(cells)} cells, but the header has {width}"
        for row, (line, cells) in enumerate(lines)
        if len(cells) != width
    }
    good = [row for row in range(len(lines)) if row not in short]
    x = np.zeros((len(lines), len(columns.outputs)))
    places = {name: header.index(name) for name in columns.names}
    cells = {name: [lines[row][1][at] for row in good] for name, at in places.items()}
    x[good], wrong = columns.encode(cells)
    errors = {good[row]: f"line {lines[good[row]][0]}, {why}" for row, why in wrong.items()}
    return Piece(names, x, short | errors)


def _chosen(header: list[str], columns: Columns | None, count: int, path: Path) -> Columns:
    """The columns that are inputs."""
    if not header:
        raise InputError(f"{path} has no rows")
    if columns is None:
        return _all_columns(header, count, path)
    lacking = [name for name in columns.names if name not in header]
    if lacking:
        raise InputError(
            f"{path} has no column {lacking[0]!r}, on which the model was trained; it has: "
            f"{', '.join(header[:12])}{', …' if len(header) > 12 else ''}"
        )
    twice = [name for name in columns.names if header.count(name) > 1]
    if twice:
        raise InputError(f"{path} has two columns {twice[0]!r}; which one is meant?")
    return columns


def _all_columns(header: list[str], count: int, path: Path) -> Columns:
    """Of a model that knows no names: which columns were meant must not be guessed."""
    if len(header) != count:
        raise InputError(
            f"{path} has {len(header)} columns, but an input has {count} numbers, and the model "
            "knows no names of columns: give these columns alone, in their order"
        )
    if all(map(_is_number, header)):
        raise InputError(
            f"{path} begins with numbers where the names of the columns belong: put a line of "
            "names before them"
        )
    return Columns.of_numbers(header)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
