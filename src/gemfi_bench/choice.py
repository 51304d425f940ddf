"""Which score of a row OOD-validation data choose, so that every method is seen at its best.

A method names its epistemic score beforehand; another of its scores may serve better on some data.
Nothing of the OOD test sets takes part in the choice.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from gemfi.scores import score_label
from gemfi_bench.grid import MAIN
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import detector_label
from gemfi_bench.unavailable import Unavailable


@dataclass(frozen=True)
class Choice:
    """A score or detector of a row."""

    name: str
    aurocs: Mapping[str, float]  # key of a run -> its AUROC, averaged over the OOD-validation sets
    among: int  # how many there were to choose from
    detector: bool

    @property
    def label(self) -> str:
        """As tables and claims call it."""
        return detector_label(self.name) if self.detector else score_label(self.name)


def chosen(results: Results, row: str, group: str = MAIN, *, detector: bool = False) -> Choice:
    """The score of the highest mean AUROC over the runs of a row and the OOD-validation sets.

    Scores that a run lacks on one of the sets are out of the choice; of equal ones the first in the
    order of `SCORES` is taken. With `detector`, post-hoc detectors take the place of scores.
    """
    runs = results.runs(row, group)
    if not runs:
        raise Unavailable(f"no runs of {row}")
    kind = "detector" if detector else "score"
    by_run = {run.key: _aurocs(run, f"by_{kind}") for run in runs}
    names = [name for name in by_run[runs[0].key] if all(name in own for own in by_run.values())]
    if not names:
        raise Unavailable(f"the runs of {row} have no {kind} on OOD-validation data")
    for run in runs:
        results.use(run)
    best = max(names, key=lambda name: statistics.fmean(own[name] for own in by_run.values()))
    return Choice(best, {key: own[best] for key, own in by_run.items()}, len(names), detector)


def _aurocs(run: RunRecord, section: str) -> dict[str, float]:
    """The mean over the OOD-validation sets, of what is defined on all of them."""
    sets = [entry.get(section, {}) for entry in run.numbers.get("ood_validation", {}).values()]
    if not sets:
        return {}
    values = {name: [scores.get(name, {}).get("auroc") for scores in sets] for name in sets[0]}
    return {name: statistics.fmean(aurocs) for name, aurocs in values.items() if None not in aurocs}
