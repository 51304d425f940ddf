"""The paper's symbols and where they are in the code (notation-summary)."""

from __future__ import annotations

from typing import Final, NamedTuple

from gemfi_bench.results import Results
from gemfi_bench.table import Column, Row, Table


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
        tuple(Row(each.symbol, (each.meaning, ", ".join(each.names))) for each in SYMBOLS),
        "Symbol",
        (
            (
                "The package keeps logarithms: log_alpha, log_p and so on. docs/mathematics.md has "
                "the formulas."
            ),
        ),
    )
