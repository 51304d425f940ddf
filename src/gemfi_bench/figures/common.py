"""What the figures share: their type and style, and which runs and sets they show.

This module imports without matplotlib; the modules that draw need it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from gemfi._drawing import INK, MUTED, styled
from gemfi.metrics import Floats
from gemfi_bench.grid import MAIN
from gemfi_bench.protocol import SEEN
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import SET_COLORS, method_color, method_label
from gemfi_bench.tabular import Value
from gemfi_bench.unavailable import Unavailable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[[Results], "Figure"]

COLUMN: Final = 3.3
"""Width of a column of the paper, in inches."""

TEXT: Final = 6.8
"""Width of its text, in inches."""

SMALL: Final = 7.0
"""Size of the text inside small panels, in points."""

ID: Final = "ID test"
NEAR: Final = "near OOD"
FAR: Final = "far OOD"
OTHER: Final = "other OOD"
GROUP_COLORS: Final[Mapping[str, str]] = SET_COLORS | {OTHER: "#0f8a7e"}

OURS: Final = "gem-fi"
FAMILY: Final = ("gem-core", "gem-mix", "gem-fi")
METHODS: Final = ("softmax", "ensemble", "edl", "daedl", "re-edl", *FAMILY)
"""Those that a figure of all methods shows first: more than eight lines cannot be told apart."""


@dataclass(frozen=True)
class FigureEntry:
    """A figure of the paper.

    Attributes:
        title: a few words.
        caption: what is shown, of which runs, under which conventions.
        draw: draws it from the results of a bench; raises `Unavailable` where they lack something.
        sets: whether it shows OOD sets.
    """

    title: str
    caption: str
    draw: Draw
    sets: bool = True

    def full_caption(self, results: Results) -> str:
        """The caption, with what is to be known of the sets that it shows."""
        said = results.caveats(results.ood_sets) if self.sets else []
        return " ".join([self.caption, *said])


# -- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """A row of the main tables with the runs whose arrays are at hand.

    Attributes:
        row: its name.
        method: of its runs.
        runs: in the order of their seeds, at least one.
    """

    row: str
    method: str
    runs: tuple[RunRecord, ...]

    @property
    def first(self) -> RunRecord:
        """The run that is drawn where only one can be."""
        return self.runs[0]

    @property
    def label(self) -> str:
        """For a legend."""
        return method_label(self.row)

    @property
    def color(self) -> str:
        """That of its method."""
        return method_color(self.method)

    @property
    def is_ours(self) -> bool:
        """Whether it is GEM-FI, which is drawn on top."""
        return self.method == OURS


def shown_rows(results: Results, methods: Sequence[str] = METHODS) -> list[Shown]:
    """The first row of each of these methods that has runs with arrays.

    Args:
        results: of a bench.
        methods: in the order in which they are shown.

    Raises:
        Unavailable: if there is none.
    """
    found: dict[str, Shown] = {}
    for row in results.rows(MAIN):
        name = results.method(row)
        if name not in methods or name in found:
            continue
        runs = results.runs_with_arrays(row)
        if runs:
            found[name] = Shown(row, name, tuple(runs))
    if not found:
        names = ", ".join(method_label(name) for name in methods)
        raise Unavailable(f"no run of {names} is here with its arrays")
    return [found[name] for name in methods if name in found]


def leading_rows(results: Results, count: int = len(METHODS)) -> list[Shown]:
    """The rows of `METHODS`, and others of the bench up to this number.

    Args:
        results: of a bench.
        count: how many rows a figure can hold.
    """
    others = [results.method(row) for row in results.rows(MAIN)]
    every = shown_rows(results, list(dict.fromkeys([*METHODS, *others])))
    chosen = [each.method for each in every][:count]
    order = [name for name in others if name not in METHODS] + list(METHODS)
    return sorted(
        (each for each in every if each.method in chosen), key=lambda each: order.index(each.method)
    )


def shown_row(results: Results, name: str = OURS) -> Shown:
    """The row of one method; `Unavailable` if it has no runs with arrays."""
    return shown_rows(results, [name])[0]


# -- sets -----------------------------------------------------------------------------------------


def ood_groups(results: Results) -> dict[str, list[str]]:
    """`near OOD`, `far OOD` and `other OOD` -> the sets that are at hand; no group is empty."""
    near, far = results.protocol.near, results.protocol.far
    found: dict[str, list[str]] = {NEAR: [], FAR: [], OTHER: []}
    for name in results.ood_sets:
        if not results.is_absent(name):
            found[NEAR if name in near else FAR if name in far else OTHER].append(name)
    kept = {group: names for group, names in found.items() if names}
    if not kept:
        raise Unavailable("no OOD set was at hand in any run")
    return kept


def set_groups(results: Results) -> dict[str, list[str]]:
    """As `ood_groups`, the test data first."""
    return {ID: ["test"]} | ood_groups(results)


def group_of(results: Results) -> dict[str, str]:
    """OOD set that is at hand -> its group."""
    return {name: group for group, names in ood_groups(results).items() for name in names}


def group_title(results: Results, group: str, names: Sequence[str]) -> str:
    """A group of sets with their names; of test data the group alone."""
    return group if group == ID else f"{group}: {', '.join(map(results.title, names))}"


def pooled(results: Results, run: RunRecord, names: Sequence[str], key: str) -> Floats | None:
    """An array of a run over several sets, one after the other; None if a set lacks it.

    Args:
        results: of a bench.
        run: with arrays.
        names: of its sets.
        key: such as `score/entropy`.
    """
    sets = results.arrays(run)
    if any(key not in sets.get(name, {}) for name in names):
        return None
    return np.concatenate([sets[name][key] for name in names]).astype(np.float64)


def needed(results: Results, run: RunRecord, names: Sequence[str], key: str) -> Floats:
    """As `pooled`, but `Unavailable` if a set lacks the array."""
    found = pooled(results, run, names, key)
    if found is None:
        raise Unavailable(f"run {run.key} has not kept {key} of {', '.join(names)}")
    return found


# -- drawing --------------------------------------------------------------------------------------


def panel_title(axes: Axes, index: int, text: str = "", width: int = 24, pad: float = 4.0) -> None:
    """The letter of a panel in bold, and its title in lines of at most `width` letters.

    Args:
        axes: of the panel.
        index: 0 for `a`.
        text: of the title.
        width: of a line.
        pad: between title and panel, in points.
    """
    lines = textwrap.wrap(text, width) or [""]
    name = f"$\\mathbf{{{chr(ord('a') + index)}}}$"
    style: dict[str, Any] = {"loc": "left", "fontsize": 8.5, "fontweight": "normal", "pad": pad}
    axes.set_title(f"{name}  " + "\n".join(lines), color=INK, **style)


def in_lines(label: str) -> str:
    """A label of two words in two lines, for a short axis."""
    words = label.split(" ")
    return label if len(words) != 2 else "\n".join(words)


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± deviation of a number over seeds, as the tables have it."""
    value = Value.of(values)
    mean = f"{value.mean:.{digits}f}"
    return mean if value.std is None else f"{mean} ± {value.std:.{digits}f}"


