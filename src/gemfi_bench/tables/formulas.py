"""The paper's symbols, and how DAEDL and GEM-FI turn logits into a Dirichlet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import torch

from gemfi.density import DensityScaler, RhoKind
from gemfi.errors import InputError
from gemfi.methods import DAEDL, GEMConfig, PaperConfig
from gemfi.methods.gem import CLIP, LOG_EPSILON
from gemfi.methods.gem_paper import as_paper
from gemfi.runs import RunSpec
from gemfi_bench.grid import ABLATION, FULL, MAIN
from gemfi_bench.results import Results
from gemfi_bench.tables.common import NOT_RUN, PAPER_SETTINGS, Source, short, worded_table
from gemfi_bench.tabular import Column, Row, Table
from gemfi_bench.unavailable import Unavailable

# -- symbols --------------------------------------------------------------------------------------

_GEM, _PAPER = "methods.gem.GEMConfig", "methods.gem_paper.PaperConfig"
SYMBOLS: Final = (
    ("x, y, C", "input, class label and number of classes", "data.Split, data.Task"),
    ("z = f(x)", "features of the shared backbone", "model.Model.embed"),
    ("u_c, u_c of head k", "logits of one head, or of each, divided by the temperature T",
     "belief.Belief.logits, methods.gem_modules.Parts.logits"),
    ("α_c, α_c of head k", "Dirichlet concentration",
     "methods.gem_modules.Parts.log_alpha, dirichlet.log_concentration"),
    ("p_c, p_c of head k", "predictive mean before the gate", "belief.Belief.log_p"),
    ("α0, α0 of head k", "total concentration; ρ is not part of it",
     "belief.Belief.log_evidence, belief.Belief.log_total_evidence"),
    ("E(z)", "learned energy, high off the support", "belief.Belief.energy"),
    ("s (scalar)", "σ(E), what router and gate see beside z", "methods.gem.GEM.parts"),
    ("s_c", "gate: the paper's for each class, on probabilities; ours σ(−E), on the evidence",
     f"belief.Belief.log_gate, {_PAPER}.gate"),
    ("ρ(z)", "density scaler of the evidence", "belief.Belief.log_rho, density.DensityScaler"),
    ("π_k", "weights of the router", "belief.Belief.log_weight"),
    ("π_k before modulation", "softmax of the router; changed in training only",
     "losses.fisher_modulation"),
    ("p_mix", "mean of the mixture before the gate", "dirichlet.log_mixture"),
    ("p (final)", "predictive distribution, gated and renormalised", "belief.Belief.log_probs"),
    ("FI_k", "Fisher proxy of head k", "dirichlet.fisher_proxy"),
    ("T", "temperature of the heads, which the paper's list omits", f"{_PAPER}.temperature"),
    ("λ_KL", "weight of the KL to the uniform Dirichlet", f"{_GEM}.kl_weight"),
    ("λ_FI", "weight of the Fisher penalty, strength of the modulation",
     f"{_GEM}.fi_reg_weight, {_GEM}.fi_mod_strength"),
    ("λ_EBM, m", "weight of the energy's term, and its margin",
     f"{_GEM}.ebm_weight, {_PAPER}.ebm_margin"),
    ("λ_UNC, β_id, β_ood", "weights of the entropy terms",
     f"{_PAPER}.unc_weight, {_PAPER}.unc_id, {_PAPER}.unc_outlier"),
    ("τ, ε", "clip of the logits, floor of α", "methods.gem.CLIP, methods.gem.LOG_EPSILON"),
)  # fmt: skip
"""Symbol without hats, meaning, and where it is below `gemfi`: those of the paper's list in its
order, then others that the text uses."""


def notation(_results: Results) -> Table:
    """Symbol, meaning and place, the same for every benchmark."""
    rows = [Row(symbol, (meaning, names)) for symbol, meaning, names in SYMBOLS]
    return worded_table("notation-summary", (Column("Meaning"), Column("In gemfi")), rows)


# -- formulas -------------------------------------------------------------------------------------

Form = Mapping[str, str]
"""The formulas of a method by the rows of the table."""

_ROWS: Final = (
    "Heads",
    "Logits u",
    "Concentration α",
    "Predictive mean p",
    "Total evidence, as scored",
    "FI regularisation",
    "FI modulation of the weights",
)
_NOT_USED: Final = "not used"
_RHO: Final[Mapping[RhoKind, str]] = {
    "standardised": "σ((log p(z) − a)/b)",
    "minmax": "(log p(z) − min)/(max − min) in [0, 1]",
    "raw": "σ(log p(z))",
}


def dirichlet(results: Results) -> Table:
    """The formulas of DAEDL, of GEM-FI here, and of GEM-FI with the paper's settings."""
    sources = [
        Source(results, name, row, group)
        for name, row, group in (
            ("DAEDL", "daedl", MAIN),
            ("GEM-FI", "gem-fi", MAIN),
            (PAPER_SETTINGS, FULL, ABLATION),
        )
        if row in results.rows(group)
    ]
    forms = [_form(source) for source in sources]
    if not any(forms):
        raise Unavailable("neither DAEDL nor GEM-FI has been run")
    rows = [
        Row(name, tuple(NOT_RUN if form is None else form[name] for form in forms))
        for name in _ROWS
    ]
    return worded_table("table1", [Column(source.name) for source in sources], rows)


