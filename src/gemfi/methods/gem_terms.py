"""The loss terms of the GEM head beside those of prediction, as functions of its parts.

Each returns named, weighted terms: none where its switch is off.
"""

from __future__ import annotations

from torch import Tensor

from gemfi import dirichlet, losses
from gemfi.methods.gem_config import GEMConfig
from gemfi.methods.gem_modules import Parts

Terms = dict[str, Tensor]


def fisher(config: GEMConfig, inside: Parts, proxy: Tensor | None) -> Terms:
    """FI-Reg and the plain trace, from the Fisher proxy (B, K)."""
    if proxy is None:
        return {}
    terms = {}
    used = proxy.detach() if config.fi_gradient == "router" else proxy
    if config.fi_reg:
        terms["fisher"] = config.fi_reg_weight * losses.fisher_penalty(inside.log_weight, used)
    if config.fi_trace:
        terms["fisher_trace"] = config.fi_trace * used.mean()
    return terms


def entropy(config: GEMConfig, log_p: Tensor) -> Terms:
    """The ID half of UNC."""
    if not (config.unc and config.unc_id):
        return {}
    return {"entropy": config.unc_weight * config.unc_id * losses.mean_entropy(log_p)}


def energy(config: GEMConfig, inside: Parts) -> Terms:
    """The ID half of EBM."""
    if not config.ebm or inside.energy is None:
        return {}
    return {"energy": config.ebm_weight * losses.energy_inside(inside.energy, config.ebm_clip)}


def router(config: GEMConfig, inside: Parts) -> Terms:
    """What keeps the router from using one head alone."""
    if config.components == 1:
        return {}
    terms = {}
    if config.pi_entropy:
        terms["router_entropy"] = -config.pi_entropy * losses.mean_entropy(inside.log_weight)
    if config.pi_balance:
        terms["router_balance"] = -config.pi_balance * losses.usage(inside.log_weight)
    return terms


def on_outliers(config: GEMConfig, outside: Parts, log_p: Tensor | None) -> Terms:
    """The outlier halves of EBM and, where predictions log p̂ are given, of UNC; repulsion."""
    terms = {}
    if config.ebm and outside.energy is not None:
        pushed = losses.energy_outside(outside.energy, config.ebm_margin, config.ebm_clip)
        terms["energy_outliers"] = config.ebm_outlier_weight * pushed
    if log_p is not None and config.unc_outlier:
        spread = losses.mean_entropy(log_p)
        terms["entropy_outliers"] = -config.unc_weight * config.unc_outlier * spread
    if config.repulsion and config.components > 1:
        log_mean, _ = dirichlet.log_mean(outside.log_alpha)
        apart = dirichlet.disagreement(log_mean, outside.log_weight).mean()
        terms["repulsion"] = -config.repulsion * apart
    return terms
