"""The paper's first two figures: uncertainty over two moons, and along a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from gemfi._drawing import styled
from gemfi_bench.demo import figures_toys
from gemfi_bench.demo.runner import Run, judged
from gemfi_bench.figures.common import TEXT, FigureEntry, panel_title
from gemfi_bench.results import Results
from gemfi_bench.style import KEPT
from gemfi_bench.toys import LINE, MOONS, toy_plans, trained_toys

_LINE_SIZE: Final = (TEXT, 5.4)


def judged_toys(folder: Path | str, task: str) -> list[Run]:
    """The trained toys of a task with their numbers, in the order of the panels.

    Args:
        folder: of a bench.
        task: `two-moons` or `line`.
    """
    runs = trained_toys(folder, task)
    return [judged(plan, runs[toy].model) for toy, plan in toy_plans(task).items()]


@styled()
def two_moons(results: Results) -> Figure:
    """A column a method: entropy above, evidence below."""
    runs = judged_toys(results.folder, MOONS)
    figure = figures_toys.two_moons_across(runs, TEXT)
    _letters(figure, len(runs))
    return figure


@styled()
def line(results: Results) -> Figure:
    """A column a method: probability, parts of its uncertainty, evidence."""
    runs = judged_toys(results.folder, LINE)
    figure = figures_toys.line(runs, _LINE_SIZE)
    _letters(figure, len(runs))
    return figure


def _letters(figure: Figure, columns: int) -> None:
    """Titles of the columns in the form that every figure of the paper has here."""
    for index, axes in enumerate(figure.axes[:columns]):
        text = axes.get_title()
        axes.set_title("")
        panel_title(axes, index, text)


TOY_FIGURES: Final[Mapping[str, FigureEntry]] = {
    "moons-2d": FigureEntry(
        "Two moons and an unseen cluster",
        "Uncertainty over the plane after training on two moons (1,000 points, 300 of them shown); "
        "brighter is more uncertain. Top: entropy of the prediction. Bottom: total evidence, as a "
        "multiple of what the method has at its median test point; that of GEM-FI includes the "
        "density scaler ρ and the gate of its energy. The white line is the threshold that keeps "
        f"{KEPT} % of the test points: what is brighter would be flagged. AUROC: of the cluster "
        "against test points. One run each, seed 0; the perceptron, the budget and the GEM-FI "
        "settings for toys are those of gemfi demo. The paper shows the entropy alone.",
        two_moons,
        sets=False,
    ),
    "moons-toy-1d": FigureEntry(
        "One dimension, non-convex classes",
        "Models trained on points of a line with gaps (1,000, 300 of them shown as ticks, class 1 "
        "above). Top: predicted and true probability of class 1; thin lines are the heads of a "
        "mixture, as strong as their weight. Middle: the entropy of the prediction, split exactly "
        "into its aleatoric part, the doubt within heads and the disagreement between them. "
        "Bottom: evidence as a multiple of that at the median test point. Where 2 ≤ x ≤ 3 both "
        "classes are equally likely; grey: no data. One run each, seed 0.",
        line,
        sets=False,
    ),
}
"""Label -> figure."""
