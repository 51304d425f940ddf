"""Rows of a table in JSON, as objects by the names of the columns."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy.typing as npt

from gemfi.data.columns import Column, Columns
from gemfi.serve.arrays import check_count
from gemfi.serve.formats import InputFormat
from gemfi.serve.images import place
from gemfi.serve.problems import ProblemError, unusable

_SHOWN: Final = 40  # characters of a name or a value in a message


def are_objects(values: Any) -> bool:
    """Whether any input is an object."""
    return isinstance(values, list) and any(isinstance(each, dict) for each in values)


def from_objects(
    values: list[Any], field: str, form: InputFormat, max_inputs: int
) -> npt.NDArray[Any]:
    """A batch (N, D) as the model takes it.

    Args:
        values: of `inputs`, or [the value] of `input`.
        field: which of the two.
        form: what the model takes.
        max_inputs: how many there may be.
    """
    check_count(values, field, max_inputs)
    columns = form.columns
    if columns is None:
        raise unusable(
            "wrong_shape",
            f"this model knows no names of columns; an input is {form.words()}",
            field,
        )
    for index, row in enumerate(values):
        _check_names(row, columns, place(field, index))
        for column in columns.columns:
            _check_cell(row[column.name], column, form, place(field, index))
    table = {name: [row[name] for row in values] for name in columns.names}
    return columns.encode(table)[0].astype(form.dtype)


def row_schema(columns: Columns, bounds: tuple[float, float]) -> dict[str, Any]:
    """One row as a JSON schema."""
    low, high = bounds
    cells: dict[str, Any] = {}
    for each in columns.columns:
        if each.kind == "category":
            cells[each.name] = {"type": ["string", "number", "boolean", "null"]}
        else:
            kinds = ["number", "boolean", *(["null"] if each.missing else [])]
            cells[each.name] = {"type": kinds, "minimum": low, "maximum": high}
    return {
        "type": "object",
        "properties": cells,
        "required": list(columns.names),
        "additionalProperties": False,
    }


def _check_names(row: Any, columns: Columns, where: str) -> None:
    if not isinstance(row, dict):
        raise unusable("wrong_shape", "expected an object, as the other inputs are", where)
    for name in columns.names:
        if name not in row:
            message = f"column {name[:_SHOWN]!r} is not there; a missing value is null"
            raise unusable("wrong_shape", message, where)
    unknown = next((name for name in row if name not in columns.names), None)
    if unknown is not None:
        raise unusable("wrong_shape", f"there is no column {unknown[:_SHOWN]!r}", where)


def _check_cell(cell: Any, column: Column, form: InputFormat, where: str) -> None:
    low, high = form.bounds()
    if column.kind == "category":
        fits = isinstance(cell, str | int | float | None)
    elif cell is None:
        fits = column.missing
    else:
        fits = isinstance(cell, int | float) and low <= cell <= high
    if not fits:
        raise _flaw(cell, column, where)


def _flaw(cell: Any, column: Column, where: str) -> ProblemError:
    kind = "an array or an object" if isinstance(cell, list | dict) else json.dumps(cell)[:_SHOWN]
    wanted = "a number" if column.kind == "number" else "a text"
    if cell is None:
        wanted += ", as in every row of the training data"
    message = f"column {column.name[:_SHOWN]!r}: expected {wanted}, got {kind}"
    return unusable("not_a_number", message, where)
