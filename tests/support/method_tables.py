"""Methods, detectors and presets as README.md and docs/methods.md list them, to print or test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemfi.cli.methods import NEEDS, paper
from gemfi.detectors import DETECTORS
from gemfi.methods import METHODS
from gemfi.methods.gem_paper import meaning, presets


def method_table() -> str:
    """A row a method, in Markdown."""
    rows = []
    for info in (head.info for head in METHODS.values()):
        scores = (f"`{info.aleatoric}`", f"`{info.epistemic}`")
        rows.append((f"`{info.name}`", info.summary, *scores, str(info.passes), paper(info)))
    return _markdown(("method", "what it is", "aleatoric", "epistemic", "passes", "paper"), rows)


def detector_table() -> str:
    """A row a detector, in Markdown."""
    rows = [
        (f"`{info.name}`", info.summary, NEEDS[info.needs], paper(info))
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
