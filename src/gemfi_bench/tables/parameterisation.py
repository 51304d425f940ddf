"""How DAEDL and GEM-FI turn logits into a Dirichlet (table1), by what was run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch

from gemfi.density import RhoKind
from gemfi.errors import InputError
from gemfi.methods import DAEDL, GEMConfig, PaperConfig
from gemfi.methods.gem import CLIP
from gemfi.methods.gem_paper import as_paper
from gemfi.runs import RunSpec
from gemfi_bench.grid import ABLATION, FULL, MAIN
from gemfi_bench.results import Results
from gemfi_bench.table import Cell, Column, Row, Table
from gemfi_bench.tables.common import NOT_RUN, Origin, short
from gemfi_bench.unavailable import Unavailable

_RHO: Final[Mapping[RhoKind, str]] = {
    "standardised": "σ((log p(z) − a)/b)",
    "minmax": "(log p(z) − min)/(max − min) in [0, 1]",
    "raw": "σ(log p(z))",
}


@dataclass(frozen=True)
class Form:
    """The formulas of a method.

    Attributes:
        logits: u.
        concentration: α.
        mean: the predictive mean p.
        evidence: what the evidence score looks at.
        heads: how many Dirichlets.
        penalty: the Fisher term of the loss.
        modulation: the Fisher factor of the router's weights.
    """

    logits: str
    concentration: str
    mean: str
    evidence: str
    heads: str
    penalty: str
    modulation: str


_LINES: Final[Mapping[str, Callable[[Form], str]]] = {
    "Heads": lambda form: form.heads,
    "Logits u": lambda form: form.logits,
    "Concentration α": lambda form: form.concentration,
    "Predictive mean p": lambda form: form.mean,
    "Total evidence, as scored": lambda form: form.evidence,
    "FI regularisation": lambda form: form.penalty,
    "FI modulation of the weights": lambda form: form.modulation,
}


def dirichlet(results: Results) -> Table:
    """The formulas of DAEDL, of GEM-FI here, and of GEM-FI with the paper's settings."""
    sources = [
        Origin(name, row, group)
        for name, row, group in (
            ("DAEDL", "daedl", MAIN),
            ("GEM-FI", "gem-fi", MAIN),
            ("GEM-FI (paper's settings)", FULL, ABLATION),
        )
        if row in results.rows(group)
    ]
    forms = [_form(results, source) for source in sources]
    if not any(forms):
        raise Unavailable("neither DAEDL nor GEM-FI has been run")
    rows = []
    for title, text in _LINES.items():
        cells: list[Cell] = [NOT_RUN if form is None else text(form) for form in forms]
        rows.append(Row(title, tuple(cells)))
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


def _form(results: Results, source: Origin) -> Form | None:
    for run in source.runs(results):
        results.use(run)
        try:
            head = RunSpec.from_plain(run.spec).head
        except InputError as error:
            raise Unavailable(f"a record is of another version of the code: {error}") from error
        return gem_form(as_paper(head)) if isinstance(head, GEMConfig) else daedl_form()
    return None


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


def _index(config: PaperConfig) -> str:
    return "kc" if config.num_components > 1 else "c"


def _logits(config: PaperConfig) -> str:
    head = "h_k" if config.num_components > 1 else "h"
    space = "z/‖z‖" if config.feature_space == "unit" else "z"
    start = short(config.start_temperature)
    return f"{head}({space})/T, T learned from {start}"


def _concentration(config: PaperConfig) -> str:
    gate = config.gate if config.core else None
    logit = f"u_{_index(config)}"
    inner = f"s_c·{logit}" if gate == "logit" else logit
    text = f"exp(clip({inner}, ±{CLIP:g}))"
    text += f" + {short(1e-8)}"
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
    power = "" if config.rho == "minmax" else f", to the power of {short(1.2)}"
    return f"ρ(z) · {total}, ρ = {_RHO[config.rho]}{power}, at least {short(config.rho_floor)}"


def _penalty(config: PaperConfig, *, mixture: bool) -> str:
    if not config.fi_reg_weight:
        return "not used"
    weight = short(config.fi_reg_weight)
    return f"{weight} · Σ_k π_k FI_k" if mixture else f"{weight} · FI"
