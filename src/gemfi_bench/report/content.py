"""What a report shows, before any of it is HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gemfi._config import check_choice
from gemfi.errors import InputError
from gemfi_bench.page import size_of
from gemfi_bench.record_file import RunRecord
from gemfi_bench.table import Table

Verdict = Literal["supported", "refuted", "undecided", "not tested"]

FEW_SEEDS = "fewer than 3 seeds"
"""Stands beside the verdict on a claim with a test that has too few seeds."""

VERDICTS: tuple[Verdict, ...] = ("supported", "refuted", "undecided", "not tested")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper's text, and what the records say of it.

    Attributes:
        claim: in one sentence.
        statistic: what was computed to judge it.
        verdict: of the records.
        estimate: the statistic's value, as shown, or why it was not tested; of several statistics
            a line each.
        interval: of the estimate, as shown; a line for each of the estimate's, empty for none.
        few_seeds: whether a test has too few seeds to decide anything.
        keys: of the runs that it rests on.
        where: in the paper, "Section 4.2, Table 2".
    """

    claim: str
    statistic: str
    verdict: Verdict
    estimate: str = ""
    interval: str = ""
    few_seeds: bool = False
    keys: tuple[str, ...] = ()
    where: str = ""

    def __post_init__(self) -> None:
        check_choice("verdict", self.verdict, VERDICTS)


@dataclass(frozen=True)
class Missing:
    """A table or a figure that could not be made.

    Attributes:
        label: of the paper.
        title: what it would show.
        reason: why it is not here, for readers.
    """

    label: str
    title: str
    reason: str


@dataclass(frozen=True)
class FigureFile:
    """A figure that was drawn.

    Attributes:
        label: of the paper.
        title: what it shows, in a few words.
        caption: what to see in it.
        png: the picture.
        svg: the same as vectors, which are sharp at any size; None for none.
    """

    label: str
    title: str
    caption: str
    png: bytes
    svg: bytes | None = None

    def __post_init__(self) -> None:
        try:
            size_of(self.png)
        except InputError as error:
            raise InputError(f"figure {self.label}: {error}") from error


AnyTable: TypeAlias = Table | Missing
AnyFigure: TypeAlias = FigureFile | Missing


@dataclass(frozen=True)
class Content:
    """All that a report shows.

    Attributes:
        title: of the page.
        subtitle: what was compared on which data.
        facts: name -> value: protocol, date, code version, runs done and planned.
        summary: what was found, a sentence each.
        claims: the ledger.
        tables: in the paper's order.
        figures: in the paper's order.
        published: our numbers beside the published ones.
        records: of the runs; the keys of numbers and claims lead to them.
    """

    title: str
    subtitle: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    summary: Sequence[str] = ()
    claims: Sequence[Claim] = ()
    tables: Sequence[AnyTable] = ()
    figures: Sequence[AnyFigure] = ()
    published: Sequence[Table] = ()
    records: Sequence[RunRecord] = ()
