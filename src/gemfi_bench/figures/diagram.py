"""Boxes in rows and columns with straight arrows between them: how the architectures are drawn.

Coordinates are inches of the page, so that text has one size whatever the diagram.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.textpath import TextPath

from gemfi._drawing import INK, MUTED
from gemfi.errors import InputError

Kind = Literal["data", "learned", "fitted", "computed", "training"]

WIDTHS: Final = (0.5, 0.98, 0.4, 1.02, 1.14, 0.8, 1.06)
"""Of the columns."""

_GAP: Final = 0.14  # between columns, where arrows run
_ROW_GAP: Final = 0.15
_MARGIN: Final = 0.03
_PAD: Final = 0.055  # between text and edge
_TITLE: Final = 7.0  # points
_LINE: Final = 6.3
_LEADING: Final = 1.42  # of a line, in its size
_LEAST: Final = 4.5
_INCH: Final = 72.0  # points
_HEAD: Final = 0.26  # above a diagram, for its title
_FOOT: Final = 0.27  # for the key
_SHIFT: Final = 0.03  # between the cards of a stack
_CARDS: Final = 3  # drawn at most

_STYLES: Final[Mapping[Kind, tuple[str, str]]] = {  # face and edge
    "data": ("#eef0f3", MUTED),
    "learned": ("#dcebf7", "#0072b2"),
    "fitted": ("#d9f0e8", "#00855f"),
    "computed": ("#ffffff", MUTED),
    "training": ("#fff6ec", "#d55e00"),
}
_KEY: Final[Mapping[Kind, str]] = {
    "learned": "learned",
    "fitted": "fitted after training",
    "computed": "computed",
    "training": "in training only",
}


@dataclass(frozen=True)
class Box:
    """A box.

    Attributes:
        title: its first line.
        columns: first and last that it covers.
        rows: first and last that it covers; they need not begin at 0.
        lines: below the title.
        kind: what it is, which gives its colour.
        stack: how many of them lie behind each other.
    """

    title: str
    columns: tuple[int, int]
    rows: tuple[int, int]
    lines: tuple[str, ...] = ()
    kind: Kind = "computed"
    stack: int = 1


@dataclass(frozen=True)
class Arrow:
    """A straight arrow.

    Attributes:
        source: key of a box.
        target: key of a box.
        row: along which it runs to the right; None for one that goes up or down.
        label: beside it.
        dashed: whether it exists in training only.
    """

    source: str
    target: str
    row: int | None = None
    label: str = ""
    dashed: bool = False


@dataclass(frozen=True)
class Diagram:
    """Boxes by their keys, and arrows between them."""

    boxes: Mapping[str, Box]
    arrows: Sequence[Arrow]

    def __post_init__(self) -> None:
        for arrow in self.arrows:
            for key in (arrow.source, arrow.target):
                if key not in self.boxes:
                    raise InputError(f"an arrow leads to {key!r}, which is no box")

    def texts(self) -> list[str]:
        """Every line of text."""
        return [text for box in self.boxes.values() for text in (box.title, *box.lines) if text]


@dataclass(frozen=True)
class Frame:
    """A rectangle of the page, in inches from its lower left corner."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def x(self) -> float:
        """Of its middle."""
        return (self.left + self.right) / 2

    @property
    def y(self) -> float:
        """Of its middle."""
        return (self.bottom + self.top) / 2


# -- where everything is --------------------------------------------------------------------------


def page_width() -> float:
    """The width of all columns and what is between them."""
    return sum(WIDTHS) + _GAP * (len(WIDTHS) - 1) + 2 * _MARGIN


def row_heights(diagram: Diagram) -> dict[int, float]:
    """Row -> its height: that of the tallest box that lies in it alone.

    A box that covers several rows makes the last of them taller if it must.
    """
    rows = range(
        min(box.rows[0] for box in diagram.boxes.values()),
        1 + max(box.rows[1] for box in diagram.boxes.values()),
    )
    found = dict.fromkeys(rows, 0.2)
    for box in sorted(diagram.boxes.values(), key=lambda box: box.rows[1] - box.rows[0]):
        first, last = box.rows
        there = sum(found[row] for row in range(first, last + 1)) + _ROW_GAP * (last - first)
        found[last] += max(0.0, _text_height(box) - there)
    return found


def diagram_height(diagram: Diagram) -> float:
    """Of the boxes, in inches."""
    heights = row_heights(diagram)
    return sum(heights.values()) + _ROW_GAP * (len(heights) - 1)


def frames(diagram: Diagram, top: float) -> dict[str, Frame]:
    """Key -> where the box is, on a page whose first row begins at `top`."""
    heights = row_heights(diagram)
    ends = dict(zip(heights, accumulate(h + _ROW_GAP for h in heights.values()), strict=True))
    lefts = [_MARGIN, *(_MARGIN + each for each in accumulate(w + _GAP for w in WIDTHS))]
    return {
        key: Frame(
            left=lefts[box.columns[0]],
            right=lefts[box.columns[1]] + WIDTHS[box.columns[1]],
            top=top - ends[box.rows[0]] + _ROW_GAP + heights[box.rows[0]],
            bottom=top - ends[box.rows[1]] + _ROW_GAP,
        )
        for key, box in diagram.boxes.items()
    }


