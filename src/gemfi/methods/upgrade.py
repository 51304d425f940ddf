"""Configurations of GEM as files from before the rebuilt house hold them, in today's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from gemfi._config import to_plain
from gemfi.errors import InputError
from gemfi.methods.gem import GEMConfig
from gemfi.methods.gem_paper import OURS

_GONE: Final[Mapping[str, Any]] = {  # field -> the one value that is still what GEM does
    "energy_space": "unit",
    "temperature_learned": True,
    "clip": 10.0,
    "epsilon": 1e-8,
    "energy_detached": False,
    "energy_tanh": False,
    "energy_source": "learned",
    "fi_smoothing": 1e-4,
    "pi_balance": 0.0,
    "repulsion": 0.0,
    "rho_power": 1.2,
    "rho_refit": 0.0,
}
_IGNORED: Final = ("energy_desaturate", "kl_evidence")  # of the options above
_SWITCHED: Final = {  # switch -> the weights that are 0 where it is off
    "fi_reg": ("fi_reg_weight",),
    "fi_mod": ("fi_mod_strength",),
    "ebm": ("ebm_weight",),
    "unc": ("unc_weight",),
}
_ABSENT: Final = ("unc_id", "unc_outlier", "gate_low", "gate_high", "gate_bound", "spectral")
"""Settings of parts that ours does not have."""
BUFFERS: Final = ("report.choice", "report.low", "report.high")
"""Tensors of such heads that are gone."""


def upgraded(method: str, config: Any) -> tuple[str, Any]:
    """Name of the method and its JSON configuration, of any age, as they are today.

    A configuration that is not ours, whatever its method was called, is one of `gem-paper`.
    """
    if not method.startswith("gem-") or not isinstance(config, Mapping) or "mix" not in config:
        return method, config
    missing = {*_SWITCHED, "ebm_weight"} - config.keys()
    if missing:
        raise InputError(f"the configuration of {method} lacks {', '.join(sorted(missing))}")
    new = {name: value for name, value in config.items() if name not in _IGNORED}
    for name, value in _GONE.items():
        if new.pop(name, value) != value:
            raise InputError(
                f"the configuration of {method} sets {name}, which this version does not have; it "
                "has to be trained again"
            )
    if not new.pop("mix"):
        new["num_components"] = 1
    for switch, weights in _SWITCHED.items():
        if not new.pop(switch):
            new |= dict.fromkeys(weights, 0.0)
    ours = {field.name for field in fields(GEMConfig)}
    readings = to_plain(OURS) | {"unc_weight": 0.0, "ebm_outlier_weight": new["ebm_weight"]}
    other = new.keys() - {*ours, *_ABSENT}
    if all(name in readings and new[name] == readings[name] for name in other):
        return method, {name: value for name, value in new.items() if name in ours}
    return "gem-paper", new
