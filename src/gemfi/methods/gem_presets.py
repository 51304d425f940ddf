"""Named GEM configurations beyond the three methods: the ablation's rows, and related work.

`gemfi train TASK --method gem-fi --preset NAME` trains one; the tables of the paper need them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemfi.errors import InputError
from gemfi.methods.gem_config import PAPER_PRESETS, GEMConfig

SWITCHES = ("sn", "core", "mix", "fi_reg", "fi_mod", "ebm", "unc")
"""The columns of the paper's ablation."""

_ROWS: Mapping[str, str] = {  # in the order of the paper's table; 1 is on
    "ablation-none": "0000000",
    "ablation-sn": "1000000",
    "ablation-core": "1100000",
    "ablation-mix": "1110000",
    "ablation-fi-reg": "1111000",
    "ablation-fi-mod": "1110100",
    "ablation-fi": "1111100",
    "ablation-ebm": "1111110",
    "ablation-full": "1111111",
    "ablation-full-without-sn": "0111111",
}


_RELATED: Mapping[str, tuple[str, str]] = {
    "dirichlet-mixture": (
        "0010000",
        (
            "K Dirichlet heads and a router without energy or gate; stands for the mixture of "
            "Dirichlets of related work (2024), of which no code was published"
        ),
    ),
    "gated-dirichlet": (
        "0100000",
        (
            "one Dirichlet head with the energy's gate and nothing else; stands for the gated EDL "
            "of related work (2024), of which neither code nor paper was found"
        ),
    ),
}


@dataclass(frozen=True)
class Preset:
    """A named configuration.

    Attributes:
        config: the configuration.
        stands_for: what it is, in a line.
    """

    config: GEMConfig
    stands_for: str


def presets(config: GEMConfig = PAPER_PRESETS["gem-fi"]) -> dict[str, Preset]:
    """Every named configuration: the ten rows of the ablation, then related work.

    Args:
        config: everything that is no switch; the paper's by default.
    """
    found = {}
    for number, (name, row) in enumerate(_ROWS.items(), start=1):
        switched = _switched(config, row)
        text = f"row {number} of the paper's ablation: {_switches(switched)}"
        found[name] = Preset(switched, text)
    for name, (row, text) in _RELATED.items():
        found[name] = Preset(_switched(config, row), text)
    return found


def ablation(config: GEMConfig = PAPER_PRESETS["gem-fi"]) -> dict[str, GEMConfig]:
    """The ten rows of the paper's ablation by name."""
    return {name: each.config for name, each in presets(config).items() if name in _ROWS}


def preset(name: str, config: GEMConfig = PAPER_PRESETS["gem-fi"]) -> GEMConfig:
    """The configuration of a name, or an error that lists the names."""
    known = presets(config)
    if name not in known:
        raise InputError(f"unknown preset {name!r}; known: {', '.join(known)}")
    return known[name].config


def _switched(config: GEMConfig, row: str) -> GEMConfig:
    switches: dict[str, Any] = {switch: on == "1" for switch, on in zip(SWITCHES, row, strict=True)}
    return replace(config, **switches)


def _switches(config: GEMConfig) -> str:
    on = [switch.upper().replace("_", "-") for switch in SWITCHES if getattr(config, switch)]
    return " + ".join(on) or "every switch off"
