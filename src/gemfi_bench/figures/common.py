"""What figures share: their entry, the runs and sets that they show, and parts of drawings."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from gemfi._drawing import INK, MUTED, styled
from gemfi.metrics import Floats
from gemfi_bench.grid import MAIN
from gemfi_bench.protocol import SEEN
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results
from gemfi_bench.style import SET_COLORS, method_color, method_label
from gemfi_bench.tabular import Value
from gemfi_bench.unavailable import Unavailable

COLUMN, TEXT = 3.3, 6.8
"""Widths of a column of the paper and of its text, in inches."""

SMALL: Final = 7.0
"""Size of the text inside small panels, in points."""

ID: Final = "ID test"
NEAR: Final = "near OOD"
FAR: Final = "far OOD"
OTHER: Final = "other OOD"
GROUP_COLORS: Final = SET_COLORS | {OTHER: "#0f8a7e"}

OURS: Final = "gem-fi"
FAMILY: Final = ("gem-core", "gem-mix", "gem-fi")
METHODS: Final = ("softmax", "ensemble", "edl", "daedl", "re-edl", *FAMILY)
"""Those that a figure of all methods shows first: more than eight lines cannot be told apart."""

LEAST: Final = 1e-12
"""What a logarithmic axis shows of a score of 0."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FigureEntry:
    """A figure of the paper.

    Attributes:
        title: a few words.
        caption: what is shown, of which runs, under which conventions.
        adapter: draws it from the results of a bench; raises `Unavailable` where they lack
            something.
        sets: whether it shows OOD sets.
    """

    title: str
    caption: str
    adapter: Callable[[Results], Figure]
    sets: bool = True

    def full_caption(self, results: Results) -> str:
        """The caption, with the caveats of the OOD sets that the figure shows."""
        caveats = results.caveats(results.ood_sets) if self.sets else []
        return " ".join([self.caption, *caveats])

    def draw(self, results: Results) -> Figure:
        """Draw the figure; its foot names sets and arrays that are absent, and sets seen before."""
        with styled():
            figure = self.adapter(results)
            shown = results.ood_sets if self.sets else []
            notes = {
                "data absent": [results.title(name) for name in shown if results.is_absent(name)],
                SEEN: [results.title(name) for name in shown if name in results.protocol.seen],
                "arrays absent": [
                    method_label(row) + (f" ({lost} of {total} runs)" if lost < total else "")
                    for row, (lost, total) in results.lacking.items()
                ],
            }
            note = "; ".join(
                f"{what}: {', '.join(names)}" for what, names in notes.items() if names
            )
            if note:
                _add_note(figure, note)
        return figure


# -- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MethodRuns:
    """A row of the main tables, and those of its runs whose arrays are here: at least one."""

    row: str
    method: str
    runs: tuple[RunRecord, ...]

    @property
    def first(self) -> RunRecord:
        """The run that is drawn where only one can be."""
        return self.runs[0]

    @property
    def label(self) -> str:
        """The name for a legend."""
        return method_label(self.row)

    @property
    def color(self) -> str:
        """The colour of the method."""
        return method_color(self.method)

    @property
    def is_ours(self) -> bool:
        """Whether it is GEM-FI, which is drawn on top."""
        return self.method == OURS


def shown_rows(results: Results, methods: Sequence[str] = METHODS) -> list[MethodRuns]:
    """The first row of each of these methods that has runs with arrays; `Unavailable` if none."""
    rows: dict[str, MethodRuns] = {}
    for row in results.rows(MAIN):
        method = results.method(row)
        if method in methods and method not in rows and (runs := results.runs_with_arrays(row)):
            rows[method] = MethodRuns(row, method, tuple(runs))
    if not rows:
        names = ", ".join(map(method_label, methods))
        raise Unavailable(f"no run of {names} is here with its arrays")
    return [rows[method] for method in methods if method in rows]


