"""The paper's numbers, transcribed once, each with the convention it was really computed under.

>>> find("table2", "gem-fi", "cifar10>svhn/epistemic").mean
92.59

`gemfi_bench.audit` says which of them cannot be.
"""

from __future__ import annotations

from gemfi.errors import InputError
from gemfi_bench.published import ablation, appendix, classification, ood, text
from gemfi_bench.published.ood import PAIRS
from gemfi_bench.published.record import Key, Pair, Published

PUBLISHED: tuple[Published, ...] = (
    *ood.TABLES,
    *classification.TABLES,
    *ablation.TABLES,
    *appendix.TABLES,
    *text.TABLES,
)
"""Every number, table by table, in the order of the paper's rows and columns."""

LABELS: tuple[str, ...] = tuple(dict.fromkeys(each.label for each in PUBLISHED))
"""Of the tables, then `abstract` and `text` for what is said outside them."""


def published(label: str) -> dict[tuple[str, str], Published]:
    """The numbers of a table by row and column, or an error that lists the labels."""
    if label not in LABELS:
        raise InputError(f"unknown label {label!r}; known: {', '.join(LABELS)}")
    return {(each.row, each.column): each for each in PUBLISHED if each.label == label}


def find(label: str, row: str, column: str) -> Published | None:
    """One number, or None where the paper has none; an unknown label is an error."""
    return published(label).get((row, column))


__all__ = ["LABELS", "PAIRS", "PUBLISHED", "Key", "Pair", "Published", "find", "published"]
