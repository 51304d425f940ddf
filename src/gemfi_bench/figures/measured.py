"""The figures that are drawn from the arrays of runs, by the paper's labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gemfi_bench.figures import calibration, conflict, curves, distributions, scatter, support
from gemfi_bench.figures.common import FigureEntry, noting

_ENTRIES: Final[Mapping[str, FigureEntry]] = {
    **curves.ENTRIES,
    **calibration.ENTRIES,
    "hist-ood": distributions.ENTRIES["hist-ood"],
    **scatter.ENTRIES,
    "boxplots": distributions.ENTRIES["boxplots"],
    **conflict.ENTRIES,
    **support.ENTRIES,
}
_ID_ALONE: Final = ("reliability_id", "conf_correct_wrong", "supp-calib")

FIGURES_A: Final[Mapping[str, FigureEntry]] = {
    label: replace(entry, draw=noting(entry.draw, sets=sets), sets=sets)
    for label, entry in _ENTRIES.items()
    for sets in (label not in _ID_ALONE,)
}
"""In the paper's order."""