def leading_rows(results: Results, count: int = len(METHODS)) -> list[MethodRuns]:
    """The rows of `METHODS`, and before them others of the bench, `count` in all at most."""
    names = dict.fromkeys([*METHODS, *map(results.method, results.rows(MAIN))])
    rows = shown_rows(results, list(names))[:count]
    return sorted(rows, key=lambda row: row.method in METHODS)


def shown_row(results: Results, method: str = OURS) -> MethodRuns:
    """The row of one method; `Unavailable` if it has no runs with arrays."""
    return shown_rows(results, [method])[0]


# -- sets -----------------------------------------------------------------------------------------


def ood_groups(results: Results) -> dict[str, list[str]]:
    """`near OOD`, `far OOD` and `other OOD` -> the sets that are at hand; no group is empty."""
    near, far = results.protocol.near, results.protocol.far
    groups: dict[str, list[str]] = {NEAR: [], FAR: [], OTHER: []}
    for name in results.ood_sets:
        if not results.is_absent(name):
            groups[NEAR if name in near else FAR if name in far else OTHER].append(name)
    if not any(groups.values()):
        raise Unavailable("no OOD set was at hand in any run")
    return {group: names for group, names in groups.items() if names}


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
    """An array of a run, such as `score/entropy`, over several sets; None if a set lacks it."""
    sets = results.arrays(run)
    if any(key not in sets.get(name, {}) for name in names):
        return None
    return np.concatenate([sets[name][key] for name in names]).astype(np.float64)


def needed(results: Results, run: RunRecord, names: Sequence[str], key: str) -> Floats:
    """As `pooled`, but `Unavailable` if a set lacks the array."""
    values = pooled(results, run, names, key)
    if values is None:
        raise Unavailable(f"run {run.key} has not kept {key} of {', '.join(names)}")
    return values


# -- texts and numbers ----------------------------------------------------------------------------


def panel_title(axes: Axes, index: int, text: str = "", width: int = 24, pad: float = 4.0) -> None:
    """The letter of a panel in bold (0 is `a`), and its title in lines of at most `width`."""
    lines = "\n".join(textwrap.wrap(text, width))
    style: dict[str, Any] = {"loc": "left", "fontsize": 8.5, "fontweight": "normal", "pad": pad}
    axes.set_title(f"$\\mathbf{{{chr(ord('a') + index)}}}$  {lines}", color=INK, **style)


def in_lines(label: str) -> str:
    """A label of two words in two lines, for a short axis."""
    return label.replace(" ", "\n") if label.count(" ") == 1 else label


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± deviation of a number over seeds, as the tables have it."""
    value = Value.of(values)
    mean = f"{value.mean:.{digits}f}"
    return mean if value.std is None else f"{mean} ± {value.std:.{digits}f}"


def power_text(value: float) -> str:
    """A number of a logarithmic axis: plain where it is short, else a power of ten."""
    if value <= 0:
        return ""
    if 1e-3 <= value < 1e4:
        return f"{value:g}"
    exponent = int(np.floor(np.log10(value) + 1e-9))
    factor = value / 10.0**exponent
    front = "" if round(factor) == 1 else f"{factor:.0f}·"
    return f"{front}$10^{{{exponent}}}$"


def even_choice(count: int, most: int) -> Ints:
    """Indices of at most `most` of `count` inputs, evenly spaced: the same at every call."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


# -- axes and legends -----------------------------------------------------------------------------


def quantile_limits(
    values: Sequence[Floats], share: float = 0.005, margin: float = 0.03, *, log: bool = False
) -> tuple[float, float]:
    """Ends of an axis that leaves out at most `share` of each set at either end, and ±inf.

    Args:
        values: of each set.
        share: of a set.
        margin: added at each end, in parts of the length.
        log: for a logarithmic axis, of values from 0 on.
    """
    scaled = [np.log10(np.maximum(part, LEAST)) if log else part for part in values]
    finite = [part[np.isfinite(part)] for part in scaled]
    ends = [np.quantile(part, [share, 1 - share]) for part in finite if len(part)]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    room = max(margin * (high - low), 1e-3)
    limits = float(low - room), float(high + room)
    return (10 ** limits[0], 10 ** limits[1]) if log else limits


