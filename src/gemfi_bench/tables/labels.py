"""How the rows of the grid are called in tables, ours and those beside the paper's."""

from __future__ import annotations

from typing import Final

from gemfi.methods import PRESETS
from gemfi.outliers import OutlierConfig
from gemfi_bench.style import DETECTOR_LABELS, method_label

OF_PROBABILITY: Final = ("maxp", "odin", "temperature")
"""Detectors that score by a probability, under aleatoric uncertainty; the others are epistemic."""

ABLATION_LABELS: Final = {
    "ablation-none": "none",
    "ablation-sn": "SN",
    "ablation-core": "CORE",
    "ablation-mix": "MIX",
    "ablation-fi-reg": "FI-Reg",
    "ablation-fi-mod": "FI-Mod",
    "ablation-fi": "FI",
    "ablation-ebm": "EBM",
    "ablation-full": "full",
    "ablation-full-without-sn": "full without SN",
}
"""Row -> its name: what comes in with it."""


def outlier_words(config: OutlierConfig) -> str:
    """Everything that stands for the unknown in training, `halo and scrambled inputs`."""
    if config.is_none:
        return "none"
    if config.kind == "scrambled":
        return "scrambled inputs"
    return f"{config.kind} and scrambled inputs" if config.scrambled else config.kind


OUTLIER_LABELS: Final = {
    "daedl": "DAEDL",
    "daedl+vos": "DAEDL + VOS",
    "re-edl": "Re-EDL",
    "re-edl+vos": "Re-EDL + VOS",
    "gem-fi+none": "GEM-FI without outliers",
    "gem-fi+vos": "GEM-FI + VOS",
    "gem-fi+noise": "GEM-FI + feature-space noise",
    "gem-fi": f"GEM-FI (default: {outlier_words(PRESETS['gem-fi'].outliers)})",
}
"""Row -> its name; in this order."""

_THEIRS: Final = {
    "gem-fi-without-vos": "GEM-FI without VOS",
    "gem-fi-without-rho": "GEM-FI with ρ(z) = 1",
    "gem-fi-k5": "GEM-FI (K = 5)",
    "dirichlet-mixture": "Mixture of Dirichlets",
    "gated-dirichlet": "Gated Dirichlet",
}
"""Rows of the paper's tables that have no such name here."""


def published_label(row: str) -> str:
    """A row of the paper's tables, as ours call what stands for it.

    >>> published_label("lts")
    'LTS'
    """
    others = {name: text for name, text in OUTLIER_LABELS.items() if "+" in name}
    known = others | ABLATION_LABELS | DETECTOR_LABELS | _THEIRS
    return known.get(row) or method_label(row)