def even_choice(count: int, most: int) -> npt.NDArray[np.int64]:
    """Indices of at most `most` of `count` inputs, evenly spaced: the same at every call."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def quantile_limits(
    values: Sequence[Floats], share: float = 0.005, margin: float = 0.03
) -> tuple[float, float]:
    """An axis from the lowest `share` of the values to the highest, of every set by itself.

    Args:
        values: of each set; ±inf is left out.
        share: of a set that may lie beyond each end.
        margin: added at each end, in parts of the length.
    """
    finite = [each[np.isfinite(each)] for each in values]
    ends = [np.quantile(each, [share, 1 - share]) for each in finite if len(each)]
    low, high = min(each[0] for each in ends), max(each[1] for each in ends)
    room = max(margin * (high - low), 1e-3)
    return float(low - room), float(high + room)


def noting(draw: Draw, *, sets: bool = True) -> Draw:
    """A drawing that says at its foot what it lacks: OOD sets, and arrays of runs.

    Sets that a network has seen in pretraining are named there, too.

    Args:
        draw: draws what is there.
        sets: whether it shows OOD sets at all.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 - optional

    @styled()
    def drawn(results: Results) -> Figure:
        figure = draw(results)
        shown = results.ood_sets if sets else []
        noted = {
            "data absent": [results.title(name) for name in shown if results.is_absent(name)],
            SEEN: [results.title(name) for name in shown if name in results.protocol.seen],
            "arrays absent": [_lacking(row, *counts) for row, counts in results.lacking.items()],
        }
        text = "; ".join(f"{what}: {', '.join(names)}" for what, names in noted.items() if names)
        engine = figure.get_layout_engine()
        if text and isinstance(engine, ConstrainedLayoutEngine):
            inch = 1 / figure.get_figheight()
            strip = 0.17 * inch  # room for one line
            low = strip + _raise_legends(figure, strip)
            low += _raise_label(figure, low)
            engine.set(rect=(0, low, 1, 1 - low))
            figure.text(
                0.99, 0.02 * inch, text, ha="right", va="bottom", fontsize=SMALL, color=MUTED
            )
        return figure

    return drawn


def _lacking(row: str, lost: int, total: int) -> str:
    """A row that is not drawn whole; how many of its runs lack arrays, if some have theirs."""
    return method_label(row) + (f" ({lost} of {total} runs)" if lost < total else "")


def _raise_label(figure: Figure, low: float) -> float:
    """Lift the label that all panels share to a height; the room that it needs, a share.

    The layout engine would put it at the very foot, and makes no room for one that was placed.
    """
    text = figure.get_supxlabel()
    if not text:
        return 0.0
    (size,) = {each.get_fontsize() for each in figure.texts if each.get_text() == text}
    label = figure.supxlabel(text, y=low, fontsize=size)
    return float(1.3 * label.get_window_extent().height / figure.bbox.height)


def _raise_legends(figure: Figure, strip: float) -> float:
    """Lift the legends at the foot of a figure above a strip; the room that they need, a share.

    The layout engine makes room for a legend outside only as long as nobody has placed it.
    """
    if not figure.legends:
        return 0.0
    figure.draw_without_rendering()
    height = figure.bbox.height
    low = [each for each in figure.legends if each.get_window_extent().y1 < height / 2]
    tallest = max((each.get_window_extent().height for each in low), default=0.0)
    for legend in low:
        legend.set_bbox_to_anchor((0, strip, 1, 1 - strip))
    return float(tallest / height)