def _text_height(box: Box) -> float:
    """Of the text and the padding, in inches."""
    points = _LEADING * (_TITLE + _LINE * len(box.lines))
    return points / _INCH + 2 * _PAD


def fitting(text: str, size: float, width: float, *, bold: bool = False) -> float:
    """The size, at most `size`, at which a text is no wider than `width` inches."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    needed = float(TextPath((0, 0), text, size=size, prop=font).get_extents().width) / _INCH
    return max(_LEAST, size * min(1.0, width / needed)) if needed > 0 else size


# -- drawing --------------------------------------------------------------------------------------


def draw_diagrams(diagrams: Mapping[str, Diagram]) -> Figure:
    """Diagrams below each other, with the key of their colours.

    Args:
        diagrams: title -> diagram.
    """
    width = page_width()
    height = _FOOT + sum(_HEAD + diagram_height(each) for each in diagrams.values())
    height += 0.12 * (len(diagrams) - 1)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    top = height
    for index, (title, diagram) in enumerate(diagrams.items()):
        name = f"$\\mathbf{{{chr(ord('a') + index)}}}$"
        axes.text(_MARGIN, top - 0.06, f"{name}  {title}", fontsize=8.5, va="top")
        _draw(axes, diagram, top - _HEAD)
        top -= _HEAD + diagram_height(diagram) + 0.12
    _draw_key(axes, width)
    return figure


def _draw(axes: Axes, diagram: Diagram, top: float) -> None:
    places = frames(diagram, top)
    middles = _row_middles(diagram, top)
    for key, box in diagram.boxes.items():
        _draw_box(axes, box, places[key])
    for arrow in diagram.arrows:
        _draw_arrow(axes, arrow, diagram, places, middles)


def _row_middles(diagram: Diagram, top: float) -> dict[int, float]:
    found, upper = {}, top
    for row, height in row_heights(diagram).items():
        found[row] = upper - height / 2
        upper -= height + _ROW_GAP
    return found


def _draw_box(axes: Axes, box: Box, frame: Frame) -> None:
    face, edge = _STYLES[box.kind]
    for card in range(min(box.stack, _CARDS) - 1, -1, -1):
        axes.add_patch(_card(frame, card * _SHIFT, face, edge, dashed=box.kind == "training"))
    width = frame.right - frame.left - 2 * _PAD
    points = _LEADING * (_TITLE + _LINE * len(box.lines))
    y = frame.y + points / _INCH / 2
    for number, text in enumerate((box.title, *box.lines)):
        size = _TITLE if number == 0 else _LINE
        y -= _LEADING * size / _INCH / 2
        style: dict[str, Any] = {"fontweight": "bold"} if number == 0 else {}
        fitted = fitting(text, size, width, bold=number == 0)
        axes.text(frame.x, y, text, fontsize=fitted, ha="center", va="center", **style)
        y -= _LEADING * size / _INCH / 2


def _card(frame: Frame, shift: float, face: str, edge: str, *, dashed: bool) -> FancyBboxPatch:
    return FancyBboxPatch(
        (frame.left + shift, frame.bottom + shift),
        frame.right - frame.left,
        frame.top - frame.bottom,
        boxstyle="round,pad=0,rounding_size=0.05",
        facecolor=face,
        edgecolor=edge,
        linewidth=0.8,
        linestyle=(0, (3, 2)) if dashed else "-",
        zorder=2,
    )


def _draw_arrow(
    axes: Axes,
    arrow: Arrow,
    diagram: Diagram,
    places: Mapping[str, Frame],
    middles: Mapping[int, float],
) -> None:
    source, target = places[arrow.source], places[arrow.target]
    if arrow.row is not None:
        cards = min(diagram.boxes[arrow.source].stack, _CARDS) - 1
        ends = (
            (source.right + cards * _SHIFT, middles[arrow.row]),
            (target.left, middles[arrow.row]),
        )
    else:
        narrow = min((source, target), key=lambda frame: frame.right - frame.left)
        down = source.y > target.y
        ends = (
            (narrow.x, source.bottom if down else source.top),
            (narrow.x, target.top if down else target.bottom),
        )
    color = _STYLES["training"][1] if arrow.dashed else INK
    axes.add_patch(
        FancyArrowPatch(
            *ends, arrowstyle="-|>,head_length=2.6,head_width=1.5", mutation_scale=1.0,
            shrinkA=0, shrinkB=0, linewidth=0.9, color=color, zorder=3,
            linestyle=(0, (2.5, 1.5)) if arrow.dashed else "-",
        )
    )  # fmt: skip
    if arrow.label:
        x, y = ((a + b) / 2 for a, b in zip(*ends, strict=True))
        axes.text(x + 0.05, y, arrow.label, fontsize=_LINE, va="center", color=color)


def _draw_key(axes: Axes, width: float) -> None:
    step = width / len(_KEY)
    for number, (kind, text) in enumerate(_KEY.items()):
        face, edge = _STYLES[kind]
        left = number * step + 0.2
        frame = Frame(left, 0.05, left + 0.2, 0.17)
        axes.add_patch(_card(frame, 0.0, face, edge, dashed=kind == "training"))
        axes.text(left + 0.27, 0.11, text, fontsize=7, va="center")
