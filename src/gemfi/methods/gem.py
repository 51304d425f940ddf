"""GEM-FI: K Dirichlet heads, an energy that gates their evidence, a router, Fisher terms, density.

As docs/mathematics.md has it ("The algorithm"), with the paper's symbols:

    v = z/‖z‖            E = energy(v)/T_E        ŝ = σ(E)        s = σ(−E)
    u_k = h_k(z)/T       α_k = s·(exp(clip u_k) + ε)              π = router([v, ŝ])
    p̂ = Σ π_k α_k/α0_k   evidence = ρ·Σ π_k α0_k                  ρ = σ((log p(v) − a)/b)^γ

The energy learns to tell features from outliers, so that s is the probability of being none; after
training s = σ((a − E)/b). Where a backbone says what its stages see, the density is of that, and
not of v. GEM-CORE, GEM-MIX and GEM-FI are in `gem_presets.py`; what the paper's text and its code
do otherwise is in `gem_paper.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gemfi import dirichlet, losses
from gemfi._config import check_choices, check_int, check_number
from gemfi.belief import Belief
from gemfi.density import ClassGaussians, Covariance, DensityScaler
from gemfi.errors import InputError
from gemfi.methods.base import (
    Batch,
    DataFacts,
    FeatureBatches,
    Head,
    Progress,
    gather,
    of_each,
)
from gemfi.methods.gem_modules import Familiarity, Parts, Perceptron, in_space
from gemfi.outliers import OutlierConfig, require_outliers

CLIP = 10.0  # τ
LOG_EPSILON = math.log(1e-8)  # of α
SMOOTHING = 1e-4  # ε' of the modulated weights
HIDDEN = 64  # units of energy and router
ENERGY_TEMPERATURE = 0.2  # T_E at the start: unit-norm features need a steep energy


@dataclass(frozen=True)
class GEMConfig:
    """The choices of GEM; docs/findings.md has the trials of each default.

    Attributes:
        num_components: K, the number of Dirichlet heads.
        kl_weight: λ_KL of Σ π_k KL(Dir(α_k) ‖ Dir(1)).
        fi_reg_weight: λ_FI of the Fisher penalty Σ π_k FI_k.
        fi_mod_strength: λ_FI of the Fisher modulation of the router, in training alone.
        ebm_weight: λ_EBM of softplus(E) on features and of softplus(−E) on outliers. It says how
            much the energy moves the backbone; its own perceptron hardly feels it.
        pi_entropy: weight of −H(π), which keeps the router from using one head.
        dropout: rate inside energy and router.
        feature_space: the heads see features as they are (`raw`), or directions (`unit`).
        rho_floor: the smallest ρ.
        density_space: the density sees what the stages of the backbone say (`layers`), which is
            directions where it says nothing; directions (`unit`); or features as they are (`raw`).
        taps: how many numbers the stages say; `build_model` finds out.
        density_covariance: one for each `class`, or one for all (`tied`).
        density_shrinkage: weight of the tied covariance in each class's.
        outliers: what the energy learns to tell from features.
    """

    num_components: int = 3
    kl_weight: float = 1e-4
    fi_reg_weight: float = 0.1
    fi_mod_strength: float = 0.1
    ebm_weight: float = 0.03
    pi_entropy: float = 0.1
    dropout: float = 0.03
    feature_space: Literal["unit", "raw"] = "raw"
    rho_floor: float = 1e-3
    density_space: Literal["layers", "unit", "raw"] = "layers"
    taps: int = 0
    density_covariance: Covariance = "tied"
    density_shrinkage: float = 0.3
    outliers: OutlierConfig = field(default_factory=OutlierConfig)

    def __post_init__(self) -> None:
        check_int("num_components", self.num_components, 1)
        check_int("taps", self.taps, 0)
        for name in ("kl_weight", "fi_reg_weight", "fi_mod_strength", "ebm_weight", "pi_entropy"):
            check_number(name, getattr(self, name), 0)
        for name in ("dropout", "rho_floor"):
            check_number(name, getattr(self, name), 0, below=1)
        check_choices(self)
        check_number("density_shrinkage", self.density_shrinkage, 0, 1)
        require_outliers(self.outliers)

    @property
    def takes_outliers(self) -> bool:
        """Whether a term on outliers is on."""
        return self.ebm_weight > 0


class GEM(Head):
    """A gated evidential mixture."""

    default = GEMConfig()

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        self._build_modules()
        self.density = ClassGaussians(
            num_classes,
            self.num_taps or num_features,
            covariance=self.config.density_covariance,
            shrinkage=self.config.density_shrinkage,
        )
        self.scaler: DensityScaler | None = DensityScaler(floor=self.config.rho_floor)
        self.familiarity = Familiarity()

    def _build_modules(self) -> None:
        inputs, heads, rate = self.num_features, self.config.num_components, self.config.dropout
        self.heads = Perceptron((inputs, self.num_classes), stack=heads)
        self.energy = Perceptron((inputs, HIDDEN, 1), dropout=rate)
        router = (inputs + 1, HIDDEN, heads)
        self.router = Perceptron(router, dropout=rate) if heads > 1 else None
        start = 0.2 if self.config.feature_space == "unit" else 1.0
        self.log_temperature = nn.Parameter(torch.tensor(math.log(start)))
        self.log_energy_temperature = nn.Parameter(torch.tensor(math.log(ENERGY_TEMPERATURE)))

    def notes(self) -> list[str]:
        """What the configuration leaves out."""
        useless = "no term on outliers: the energy learns nothing of use"
        return [useless] if self.outliers.is_none else []

    def prepare(self, facts: DataFacts) -> None:
        """Forget the calibration of an earlier training: the gate is σ(−E) while it learns."""
        self.familiarity.reset()

    def embed(self, z: Tensor) -> Tensor:
        """Features as the heads see them; outliers are made in this space."""
        return in_space(z, self.config.feature_space)

    def parts(self, z: Tensor) -> Parts:
        """Run every module on features (B, D)."""
        z = self.embed(z[:, : self.num_features])
        v = in_space(z, "unit")
        energy = self.energy(v).squeeze(1) * torch.exp(-self.log_energy_temperature)
        logits = self.heads(z) * torch.exp(-self.log_temperature)
        log_weight = logits.new_zeros(logits.shape[:2])
        if self.router is not None:
            signal = torch.cat([v, torch.sigmoid(energy).unsqueeze(1)], dim=1)
            log_weight = torch.log_softmax(self.router(signal), dim=-1)
        # the gate takes E as a constant: the energy learns from its own term
        log_gate = self.familiarity.of_energy(energy.detach()).unsqueeze(1)
        log_alpha = torch.logaddexp(logits.clamp(-CLIP, CLIP), logits.new_full((), LOG_EPSILON))
        return Parts(energy, log_gate, log_weight, logits, log_alpha + log_gate.unsqueeze(1))

    def forward(self, z: Tensor) -> Belief:
        """Features and taps (B, D + T) to a belief; no Fisher modulation, no gradient."""
        parts = self.parts(z)
        log_p, log_total = dirichlet.log_mean(parts.log_alpha)
        log_density = log_rho = None
        if self.density.fitted and not (self.num_taps and self.training):
            log_density = self.log_density(z)
            log_rho = None if self.scaler is None else self.scaler(log_density)
        return Belief(
            log_p,
            parts.log_weight,
            log_total,
            log_gate=parts.log_gate,
            log_rho=log_rho,
            log_density=log_density,
            log_familiarity=self.familiarity(parts.log_evidence(), parts.energy, log_density),
            energy=parts.energy,
            logits=parts.logits,
        )

    def log_density(self, z: Tensor) -> Tensor:
        """Log p(z) (B,) in the density's feature space."""
        return self.density(self._seen(z))  # type: ignore[no-any-return]

    def _seen(self, z: Tensor) -> Tensor:
        """What the density sees of features and taps (B, D + T)."""
        if self.num_taps:
            if z.shape[1] != self.num_features + self.num_taps:
                raise InputError(
                    f"expected {self.num_features} features and {self.num_taps} taps, as "
                    f"model.embed(x, taps=True) returns them, got {tuple(z.shape)}"
                )
            return z[:, self.num_features :]
        return in_space(z, "raw" if self.config.density_space == "raw" else "unit")

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Terms on the batch, and terms on outliers with the weight that they have by now."""
        z = batch.z if batch.outliers is None else torch.cat([batch.z, batch.outliers])
        parts, count = self.parts(z), len(batch.z)
        terms = self._terms(parts.rows(slice(count)), batch.y)
        if batch.outliers is not None:
            outside = self._outlier_terms(parts.rows(slice(count, None)))
            terms |= {name: batch.outlier_weight * term for name, term in outside.items()}
        return terms

    def _terms(self, inside: Parts, label: Tensor) -> dict[str, Tensor]:
        """−log p̂_y + λ_KL KL + λ_FI Σ π FI + λ_EBM softplus(E) − w H(π)."""
        config, log_weight = self.config, inside.log_weight
        # a mean of its own for each use: shared, the gradient rounds otherwise in its last digit
        seen, _ = dirichlet.log_mean(inside.log_alpha)
        fisher = dirichlet.fisher_proxy(seen, label.unsqueeze(1))  # (B, K)
        if strength := config.fi_mod_strength:
            log_weight = losses.fisher_modulation(log_weight, fisher, strength, SMOOTHING)
        log_p, _ = dirichlet.log_mean(inside.log_alpha)
        terms = {
            "nll": losses.nll(dirichlet.log_mixture(log_p, log_weight), label),
            "kl": config.kl_weight * losses.kl_prior(inside.log_alpha, log_weight),
        }
        if config.fi_reg_weight:
            terms["fisher"] = config.fi_reg_weight * losses.fisher_penalty(log_weight, fisher)
        if config.ebm_weight:
            terms["energy"] = config.ebm_weight * losses.energy_inside(inside.energy)
        if config.pi_entropy and config.num_components > 1:
            terms["router_entropy"] = -config.pi_entropy * losses.mean_entropy(log_weight)
        return terms

    def _outlier_terms(self, outside: Parts) -> dict[str, Tensor]:
        """λ_EBM softplus(−E)."""
        weight = self.config.ebm_weight
        return {"energy_outliers": weight * losses.energy_outside(outside.energy)} if weight else {}

    def fit_statistics(self, train: FeatureBatches, validation: FeatureBatches | None) -> list[str]:
        """Fit the density on training features; ρ, gate and familiarity on validation features."""

        def measured(z: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            parts = self.parts(z)
            energy = z.new_empty(0) if parts.energy is None else parts.energy
            return parts.log_evidence(), energy, self.log_density(z)

        self.density.fit(gather(self.density.statistics(), train, self._seen))
        notes = [*self.density.notes]
        if validation is None:
            notes.append("no validation data: ρ and the energy's range come from training features")
        with torch.no_grad():
            found = list(of_each(train if validation is None else validation, measured))
        evidence, energy, density = map(torch.cat, zip(*found, strict=True))
        if self.scaler is not None:
            self.scaler.fit(density)
        self.familiarity.fit(evidence, energy, density)
        return notes
