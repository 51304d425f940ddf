"""The table of methods, for the terminal and for the docs, from `MethodInfo` alone."""

from __future__ import annotations

from typing import Literal

from gemfi.methods import METHODS

_HEADER = ("method", "what it is", "aleatoric", "epistemic", "passes", "paper")


def render(form: Literal["text", "markdown"]) -> str:
    """Every method in `METHODS`: a row of a table, or three lines that fit a terminal."""
    if form == "text":
        return "\n\n".join(_paragraph(name) for name in METHODS)
    lines = [f"| {' | '.join(row)} |" for row in (_HEADER, *map(_row, METHODS))]
    lines.insert(1, "|" + "---|" * len(_HEADER))
    return "\n".join(lines)


def _paragraph(name: str) -> str:
    info = METHODS[name].info
    passes = "one forward pass" if info.passes == 1 else f"{info.passes} forward passes"
    return (
        f"{info.name:<10}{info.summary}\n"
        f"{'':<10}aleatoric: {info.aleatoric}; epistemic: {info.epistemic}; {passes}\n"
        f"{'':<10}{info.paper} ({info.venue} {info.year})"
    )


def _row(name: str) -> tuple[str, ...]:
    info = METHODS[name].info
    return (
        f"`{info.name}`",
        info.summary,
        f"`{info.aleatoric}`",
        f"`{info.epistemic}`",
        str(info.passes),
        f"{info.paper} ({info.venue} {info.year})",
    )
