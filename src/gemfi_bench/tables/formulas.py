"""The paper's symbols, and how DAEDL and GEM-FI turn logits into a Dirichlet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

from gemfi.density import DensityScaler, RhoKind
from gemfi.errors import InputError
from gemfi.methods import DAEDL, GEMConfig, PaperConfig
from gemfi.methods.gem import CLIP, LOG_EPSILON
from gemfi.methods.gem_paper import as_paper
from gemfi.runs import RunSpec
from gemfi_bench.grid import ABLATION, FULL, MAIN
from gemfi_bench.results import Results
from gemfi_bench.tables.common import NOT_RUN, PAPER_SETTINGS, Source, short
from gemfi_bench.tabular import Column, Row, Table
from gemfi_bench.unavailable import Unavailable

# -- symbols --------------------------------------------------------------------------------------


class Symbol(NamedTuple):
    """A symbol, what it means, and what in the package it is.

    Attributes:
        symbol: as the paper writes it, without the hats.
        meaning: in words.
        names: dotted, below `gemfi`; the first is the main one.
    """

    symbol: str
    meaning: str
    names: tuple[str, ...]


SYMBOLS: Final = (
    Symbol("x, y, C", "input, class label and number of classes", ("data.Split", "data.Task")),
    Symbol("z = f(x)", "features of the shared backbone", ("model.Model.embed",)),
    Symbol(
        "u_c, u_c of head k",
        "logits of one head, or of each, divided by the temperature T",
        ("belief.Belief.logits", "methods.gem_modules.Parts.logits"),
    ),
    Symbol(
        "α_c, α_c of head k",
        "Dirichlet concentration",
        ("methods.gem_modules.Parts.log_alpha", "dirichlet.log_concentration"),
    ),
    Symbol("p_c, p_c of head k", "predictive mean before the gate", ("belief.Belief.log_p",)),
    Symbol(
        "α0, α0 of head k",
        "total concentration; ρ is not part of it",
        ("belief.Belief.log_evidence", "belief.Belief.log_total_evidence"),
    ),
    Symbol("E(z)", "learned energy, high off the support", ("belief.Belief.energy",)),
    Symbol("s (scalar)", "σ(E), what router and gate see beside z", ("methods.gem.GEM.parts",)),
    Symbol(
        "s_c",
        "gate: the paper's for each class, on probabilities; ours σ(−E), on the evidence",
        ("belief.Belief.log_gate", "methods.gem_paper.PaperConfig.gate"),
    ),
    Symbol(
        "ρ(z)", "density scaler of the evidence", ("belief.Belief.log_rho", "density.DensityScaler")
    ),
    Symbol("π_k", "weights of the router", ("belief.Belief.log_weight",)),
    Symbol(
        "π_k before modulation",
        "softmax of the router; changed in training only",
        ("losses.fisher_modulation",),
    ),
    Symbol("p_mix", "mean of the mixture before the gate", ("dirichlet.log_mixture",)),
    Symbol(
        "p (final)", "predictive distribution, gated and renormalised", ("belief.Belief.log_probs",)
    ),
    Symbol("FI_k", "Fisher proxy of head k", ("dirichlet.fisher_proxy",)),
    Symbol(
        "T",
        "temperature of the heads, which the paper's list omits",
        ("methods.gem_paper.PaperConfig.temperature",),
    ),
    Symbol(
        "λ_KL",
        "weight of the KL to the uniform Dirichlet",
        ("methods.gem.GEMConfig.kl_weight",),
    ),
    Symbol(
        "λ_FI",
        "weight of the Fisher penalty, strength of the modulation",
        (
            "methods.gem.GEMConfig.fi_reg_weight",
            "methods.gem.GEMConfig.fi_mod_strength",
        ),
    ),
    Symbol(
        "λ_EBM, m",
        "weight of the energy's term, and its margin",
        ("methods.gem.GEMConfig.ebm_weight", "methods.gem_paper.PaperConfig.ebm_margin"),
    ),
    Symbol(
        "λ_UNC, β_id, β_ood",
        "weights of the entropy terms",
        (
            "methods.gem_paper.PaperConfig.unc_weight",
            "methods.gem_paper.PaperConfig.unc_id",
            "methods.gem_paper.PaperConfig.unc_outlier",
        ),
    ),
    Symbol(
        "τ, ε",
        "clip of the logits, floor of α",
        ("methods.gem.CLIP", "methods.gem.LOG_EPSILON"),
    ),
)
"""Those of the paper's list in its order, then others that the text uses."""


def notation(results: Results) -> Table:
    """Symbol, meaning and place."""
    del results  # the same for every benchmark
    return Table(
        "notation-summary",
        "Notation, and where it is in the code",
        (Column("Meaning"), Column("In gemfi")),
        tuple(Row(symbol.symbol, (symbol.meaning, ", ".join(symbol.names))) for symbol in SYMBOLS),
        "Symbol",
        (
            (
                "The package keeps logarithms: log_alpha, log_p and so on. docs/mathematics.md has "
                "the formulas."
            ),
        ),
    )