def log_axis(
    axes: Axes, which: Literal["x", "y"], limits: tuple[float, float], ticks: int = 5
) -> None:
    """A logarithmic axis with plain numbers, at most `ticks` of them for a small panel."""
    getattr(axes, f"set_{which}scale")("log")
    axis, length = getattr(axes, f"{which}axis"), limits[1] / limits[0]
    if length < 8:  # less than a power of ten: even steps
        axis.set_major_locator(MaxNLocator(max(1, ticks - 3)))
    else:  # powers of ten, and 3 between them where there are few
        axis.set_major_locator(LogLocator(subs=(1, 3) if length < 100 else (1,), numticks=ticks))
    axis.set_major_formatter(lambda value, _: power_text(value))
    axis.set_minor_locator(NullLocator())


@dataclass(frozen=True, eq=False)
class Shown:
    """What a figure shows of a method; subclasses add the numbers.

    Attributes:
        label: the name of the method.
        color: of its line.
        on_top: draw it thicker and last.
        dashed: not of the same kind as the others.
    """

    label: str
    color: str
    _: KW_ONLY
    on_top: bool = False
    dashed: bool = False

    def style(self, width: float = 1.0) -> dict[str, Any]:
        """Colour, width (where it is not on top) and dashes of its line."""
        return {
            "color": self.color,
            "linewidth": 1.8 if self.on_top else width,
            "linestyle": "--" if self.dashed else "-",
        }


def line_handles(methods: Iterable[Shown], **style: Any) -> list[Line2D]:
    """Each method of all panels once, for a legend."""
    by_label = {method.label: method for method in methods}
    return [
        Line2D([], [], label=label, **method.style(1.2), **style)
        for label, method in by_label.items()
    ]


def point_handle(label: str, color: Any, marker: str = "o", **style: Any) -> Line2D:
    """A point in a legend; `style` may give it a line too."""
    look: dict[str, Any] = {"markersize": 4, "linestyle": ""} | style
    return Line2D([], [], marker=marker, color=color, label=label, **look)


def name_ticks(axis: Any, methods: Sequence[Shown], names: Sequence[str] = ()) -> None:
    """Methods as the ticks 0, 1, ... of an axis, in bold and in their colours."""
    axis.set_ticks(range(len(methods)), names or [method.label for method in methods])
    for tick, method in zip(axis.get_ticklabels(), methods, strict=True):
        tick.set(color=method.color, fontweight="bold")
    axis.set_tick_params(length=0)


def _add_note(figure: Figure, note: str) -> None:
    """Write a line at the very foot, below legends and the label that all panels share.

    The layout engine puts those at the foot itself, and makes no room for what was placed by hand:
    so they are placed by hand, and the panels get what is left.
    """
    engine = figure.get_layout_engine()
    if not isinstance(engine, ConstrainedLayoutEngine):
        return
    inch = 1 / figure.get_figheight()
    low = strip = 0.17 * inch  # room for one line
    figure.draw_without_rendering()
    height = figure.bbox.height
    legends = [item for item in figure.legends if item.get_window_extent().y1 < height / 2]
    for legend in legends:
        legend.set_bbox_to_anchor((0, strip, 1, 1 - strip))
    low += max((legend.get_window_extent().height / height for legend in legends), default=0.0)
    if text := figure.get_supxlabel():
        (size,) = {item.get_fontsize() for item in figure.texts if item.get_text() == text}
        label = figure.supxlabel(text, y=low, fontsize=size)
        low += 1.3 * label.get_window_extent().height / height
    engine.set(rect=(0, low, 1, 1 - low))
    figure.text(0.99, 0.02 * inch, note, ha="right", va="bottom", fontsize=SMALL, color=MUTED)
