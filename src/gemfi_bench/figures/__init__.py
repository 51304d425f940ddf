"""The figures of the paper, drawn from the records of a bench; they need matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from gemfi._drawing import styled
from gemfi._files import write_atomically
from gemfi.errors import InputError
from gemfi.scores import DIFFERENTIAL_ENTROPY_NOTE
from gemfi_bench.figures import (
    architecture,
    calibration,
    conflict,
    curves,
    distributions,
    embedding,
    scatter,
    simplex,
    support,
    toys,
)
from gemfi_bench.figures.common import FigureEntry
from gemfi_bench.manifest import PAPER_FIGURES, file_stem
from gemfi_bench.words import one_line, read_words

_PANELS: Final = {
    "moons-2d": ("moons-edl", "moons-daedl", "moons-gemfi"),
    "moons-toy-1d": ("toy-daedl", "toy-gemfi"),
    "arch": ("arch-daedl", "arch-gemfi"),
    "tsne-fi": ("tsne-before", "tsne-after", "tsne-id-ood"),
}
PARENT: Final = {panel: label for label, panels in _PANELS.items() for panel in panels}
"""Label of a panel that the paper refers to -> the figure that it is in."""

_WORDS: Final = read_words("figures")
_SHARED: Final = _WORDS["shared"] | {"differential_entropy": DIFFERENTIAL_ENTROPY_NOTE}
_MODULES: Final = (
    toys, architecture, curves, simplex, embedding, calibration, distributions, scatter, conflict,
    support,
)  # fmt: skip
_ADAPTERS: Final = {
    label: adapter for module in _MODULES for label, adapter in module.FIGURES.items()
}
FIGURES: Final[Mapping[str, FigureEntry]] = {
    label: FigureEntry(
        _WORDS[label]["title"],
        one_line(_WORDS[label]["caption"], **_SHARED),
        _ADAPTERS[label],
        _WORDS[label].get("sets", True),
    )
    for label in sorted(_ADAPTERS, key=PAPER_FIGURES.index)
}
"""Label -> figure, in the paper's order."""

PNG_DPI: Final = 200
_HASHED: Final = "[a-z][0-9a-f]{10}"  # an id that matplotlib makes in an SVG file
_METADATA: Final[Mapping[str, Mapping[str, Any]]] = {  # no dates: equal figures are equal files
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def save(figure: Figure, folder: Path | str, label: str) -> dict[str, Path]:
    """Write a figure as PNG, SVG and PDF, each whole or not at all; returns format -> file.

    Args:
        figure: as an entry of `FIGURES` draws it.
        folder: it is created.
        label: of the figure, or of a panel that it holds.
    """
    label = PARENT.get(label, label)
    if label not in FIGURES:
        raise InputError(f"no figure {label!r}; there are: {', '.join(FIGURES)}")
    paths = {}
    for kind, data in pictures(figure).items():
        paths[kind] = Path(folder) / f"{file_stem(label)}.{kind}"
        write_atomically(paths[kind], data)
    return paths


def pictures(figure: Figure) -> dict[str, bytes]:
    """Format -> the bytes of a figure: equal figures give equal bytes."""
    files = {}
    with styled(), mpl.rc_context({"svg.hashsalt": "gemfi"}):  # ids would be random otherwise
        for kind, metadata in _METADATA.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata=dict(metadata))
            files[kind] = buffer.getvalue()
    return files | {"svg": _steady_ids(files["svg"])}


def _steady_ids(svg: bytes) -> bytes:
    """An SVG file whose clips and markers are numbered in their order.

    Matplotlib names them by a hash of their coordinates, in which the layout has a last digit that
    differs from process to process.
    """
    text = svg.decode()
    names = dict.fromkeys(re.findall(rf'\bid="({_HASHED})"', text))
    numbers = {name: f"{name[0]}{number}" for number, name in enumerate(names)}
    return re.sub(
        rf'(?<=[#"]){_HASHED}(?=[")])', lambda match: numbers.get(match[0], match[0]), text
    ).encode()


__all__ = ["FIGURES", "PARENT", "FigureEntry", "file_stem", "pictures", "save"]
