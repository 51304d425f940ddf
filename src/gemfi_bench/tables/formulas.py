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
from gemfi_bench.tables.common import NOT_RUN, PAPER_SETTINGS, WORDS, Source, short, worded_table
from gemfi_bench.tabular import Column, Row, Table
from gemfi_bench.unavailable import Unavailable

# -- symbols --------------------------------------------------------------------------------------

SYMBOLS: Final = tuple(map(tuple, WORDS["notation-summary"]["symbols"]))
"""Symbol, meaning, and where it is below `gemfi`."""


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
