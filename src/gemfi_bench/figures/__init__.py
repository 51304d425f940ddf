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
from gemfi_bench.figures.architecture import ARCHITECTURE_FIGURES
from gemfi_bench.figures.common import FigureEntry
from gemfi_bench.figures.embedding import EMBEDDING_FIGURES
from gemfi_bench.figures.measured import FIGURES_A
from gemfi_bench.figures.simplex import SIMPLEX_FIGURES
from gemfi_bench.figures.toys import TOY_FIGURES
from gemfi_bench.manifest import file_stem

ORDER: Final = (
    "moons-2d", "moons-toy-1d", "arch", "prroc", "dirichlet-comp", "tsne-fi", "pr-curves",
    "roc-curves", "reliability_id", "conf_correct_wrong", "hist-ood", "entropy-mi-scatter",
    "boxplots", "tsne-comparison", "app:lambda", "supp-uncert", "supp-calib", "supp-accconf",
    "supp-energy",
)  # fmt: skip
"""The labels of the paper's figures, without `fig:`, in its order."""

_KNOWN: Final = {
    **TOY_FIGURES,
    **ARCHITECTURE_FIGURES,
    **SIMPLEX_FIGURES,
    **EMBEDDING_FIGURES,
    **FIGURES_A,
}
FIGURES: Final[Mapping[str, FigureEntry]] = {
    **{label: _KNOWN[label] for label in ORDER},
    **{label: entry for label, entry in _KNOWN.items() if label not in ORDER},
}
"""Label -> figure, those of the paper first."""

PARENT: Final[Mapping[str, str]] = {
    "moons-edl": "moons-2d",
    "moons-daedl": "moons-2d",
    "moons-gemfi": "moons-2d",
    "toy-daedl": "moons-toy-1d",
    "toy-gemfi": "moons-toy-1d",
    "arch-daedl": "arch",
    "arch-gemfi": "arch",
    "tsne-before": "tsne-fi",
    "tsne-after": "tsne-fi",
    "tsne-id-ood": "tsne-fi",
}
"""Label of a panel that the paper refers to -> the figure that it is in."""

PNG_DPI: Final = 200
_HASHED: Final = "[a-z][0-9a-f]{10}"  # an id that matplotlib makes in an SVG file
_METADATA: Final[Mapping[str, Mapping[str, Any]]] = {  # no dates: equal figures are equal files
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def save(figure: Figure, folder: Path | str, label: str) -> dict[str, Path]:
    """Write a figure as PNG, SVG and PDF, each whole or not at all; equal figures, equal bytes.

    Args:
        figure: as an entry of `FIGURES` draws it.
        folder: it is created.
        label: of the figure, or of a panel that it holds.

    Returns:
        Format -> file.
    """
    label = PARENT.get(label, label)
    if label not in FIGURES:
        raise InputError(f"no figure {label!r}; there are: {', '.join(FIGURES)}")
    name, found = file_stem(label), {}
    for kind, data in pictures(figure).items():
        found[kind] = Path(folder) / f"{name}.{kind}"
        write_atomically(found[kind], data)
    return found


def pictures(figure: Figure) -> dict[str, bytes]:
    """Format -> the bytes of a figure."""
    made = {}
    with styled(), mpl.rc_context({"svg.hashsalt": "gemfi"}):  # ids would be random otherwise
        for kind, metadata in _METADATA.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata=dict(metadata))
            made[kind] = buffer.getvalue()
    return made | {"svg": steady_ids(made["svg"])}


def steady_ids(svg: bytes) -> bytes:
    """An SVG file whose clips and markers are numbered in their order.

    Matplotlib names them by a hash of their coordinates, in which the layout has a last digit that
    differs from process to process.
    """
    text = svg.decode()
    names = dict.fromkeys(re.findall(rf'\bid="({_HASHED})"', text))
    numbers = {name: f"{name[0]}{number}" for number, name in enumerate(names)}
    return re.sub(
        rf'(?<=[#"]){_HASHED}(?=[")])', lambda found: numbers.get(found[0], found[0]), text
    ).encode()


__all__ = ["FIGURES", "ORDER", "PARENT", "FigureEntry", "file_stem", "pictures", "save"]
