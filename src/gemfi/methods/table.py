"""The table of methods, for the terminal and for the docs, from `MethodInfo` alone."""

from __future__ import annotations

from typing import Literal

from gemfi.methods import METHODS

_HEADER = ("method", "what it is", "aleatoric", "epistemic", "passes", "paper")


def render(form: Literal["text", "markdown"]) -> str:
    """Every method in `METHODS`, one a line."""
    rows = [_HEADER, *(_row(name, form) for name in METHODS)]
    if form == "markdown":
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|" + "---|" * len(_HEADER))
        return "\n".join(lines)
    widths = [max(len(row[index]) for row in rows) for index in range(len(_HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "─" * len(max(lines, key=len)))
    return "\n".join(lines)


def _row(name: str, form: str) -> tuple[str, ...]:
    info = METHODS[name].info
    code = (lambda text: f"`{text}`") if form == "markdown" else str
    paper = f"{info.paper} ({info.venue} {info.year})"
    return (
        code(info.name),
        info.summary,
        code(info.aleatoric),
        code(info.epistemic),
        str(info.passes),
        paper,
    )
