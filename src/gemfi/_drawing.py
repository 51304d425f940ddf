"""How every figure looks, and how one is written; only drawing needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemfi._files import require_module, write_atomically
from gemfi.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GREY = "#1f2933", "#5f6b7a", "#9aa5b4"
BLUE, VERMILION, PURPLE = "#0072b2", "#d55e00", "#a3419b"
DPI = 150
_STYLE: dict[str, Any] = {
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # it comes with matplotlib, so a figure looks the same everywhere
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 8.5,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), INK),
    **{f"{axis}tick.color": MUTED for axis in "xy"},
    **{f"{axis}tick.labelcolor": INK for axis in "xy"},
    **{f"{axis}tick.labelsize": 8 for axis in "xy"},
    **{f"{axis}tick.major.width": 0.7 for axis in "xy"},
}


@contextmanager
def styled() -> Iterator[None]:
    """The style of every figure, whatever the user's settings are; also a decorator."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    with mpl.rc_context():
        mpl.rcdefaults()
        settings: Any = mpl.rcParams  # typed by the names of one release
        settings.update(_STYLE)
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