def _form(source: Source) -> Form | None:
    run = source.used_run()
    if run is None:
        return None
    try:
        head = RunSpec.from_plain(run.spec).head
    except InputError as error:
        raise Unavailable(f"a record is of another version of the code: {error}") from error
    return gem_form(as_paper(head)) if isinstance(head, GEMConfig) else daedl_form()


def daedl_form() -> Form:
    """Of DAEDL; its constants are asked of the head itself."""
    floor, ceiling = DAEDL(1, 2).log_alpha(torch.tensor([-1e4, 1e4])).tolist()
    epsilon = short(torch.tensor(floor).exp().item())
    return {
        "Heads": "1",
        "Logits u": f"h(z), at most {ceiling:g}",
        "Concentration α": f"exp(λ(z)·u_c); in training exp(u_c) + {epsilon}",
        "Predictive mean p": "exp(λ(z)·u_c) / Σ_j exp(λ(z)·u_j)",
        "Total evidence, as scored": (
            "Σ_c exp(λ(z)·u_c), with λ(z) = (log q(z) − min)/(max − min) in [0, 1]"
        ),
        "FI regularisation": _NOT_USED,
        "FI modulation of the weights": _NOT_USED,
    }


def gem_form(config: PaperConfig) -> Form:
    """Of a GEM configuration."""
    is_mixture = config.num_components > 1
    head, logit, fisher = ("h_k", "u_kc", "Σ_k π_k FI_k") if is_mixture else ("h", "u_c", "FI")
    mean = "Σ_k π_k α_kc / Σ_j α_kj" if is_mixture else "α_c / Σ_j α_j"
    total = "Σ_k π_k Σ_c α_kc" if is_mixture else "Σ_c α_c"
    space = "z/‖z‖" if config.feature_space == "unit" else "z"
    gate = config.gate if config.core else None
    if gate == "prob":
        bounds = f"[{short(config.gate_low)}, {short(config.gate_high)}]"
        mean = f"∝ s_c · {mean}, s_c in {bounds}"
    inner = f"s_c·{logit}" if gate == "logit" else logit
    alpha = f"exp(clip({inner}, ±{CLIP:g})) + {short(math.exp(LOG_EPSILON))}"
    if gate == "energy":
        alpha = f"s·({alpha}), s = σ((a − E)/b); in training s = σ(−E)"
    weight, strength = short(config.fi_reg_weight), short(config.fi_mod_strength)
    modulation = f"π_k ∝ π_k exp({strength}·(1 − FI_k/Σ_i FI_i)), in training only"
    return {
        "Heads": f"K = {config.num_components}",
        "Logits u": f"{head}({space})/T, T learned from {short(config.start_temperature)}",
        "Concentration α": alpha,
        "Predictive mean p": mean,
        "Total evidence, as scored": _evidence(config, total),
        "FI regularisation": f"{weight} · {fisher}" if config.fi_reg_weight else _NOT_USED,
        "FI modulation of the weights": (
            modulation if config.fi_mod_strength and is_mixture else _NOT_USED
        ),
    }


def _evidence(config: PaperConfig, total: str) -> str:
    if config.rho == "none":
        return total
    power = "" if config.rho == "minmax" else f", to the power of {short(DensityScaler().power)}"
    return f"ρ(z) · {total}, ρ = {_RHO[config.rho]}{power}, at least {short(config.rho_floor)}"
