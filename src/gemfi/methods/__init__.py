"""Every method, one system a file. `METHODS` maps a name to its head; to add one, list it here."""

from __future__ import annotations

from gemfi.errors import InputError
from gemfi.methods.base import Batch, DataFacts, Head, MethodInfo, Progress
from gemfi.methods.edl import EDL, EDLConfig
from gemfi.methods.gem import GEM, GEMFI, GEMCore, GEMMix
from gemfi.methods.gem_config import PAPER_PRESETS, PRESETS, GEMConfig
from gemfi.methods.softmax import Softmax, SoftmaxConfig

METHODS: dict[str, type[Head]] = {
    head.info.name: head for head in (Softmax, EDL, GEMCore, GEMMix, GEMFI)
}


def method(name: str) -> type[Head]:
    """The head of a name, or an error that lists the names."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; known: {', '.join(METHODS)}")
    return METHODS[name]


__all__ = [
    "EDL",
    "GEM",
    "GEMFI",
    "METHODS",
    "PAPER_PRESETS",
    "PRESETS",
    "Batch",
    "DataFacts",
    "EDLConfig",
    "GEMConfig",
    "GEMCore",
    "GEMMix",
    "Head",
    "MethodInfo",
    "Progress",
    "Softmax",
    "SoftmaxConfig",
    "method",
]
