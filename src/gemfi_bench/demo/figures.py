"""The demo's figures, as PNG files in memory.

matplotlib is the optional extra `plot`: this module imports without it. Figures are drawn on
canvases of their own (no pyplot), under one style whatever the user's settings are.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemfi._drawing import DPI, require_matplotlib, styled
from gemfi_bench.demo.runner import Run
from gemfi_bench.demo.table import datasets

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_figures(runs: Sequence[Run]) -> dict[str, bytes]:
    """Name -> PNG of each figure whose data set was run; the same runs give the same bytes."""
    require_matplotlib()
    from gemfi_bench.demo import figures_digits, figures_toys  # noqa: PLC0415 - they need matplotlib

    drawings = {  # figure -> data set, drawing
        "two-moons": ("two-moons", figures_toys.two_moons),
        "line": ("line", figures_toys.line),
        "reliability": ("digits", figures_digits.reliability),
        "histograms": ("digits", figures_digits.histograms),
    }
    chosen = datasets(runs)
    with styled():
        return {
            name: _png(draw(chosen[dataset]))
            for name, (dataset, draw) in drawings.items()
            if dataset in chosen
        }


def _png(figure: Figure) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - optional

    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()
