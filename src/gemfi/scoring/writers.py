"""Results as CSV, JSON lines or parquet, written as they come, and whole or not at all."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gemfi._files import replacing, to_json
from gemfi.data.readers.tables import parquet_modules
from gemfi.errors import InputError
from gemfi.scoring.rows import Column

Write = Callable[[Sequence[Sequence[Any]]], None]


@contextmanager
def writer(path: Path, columns: Sequence[Column]) -> Iterator[Write]:
    """A function that writes rows; the file appears under its name when all have been written.

    Args:
        path: its ending says the format: `.csv`, `.jsonl` or `.parquet`.
        columns: names and types.
    """
    check_output(path)
    with (
        replacing(path) as temporary,
        _FORMATS[path.suffix.lower()](temporary, columns) as write,
    ):
        yield write


def check_output(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse, before the work, a path that could not be written, or that would replace an input."""
    if path.suffix.lower() not in _FORMATS:
        raise InputError(f"--out {path}: it must end in {', '.join(_FORMATS)}")
    if path.is_dir():
        raise InputError(f"--out {path} is a folder; give a file")
    if not path.resolve().parent.is_dir():
        raise InputError(f"--out {path}: its folder does not exist")
    if path.exists() and any(path.samefile(each) for each in inputs if each.exists()):
        raise InputError(f"--out {path} is one of the inputs, which it would replace")
    if path.suffix.lower() == ".parquet":
        parquet_modules()


@contextmanager
def _csv(path: Path, columns: Sequence[Column]) -> Iterator[Write]:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([name for name, _ in columns])
        yield rows.writerows


@contextmanager
def _jsonl(path: Path, columns: Sequence[Column]) -> Iterator[Write]:
    names = [name for name, _ in columns]
    with path.open("w", encoding="utf-8") as file:

        def write(rows: Sequence[Sequence[Any]]) -> None:
            for row in rows:
                pairs = zip(names, row, strict=True)
                file.write(
                    to_json({name: value for name, value in pairs if value not in (None, "")})
                )
                file.write("\n")

        yield write


@contextmanager
def _parquet(path: Path, columns: Sequence[Column]) -> Iterator[Write]:
    pyarrow, parquet = parquet_modules()
    kinds = {str: pyarrow.string(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns])
    with parquet.ParquetWriter(path, schema) as file:

        def write(rows: Sequence[Sequence[Any]]) -> None:
            arrays = [
                pyarrow.array([None if cell == "" else cell for cell in column], kinds[kind])
                for column, (_, kind) in zip(zip(*rows, strict=True), columns, strict=True)
            ]
            file.write_batch(pyarrow.record_batch(arrays, schema=schema))

        yield write


_FORMATS: Final[Mapping[str, Any]] = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
