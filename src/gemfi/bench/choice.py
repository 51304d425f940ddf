"""Which score of a row OOD-validation data choose, so that every method is seen at its best.

A method names its epistemic score beforehand; another of its scores may serve better on some data.
Nothing of the OOD test sets takes part in the choice.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gemfi.bench.grid import MAIN
from gemfi.bench.records import RunRecord
from gemfi.bench.results import Results
from gemfi.bench.unavailable import Unavailable

Section = Literal["by_score", "by_detector"]


@dataclass(frozen=True)
class Choice:
    """A score or detector of a row.

    Attributes:
        name: of it.
        aurocs: key of a run -> its AUROC, averaged over the OOD-validation sets.
        among: how many there were to choose from.
    """

    name: str
    aurocs: Mapping[str, float]
    among: int


def chosen(results: Results, row: str, group: str = MAIN, section: Section = "by_score") -> Choice:
    """The one of the highest mean AUROC over the runs of a row and the OOD-validation sets.

    Scores that a run lacks on one of the sets are out of the choice; of equal ones the first in the
    order of `SCORES` is taken.

    Args:
        results: of the bench.
        row: of the grid.
        group: of the grid.
        section: whether to choose among scores or among post-hoc detectors.
    """
    runs = results.runs(row, group)
    if not runs:
        raise Unavailable(f"no runs of {row}")
    found = [_aurocs(run, section) for run in runs]
    names = [name for name in found[0] if all(name in each for each in found)]
    if not names:
        kind = section.removeprefix("by_")
        raise Unavailable(f"the runs of {row} have no {kind} on OOD-validation data")
    for run in runs:
        results.use(run)
    best = max(names, key=lambda name: statistics.fmean(each[name] for each in found))
    aurocs = {run.key: each[best] for run, each in zip(runs, found, strict=True)}
    return Choice(best, aurocs, len(names))


def _aurocs(run: RunRecord, section: Section) -> dict[str, float]:
    """The mean over the OOD-validation sets, of what is defined on each of them."""
    sets: list[Mapping[str, Any]] = [
        each.get(section, {}) for each in run.numbers.get("ood_validation", {}).values()
    ]
    if not sets:
        return {}
    values = {name: [each.get(name, {}).get("auroc") for each in sets] for name in sets[0]}
    return {name: statistics.fmean(each) for name, each in values.items() if None not in each}
