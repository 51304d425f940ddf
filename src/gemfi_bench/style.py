"""Colours and names of methods that every figure and report of the laboratory shares.

Colours are those of Okabe and Ito, which readers with a colour deficiency can tell apart.
"""

from __future__ import annotations

from gemfi._drawing import GREY, INK, PURPLE, VERMILION
from gemfi.methods import METHODS

METHOD_COLORS = {  # baselines warm or grey, the GEM family blue and green
    "softmax": "#7a7a7a",
    "logit-norm": "#5a6b7a",
    "t2f-norm": "#94a3ad",
    "mc-dropout": "#b0b0b0",
    "ensemble": "#4d4d4d",
    "edl": "#e69f00",
    "i-edl": "#b8860b",
    "r-edl": "#f0e442",
    "re-edl": "#c9b400",
    "daedl": "#d55e00",
    "postnet": "#cc79a7",
    "kl-pn": "#a3419b",
    "rkl-pn": "#7b2f75",
    "cedl-plus": "#8c564b",
    "gem-core": "#56b4e9",
    "gem-mix": "#009e73",
    "gem-fi": "#0072b2",
    "gem-paper": "#1b9e77",
}
DETECTOR_LABELS = {
    "maxp": "MaxP",
    "energy": "Energy",
    "odin": "ODIN",
    "mahalanobis": "Mahalanobis",
    "lts": "LTS",
    "temperature": "TS",
    "ddu": "DDU",
    "knn": "k-NN",
}
SET_COLORS = {"ID test": GREY, "near OOD": VERMILION, "far OOD": PURPLE}
PART_COLORS = {"aleatoric": "#cbbf9f", "within": "#b9a1d6", "between": "#8a3b8f"}

KEPT = 95  # percent of the test points inside the line of a panel
SHOWN = 300  # training points drawn


def method_color(name: str) -> str:
    """The colour of a method, everywhere; ink for one that has none yet."""
    return METHOD_COLORS.get(name, INK)


def method_label(name: str) -> str:
    """The name of a method as its paper writes it."""
    return METHODS[name].info.label if name in METHODS else name


def detector_label(name: str) -> str:
    """A detector in words."""
    return DETECTOR_LABELS.get(name, name)
