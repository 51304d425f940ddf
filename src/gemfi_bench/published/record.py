"""What a published number is, and how a block of text becomes a table of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gemfi.errors import InputError

Key: TypeAlias = tuple[str, str, str]
"""Label, row and column of a number."""

Convention: TypeAlias = str | Callable[[str, str], str]
"""A phrase for the whole table, or a function of a row and a metric."""

ABSENT = "--"
"""A cell in which the paper prints no number."""

_NUMBER = r"\d+(?:\.\d+)?(?:e-?\d+)?"
_CELL = re.compile(rf"(?P<mean>-?{_NUMBER})(?:±(?P<std>{_NUMBER}))?")


@dataclass(frozen=True)
class Published:
    """A number that the paper prints.

    Attributes:
        label: of the paper's table; `abstract` and `text` for what stands outside tables.
        row: this project's name where there is one (a method, a detector, a preset of the
            ablation), else the paper's value, such as `0.3`.
        column: what of the row it is, such as `cifar10>svhn/epistemic`.
        metric: name of the metric; of `gemfi.metrics` where there is one.
        mean: as printed.
        std: as printed; None where none is.
        convention: what it was really computed under, in a phrase.
    """

    label: str
    row: str
    column: str
    metric: str
    mean: float
    std: float | None
    convention: str

    @property
    def key(self) -> Key:
        """Label, row and column."""
        return self.label, self.row, self.column

    def __str__(self) -> str:
        """The number as a reader knows it from the paper, `93.75±0.36`."""
        digits = {"nll": ".4f", "setting": "g", "p_value": "g"}.get(self.metric, ".2f")
        mean = format(self.mean, digits)
        return mean if self.std is None else f"{mean}±{self.std:.2f}"


@dataclass(frozen=True)
class Pair:
    """How many test images the paper scored on the two sides of an OOD pair."""

    n_id: int
    n_ood: int

    @property
    def base_rate_id(self) -> float:
        """Share of ID: what a constant score has as AUPR when ID is positive."""
        return self.n_id / (self.n_id + self.n_ood)

    @property
    def base_rate_ood(self) -> float:
        """Share of OOD: what a constant score has as AUPR when OOD is positive."""
        return self.n_ood / (self.n_id + self.n_ood)


def table(
    label: str, columns: Mapping[str, str], text: str, convention: Convention
) -> tuple[Published, ...]:
    """The numbers of a table from one line a row: its name, then a cell for each column.

    A cell is `93.75±0.36`, `93.75` or `--`. Anything else is an error, and so is a row that is
    there twice or has too few cells.

    Args:
        label: of the paper's table.
        columns: column -> metric, from left to right.
        text: the rows; empty lines are left out.
        convention: a phrase, or a function of row and metric.
    """
    found: dict[Key, Published] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        row, *cells = line.split()
        if len(cells) != len(columns):
            raise InputError(
                f"{label}: row {row!r} has {len(cells)} cells, expected {len(columns)}"
            )
        for (column, metric), cell in zip(columns.items(), cells, strict=True):
            if cell == ABSENT:
                continue
            phrase = convention if isinstance(convention, str) else convention(row, metric)
            number = Published(label, row, column, metric, *_read(cell, label, row), phrase)
            if number.key in found:
                raise InputError(f"{label}: row {row!r} is there twice")
            found[number.key] = number
    return tuple(found.values())


def _read(cell: str, label: str, row: str) -> tuple[float, float | None]:
    match = _CELL.fullmatch(cell)
    if match is None:
        raise InputError(
            f"{label}: row {row!r}: a cell must be a mean, mean±std or {ABSENT}, got {cell!r}"
        )
    std = match["std"]
    return float(match["mean"]), None if std is None else float(std)
