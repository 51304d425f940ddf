"""`gemfi methods`: methods, detectors and presets, from what they say of themselves."""

from __future__ import annotations

import textwrap

from gemfi._text import WIDTH
from gemfi.detectors import DETECTORS, DetectorInfo
from gemfi.methods import METHODS, MethodInfo
from gemfi.methods.gem_paper import meaning, presets

_INDENT = 2 + max(map(len, (*METHODS, *DETECTORS)))
NEEDS = {"logits": "logits", "features": "features", "inputs": "inputs and a backward pass"}


def methods() -> None:
    """List methods, detectors and presets with their papers and scores."""
    print("Methods, trained: gemfi train TASK --method NAME\n")
    for info in (head.info for head in METHODS.values()):
        passes = "one forward pass" if info.passes == 1 else f"{info.passes} forward passes"
        scores = f"aleatoric: {info.aleatoric}; epistemic: {info.epistemic}; {passes}"
        print(_block(info.name, info.summary, scores, paper(info)), end="\n\n")
    print("\nDetectors, on a trained model: gemfi evaluate RUN --detectors NAME ...\n")
    for detector in DETECTORS.values():
        text, needs = detector.info.summary, f"needs {NEEDS[detector.info.needs]}"
        print(_block(detector.info.name, text, needs, paper(detector.info)), end="\n\n")
    print("\nPresets of the GEM family: gemfi train TASK --method gem-paper --preset NAME\n")
    indent = 2 + max(map(len, presets()))
    for name in presets():
        print(_block(name, meaning(name), indent=indent))


def paper(info: MethodInfo | DetectorInfo) -> str:
    """Title, venue and year."""
    return f"{info.paper} ({info.venue} {info.year})"


def _block(name: str, *texts: str, indent: int = _INDENT) -> str:
    """A name, and beside it texts that fit a terminal."""
    room = WIDTH - indent
    lines = [line for text in texts for line in textwrap.wrap(text, room, break_on_hyphens=False)]
    return f"{name:<{indent}}" + f"\n{'':<{indent}}".join(lines)
