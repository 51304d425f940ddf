"""GEM-CORE, GEM-MIX and GEM-FI: three presets of `gem.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gemfi.methods.base import MethodInfo
from gemfi.methods.gem import GEM, GEMConfig

PAPER: Final = "GEM-FI: Gated Evidential Mixtures with Fisher Modulation"

_FI = GEMConfig()
_MIX = replace(_FI, fi_reg_weight=0.0, fi_mod_strength=0.0)
PRESETS: Final = {"gem-core": replace(_MIX, num_components=1), "gem-mix": _MIX, "gem-fi": _FI}


def _info(name: str, summary: str) -> MethodInfo:
    return MethodInfo(name, name.upper(), summary, PAPER, "ICML", 2026, epistemic="unfamiliarity")


class GEMCore(GEM):
    """GEM-CORE: one head, and an energy that learns from outliers and gates the evidence."""

    info = _info("gem-core", "one Dirichlet head gated by a learned energy, outliers, density")
    default = PRESETS["gem-core"]


class GEMMix(GEM):
    """GEM-MIX: GEM-CORE with K heads and a router."""

    info = _info("gem-mix", "GEM-CORE with K heads and a router")
    default = PRESETS["gem-mix"]


class GEMFI(GEM):
    """GEM-FI: GEM-MIX with Fisher penalty and Fisher modulation."""

    info = _info("gem-fi", "GEM-MIX with Fisher penalty and Fisher modulation")
    default = PRESETS["gem-fi"]
