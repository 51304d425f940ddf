"""A table as data: numbers with their origin, and which of them are best.

Every form of a table starts from here, so that no two of them round, mark or leave out differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

import numpy as np

from gemfi.errors import InputError

Better = Literal["high", "low"]
Mark = Literal["best", "second"]


@dataclass(frozen=True)
class Value:
    """A number and where it comes from.

    The mean is without the `missing` runs, so that it says so and is never best.
    """

    mean: float  # over the runs; NaN where it is not defined
    std: float | None = None  # sample deviation over the runs; None below two of them
    n: int = 1  # how many runs
    keys: tuple[str, ...] = ()  # of the records of the runs
    flag: str | None = None  # a remark, such as "impossible: ...", shown as a footnote
    missing: int = 0  # further runs that have no such number, or an infinite one
    interval: tuple[float, float] | None = None  # over the inputs; shown of one run
    unseen: int = 0  # further runs without the arrays that the number is made from

    @property
    def runs(self) -> int:
        """How many runs there are, with those that the mean is without."""
        return self.n + self.missing + self.unseen

    @property
    def remark(self) -> str:
        """What a footnote says of it: its flag, and that runs are left out; empty for neither."""
        known = self.n + self.missing
        parts = [self.flag] if self.flag else []
        if self.missing:
            parts.append(
                f"{self.n} of {known} runs: the others have no such number, or an infinite one"
            )
        if self.unseen:
            parts.append(f"{known} of {self.runs} runs: the arrays of the others are not here")
        return "; ".join(parts)

    @classmethod
    def of(cls, values: Sequence[float], keys: Sequence[str] = (), missing: int = 0) -> Value:
        """The mean and the sample standard deviation of one number a run.

        >>> Value.of([1.0, 2.0, 3.0]).std
        1.0
        """
        mean = sum(map(float, values)) / len(values)
        has_spread = len(values) > 1 and bool(np.isfinite(values).all())
        std = float(np.std(values, ddof=1)) if has_spread else None
        return cls(mean, std, len(values), tuple(keys), missing=missing)


Cell: TypeAlias = Value | str | bool | None
"""None is what is not defined, a bool a tick or a cross, a string text such as "data absent"."""


@dataclass(frozen=True)
class Column:
    """What the cells of a column are."""

    name: str  # as shown, "AUPR"
    group: str = ""  # the head over it and its neighbours, "MNIST → KMNIST"; empty for none
    better: Better | None = None  # whether high or low numbers are good; None for neither
    decimals: int = 2  # digits after the point, of means and standard deviations
    marked: bool = True  # mark the best; False for numbers that do not compete, as published ones


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    name: str  # as shown, "GEM-FI"
    cells: tuple[Cell, ...]  # one a column
    method: str | None = None  # this project's name of it, "gem-fi"; None if it is of none
    ours: bool = False  # a method of the paper itself, shaded as the paper does
    section: str = ""  # rows of one stand together and compete with each other only


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    label: str  # of the paper, "table2"; it becomes a file name, an id and a LaTeX label
    title: str
    columns: tuple[Column, ...]  # all but the first, which holds the names of the rows
    rows: tuple[Row, ...]  # from the top, those of one section next to each other
    stub: str = "Method"  # head of the first column
    notes: tuple[str, ...] = ()  # conventions, what stands for what, and what is absent

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise InputError(
                    f"{self.label}: row {row.name!r} has {len(row.cells)} cells, expected one for "
                    f"each of {len(self.columns)} columns"
                )
        sections = [section for section, _ in self.sections()]
        again = [name for at, name in enumerate(sections) if name in sections[:at]]
        if again:
            raise InputError(
                f"{self.label}: section {again[0]!r} begins twice; put its rows next to each other"
            )

    def sections(self) -> Iterator[tuple[str, list[int]]]:
        """Each section with the indices of its rows, from the top."""
        for section, members in groupby(range(len(self.rows)), lambda at: self.rows[at].section):
            yield section, list(members)


def printed(number: float, decimals: int) -> str:
    """A number as every table prints it; never a negative zero.

    >>> printed(-0.004, 2)
    '0.00'
    """
    return f"{number:z.{decimals}f}"


def marks(table: Table) -> dict[tuple[int, int], Mark]:
    """The best and the second best cells, by (row, column), as the paper marks them.

    Numbers are compared as printed, within a section, in columns that say what is better. All
    that tie are marked, and beside two that are best there is no second. Alone no number is best.
    A mean that is without some runs competes as if they were infinitely bad. What is infinite, or
    rests on fewer runs than another row of the section has, competes but is never marked.
    """
    marked: dict[tuple[int, int], Mark] = {}
    for _, members in table.sections():
        few = _few_runs(table, members)
        cells = _competitors(table, members)
        for at, column in enumerate(table.columns):
            numbers = {
                place: _competing(cell, column)
                for place, cell in cells.items()
                if place[1] == at and not math.isnan(cell.mean)
            }
            ranked = sorted(numbers.values(), reverse=column.better == "high")
            for place, number in numbers.items():
                if len(ranked) < 2 or not math.isfinite(number) or place in few:
                    continue
                if number in ranked[:2]:
                    marked[place] = "best" if number == ranked[0] else "second"
    return marked


def has_few_runs(table: Table) -> bool:
    """Whether a number that would compete rests on fewer runs than another row has."""
    return any(_few_runs(table, members) for _, members in table.sections())


def _few_runs(table: Table, members: Sequence[int]) -> set[tuple[int, int]]:
    """Where, as (row, column), a number rests on fewer runs than another row of a section has."""
    cells = _competitors(table, members)
    most = max((cell.runs for cell in cells.values()), default=0)
    return {place for place, cell in cells.items() if cell.n < most}


def _competitors(table: Table, members: Sequence[int]) -> dict[tuple[int, int], Value]:
    """The numbers of a section in the columns whose best are marked, by (row, column)."""
    return {
        (row, at): cell
        for row in members
        for at, column in enumerate(table.columns)
        if column.better and column.marked and isinstance(cell := table.rows[row].cells[at], Value)
    }


def _competing(cell: Value, column: Column) -> float:
    """A number as it is printed; the worst there is where it is without some runs."""
    if cell.missing:
        return -math.inf if column.better == "high" else math.inf
    return float(printed(cell.mean, column.decimals))
