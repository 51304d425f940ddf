"""The paper's numbers (`paper.toml`), each with the convention it was really computed under.

>>> find("table2", "gem-fi", "cifar10>svhn/epistemic").mean
92.59

`gemfi_bench.audit` says which of them cannot be.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final, TypeAlias

from gemfi.errors import InputError
from gemfi_bench.published.known import convention

Key: TypeAlias = tuple[str, str, str]
"""Label, row and column of a number."""

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


PAIRS: Final[Mapping[str, Pair]] = {
    "mnist>kmnist": Pair(10_000, 10_000),
    "mnist>fmnist": Pair(10_000, 10_000),
    "cifar10>svhn": Pair(10_000, 26_032),
    "cifar10>cifar100": Pair(10_000, 10_000),
    "cifar10>tinyimagenet": Pair(10_000, 10_000),
}
"""OOD pair -> what the paper scored; of SVHN all, of TinyImageNet the validation images."""


def read_table(label: str, columns: str, rows: str, metric: str | None = None) -> list[Published]:
    """The numbers of a table of `paper.toml`, which says how the arguments are written."""
    names = [column.partition("=") for column in columns.split()]
    metrics = {name: own or metric or name for name, _, own in names}
    numbers: dict[Key, Published] = {}
    for line in filter(None, map(str.strip, rows.splitlines())):
        row, *cells = line.split()
        if len(cells) != len(metrics):
            raise InputError(
                f"{label}: row {row!r} has {len(cells)} cells, expected {len(metrics)}"
            )
        for column, cell in zip(metrics, cells, strict=True):
            if cell == "--":
                continue
            number = _number((label, row, column), metrics[column], cell)
            if number.key in numbers:
                raise InputError(f"{label}: row {row!r} is there twice")
            numbers[number.key] = number
    return list(numbers.values())


def _number(key: Key, metric: str, cell: str) -> Published:
    match = _CELL.fullmatch(cell)
    if match is None:
        raise InputError(
            f"{key[0]}: row {key[1]!r}: a cell must be a mean, mean±std or --, got {cell!r}"
        )
    std = None if match["std"] is None else float(match["std"])
    return Published(*key, metric, float(match["mean"]), std, convention(":".join(key)))


def _read_paper() -> Iterator[Published]:
    text = (resources.files("gemfi_bench") / "published" / "paper.toml").read_text("utf-8")
    paper = tomllib.loads(text)
    for label, block in paper["tables"].items():
        yield from read_table(label, **block)
    for label, lines in paper["prose"].items():
        for row, column, metric, cell in map(str.split, lines.splitlines()):
            yield _number((label, row, column), metric, cell)


PUBLISHED: Final = tuple(_read_paper())
"""Every number, table by table, in the order of the paper's rows and columns."""

LABELS: Final = tuple(dict.fromkeys(number.label for number in PUBLISHED))
"""Of the tables, then `abstract` and `text` for what is said outside them."""


def published(label: str) -> dict[tuple[str, str], Published]:
    """The numbers of a table by row and column, or an error that lists the labels."""
    if label not in LABELS:
        raise InputError(f"unknown label {label!r}; known: {', '.join(LABELS)}")
    return {(number.row, number.column): number for number in PUBLISHED if number.label == label}


def find(label: str, row: str, column: str) -> Published | None:
    """One number, or None where the paper has none; an unknown label is an error."""
    return published(label).get((row, column))
