"""`gemfi methods`: the tables of methods, detectors and presets, for the terminal and the docs.

All of it comes from `MethodInfo`, `DetectorInfo` and the presets themselves.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from gemfi._text import WIDTH
from gemfi.detectors import DETECTORS, DetectorInfo
from gemfi.methods import METHODS, MethodInfo
from gemfi.methods.gem_paper import meaning, presets

_INDENT = 2 + max(map(len, (*METHODS, *DETECTORS)))
_NEEDS = {"logits": "logits", "features": "features", "inputs": "inputs and a backward pass"}


def methods() -> None:
    """List methods, detectors and presets with their papers and scores."""
    print("Methods, trained: gemfi train TASK --method NAME\n")
    for info in (head.info for head in METHODS.values()):
        passes = "one forward pass" if info.passes == 1 else f"{info.passes} forward passes"
        scores = f"aleatoric: {info.aleatoric}; epistemic: {info.epistemic}; {passes}"
        print(_block(info.name, info.summary, scores, _paper(info)), end="\n\n")
    print("\nDetectors, on a trained model: gemfi evaluate RUN --detectors NAME ...\n")
    for detector in DETECTORS.values():
        text, needs = detector.info.summary, f"needs {_NEEDS[detector.info.needs]}"
        print(_block(detector.info.name, text, needs, _paper(detector.info)), end="\n\n")
    print("\nPresets of the GEM family: gemfi train TASK --method gem-paper --preset NAME\n")
    indent = 2 + max(map(len, presets()))
    for name in presets():
        print(_block(name, meaning(name), indent=indent))


def method_table() -> str:
    """A row a method, in Markdown."""
    rows = []
    for info in (head.info for head in METHODS.values()):
        scores = (f"`{info.aleatoric}`", f"`{info.epistemic}`")
        rows.append((f"`{info.name}`", info.summary, *scores, str(info.passes), _paper(info)))
    return _markdown(("method", "what it is", "aleatoric", "epistemic", "passes", "paper"), rows)


def detector_table() -> str:
    """A row a detector, in Markdown."""
    rows = [
        (f"`{info.name}`", info.summary, _NEEDS[info.needs], _paper(info))
        for info in (detector.info for detector in DETECTORS.values())
    ]
    return _markdown(("detector", "what it is", "needs", "paper"), rows)


def preset_table() -> str:
    """A row a preset, in Markdown."""
    return _markdown(("preset", "what it is"), [(f"`{name}`", meaning(name)) for name in presets()])


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    lines.insert(1, "|" + "---|" * len(header))
    return "\n".join(lines)


def _paper(info: MethodInfo | DetectorInfo) -> str:
    return f"{info.paper} ({info.venue} {info.year})"


def _block(name: str, *texts: str, indent: int = _INDENT) -> str:
    """A name, and beside it texts that fit a terminal."""
    room = WIDTH - indent
    lines = [line for text in texts for line in textwrap.wrap(text, room, break_on_hyphens=False)]
    return f"{name:<{indent}}" + f"\n{'':<{indent}}".join(lines)