# -- formulas -------------------------------------------------------------------------------------

_RHO: Final[Mapping[RhoKind, str]] = {
    "standardised": "σ((log p(z) − a)/b)",
    "minmax": "(log p(z) − min)/(max − min) in [0, 1]",
    "raw": "σ(log p(z))",
}


@dataclass(frozen=True)
class Form:
    """The formulas of a method, a row each."""

    heads: str
    logits: str
    concentration: str
    mean: str
    evidence: str
    penalty: str
    modulation: str


_FORM_ROWS: Final = {
    "heads": "Heads",
    "logits": "Logits u",
    "concentration": "Concentration α",
    "mean": "Predictive mean p",
    "evidence": "Total evidence, as scored",
    "penalty": "FI regularisation",
    "modulation": "FI modulation of the weights",
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
        Row(title, tuple(NOT_RUN if form is None else getattr(form, name) for form in forms))
        for name, title in _FORM_ROWS.items()
    ]
    notes = (
        (
            "Written from the configuration of the runs. h are the layers of a head, z the "
            "features, E the learned energy, π the router's weights, FI the Fisher proxy, j runs "
            "over classes."
        ),
        (
            "a and b come from ID validation data after training: σ is 1/2 at the lowest twentieth "
            "and 0.9 at the median."
        ),
        (
            "The evidence score is minus the log of the total. By default GEM-FI is judged by "
            "unfamiliarity, which joins evidence, energy and density."
        ),
        "The paper's table leaves the gate out of p, and its text has α with ρ and without.",
    )
    columns = tuple(Column(source.name) for source in sources)
    title = "Dirichlet parameterisation of DAEDL and GEM-FI"
    return Table("table1", title, columns, tuple(rows), "", notes)


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
    return Form(
        logits=f"h(z), at most {ceiling:g}",
        concentration=f"exp(λ(z)·u_c); in training exp(u_c) + {epsilon}",
        mean="exp(λ(z)·u_c) / Σ_j exp(λ(z)·u_j)",
        evidence="Σ_c exp(λ(z)·u_c), with λ(z) = (log q(z) − min)/(max − min) in [0, 1]",
        heads="1",
        penalty="not used",
        modulation="not used",
    )


def gem_form(config: PaperConfig) -> Form:
    """Of a GEM configuration."""
    mixture = config.num_components > 1
    return Form(
        logits=_logits(config),
        concentration=_concentration(config),
        mean=_mean(config),
        evidence=_evidence(config),
        heads=f"K = {config.num_components}",
        penalty=_penalty(config, mixture=mixture),
        modulation=(
            f"π_k ∝ π_k exp({short(config.fi_mod_strength)}·(1 − FI_k/Σ_i FI_i)), in training only"
            if config.fi_mod_strength and mixture
            else "not used"
        ),
    )


def _logits(config: PaperConfig) -> str:
    head = "h_k" if config.num_components > 1 else "h"
    space = "z/‖z‖" if config.feature_space == "unit" else "z"
    start = short(config.start_temperature)
    return f"{head}({space})/T, T learned from {start}"


def _concentration(config: PaperConfig) -> str:
    gate = config.gate if config.core else None
    logit = "u_kc" if config.num_components > 1 else "u_c"
    inner = f"s_c·{logit}" if gate == "logit" else logit
    text = f"exp(clip({inner}, ±{CLIP:g}))"
    text += f" + {short(math.exp(LOG_EPSILON))}"
    if gate == "energy":
        return f"s·({text}), s = σ((a − E)/b); in training s = σ(−E)"
    return text


def _mean(config: PaperConfig) -> str:
    text = "Σ_k π_k α_kc / Σ_j α_kj" if config.num_components > 1 else "α_c / Σ_j α_j"
    if config.core and config.gate == "prob":
        bounds = f"[{short(config.gate_low)}, {short(config.gate_high)}]"
        return f"∝ s_c · {text}, s_c in {bounds}"
    return text


def _evidence(config: PaperConfig) -> str:
    total = "Σ_k π_k Σ_c α_kc" if config.num_components > 1 else "Σ_c α_c"
    if config.rho == "none":
        return total
    power = "" if config.rho == "minmax" else f", to the power of {short(DensityScaler().power)}"
    return f"ρ(z) · {total}, ρ = {_RHO[config.rho]}{power}, at least {short(config.rho_floor)}"


def _penalty(config: PaperConfig, *, mixture: bool) -> str:
    if not config.fi_reg_weight:
        return "not used"
    weight = short(config.fi_reg_weight)
    return f"{weight} · Σ_k π_k FI_k" if mixture else f"{weight} · FI"
