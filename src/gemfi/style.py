"""Colours and names that every figure and report shares; only drawing needs matplotlib.

Colours are those of Okabe and Ito, which readers with a colour deficiency can tell apart.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemfi.errors import InputError
from gemfi.extras import require_module
from gemfi.files import write_atomically
from gemfi.printable import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED = "#1f2933", "#5f6b7a"

METHOD_COLORS = {  # baselines warm or grey, the GEM family blue and green
    "softmax": "#7a7a7a",
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
}
METHOD_LABELS = {
    "softmax": "Softmax",
    "mc-dropout": "MC dropout",
    "ensemble": "Ensemble",
    "edl": "EDL",
    "i-edl": "I-EDL",
    "r-edl": "R-EDL",
    "re-edl": "Re-EDL",
    "daedl": "DAEDL",
    "postnet": "PostNet",
    "kl-pn": "KL-PN",
    "rkl-pn": "RKL-PN",
    "cedl-plus": "CEDL+",
    "gem-core": "GEM-CORE",
    "gem-mix": "GEM-MIX",
    "gem-fi": "GEM-FI",
}
SCORE_LABELS = {
    "max_prob": "1 − max p",
    "entropy": "entropy",
    "evidence": "evidence score",
    "bare_evidence": "evidence without ρ",
    "max_alpha": "largest α",
    "logit_energy": "energy of the logits",
    "unfamiliarity": "unfamiliarity",
    "vacuity": "vacuity",
    "dissonance": "dissonance",
    "disagreement": "disagreement",
    "mutual_information": "mutual information",
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
SET_COLORS = {"ID test": "#9aa5b4", "near OOD": "#d55e00", "far OOD": "#a3419b"}
PART_COLORS = {"aleatoric": "#cbbf9f", "within": "#b9a1d6", "between": "#8a3b8f"}

KEPT = 95  # percent of the test points inside the line of a panel
SHOWN = 300  # training points drawn
DPI = 150
RC: dict[str, Any] = {
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # it comes with matplotlib, so a figure looks the same everywhere
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 8.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.fontsize": 8,
    "legend.frameon": False,
}


def method_color(name: str) -> str:
    """The colour of a method, everywhere; ink for one that has none yet."""
    return METHOD_COLORS.get(name, INK)


def method_label(name: str) -> str:
    """The name of a method as its paper writes it."""
    return METHOD_LABELS.get(name, name)


def score_label(name: str) -> str:
    """A score in words; a name that is not ours may come from a file."""
    return SCORE_LABELS.get(name, printable(name.replace("_", " ")))


def detector_label(name: str) -> str:
    """A detector in words."""
    return DETECTOR_LABELS.get(name, name)


@contextmanager
def styled() -> Iterator[None]:
    """The style of every figure, whatever the user's settings are; also a decorator."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    with mpl.rc_context():
        mpl.rcdefaults()
        settings: Any = mpl.rcParams  # typed by the names of one release
        settings.update(RC)
        yield


def require_matplotlib() -> None:
    """Say how to install it where it is not there."""
    require_module("matplotlib.figure", "drawing figures")


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all, in the format of the path's ending."""
    kind = path.suffix.removeprefix(".").lower()
    known = figure.canvas.get_supported_filetypes()
    if kind not in known:
        raise InputError(f"cannot write a figure as {path.name!r}; endings: {', '.join(known)}")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=DPI)
    write_atomically(path, buffer.getvalue())
