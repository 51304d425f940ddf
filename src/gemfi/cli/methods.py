"""`gemfi methods`: the tables of methods, detectors and presets, for the terminal and the docs.

All of it comes from `MethodInfo`, `DetectorInfo` and the presets themselves.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from gemfi.detectors import DETECTORS, DetectorInfo
from gemfi.methods import METHODS, MethodInfo
from gemfi.methods.gem_paper import meaning, presets

_WIDTH = 100
_INDENT = 2 + max(map(len, (*METHODS, *DETECTORS)))
_NEEDS = {
    "logits": "needs logits",
    "features": "needs features",
    "inputs": "needs inputs and a backward pass",
}


def methods() -> None:
    """List methods, detectors and presets with their papers and scores."""
    print("Methods, trained: gemfi train TASK --method NAME\n")
    print("\n\n".join(_method(head.info) for head in METHODS.values()))
    print("\n\nDetectors, on a trained model: gemfi evaluate RUN --detectors NAME ...\n")
    print("\n\n".join(_detector(each.info) for each in DETECTORS.values()))
    print("\n\nPresets of the GEM family: gemfi train TASK --method gem-paper --preset NAME\n")
    print("\n".join(_preset(name, meaning(name)) for name in presets()))


def method_table() -> str:
    """A row a method, in Markdown."""
    header = ("method", "what it is", "aleatoric", "epistemic", "passes", "paper")
    return _markdown(
        header,
        (
            (
                f"`{info.name}`",
                info.summary,
                f"`{info.aleatoric}`",
                f"`{info.epistemic}`",
                str(info.passes),
                _paper(info),
            )
            for info in (head.info for head in METHODS.values())
        ),
    )


def detector_table() -> str:
    """A row a detector, in Markdown."""
    return _markdown(
        ("detector", "what it is", "needs", "paper"),
        (
            (
                f"`{info.name}`",
                info.summary,
                _NEEDS[info.needs].removeprefix("needs "),
                _paper(info),
            )
            for info in (each.info for each in DETECTORS.values())
        ),
    )


def preset_table() -> str:
    """A row a preset, in Markdown."""
    rows = ((f"`{name}`", meaning(name)) for name in presets())
    return _markdown(("preset", "what it is"), rows)


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    lines.insert(1, "|" + "---|" * len(header))
    return "\n".join(lines)


def _paper(info: MethodInfo | DetectorInfo) -> str:
    return f"{info.paper} ({info.venue} {info.year})"


def _method(info: MethodInfo) -> str:
    passes = "one forward pass" if info.passes == 1 else f"{info.passes} forward passes"
    scores = f"aleatoric: {info.aleatoric}; epistemic: {info.epistemic}; {passes}"
    return _block(info.name, info.summary, scores, _paper(info))


def _detector(info: DetectorInfo) -> str:
    return _block(info.name, info.summary, _NEEDS[info.needs], _paper(info))


def _preset(name: str, text: str) -> str:
    return _block(name, text, indent=2 + max(map(len, presets())))


def _block(name: str, *lines: str, indent: int = _INDENT) -> str:
    """A name, and beside it lines that fit a terminal."""
    space = " " * indent
    wrapped = [
        textwrap.fill(
            line, _WIDTH, initial_indent=space, subsequent_indent=space, break_on_hyphens=False
        )
        for line in lines
    ]
    return f"{name:<{indent}}" + "\n".join(wrapped).removeprefix(space)
