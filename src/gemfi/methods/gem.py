"""The GEM head: K Dirichlet heads, a learned energy, a per-class gate, a router, a density scaler.

The flow (`docs/mathematics.md`): E = energy(z), ŝ = σ(E), π = router([z, ŝ]), u_k = h_k(z)/T,
α_k = s·(exp(clip u_k) + ε) with the gate s, p̂ = Σ π_k α_k/α0_k. By default s = σ(−E), the
probability of not being an outlier, and after training σ((a − E)/b). The paper's gate([z, ŝ]), one
value a class, is an option.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from gemfi import dirichlet, losses
from gemfi.belief import Belief
from gemfi.density import ClassGaussians, DensityScaler, Statistics
from gemfi.methods import gem_terms
from gemfi.methods.base import Batch, DataFacts, FeatureBatches, Head, MethodInfo, Progress
from gemfi.methods.gem_config import PRESETS, GEMConfig, Space
from gemfi.methods.gem_modules import EnergyReport, Familiarity, Parts, Perceptron, sizes_of, unit
from gemfi.outliers import OutlierConfig
from gemfi.spectral import OFF, Spectral

_ENERGY_TEMPERATURE = 0.2  # at the start: unit-norm features need a steep energy
_PAPER = "GEM-FI: Gated Evidential Mixtures with Fisher Modulation"


class GEM(Head):
    """A gated evidential mixture, steered by a `GEMConfig`; see its presets below."""

    def __init__(
        self, num_features: int, num_classes: int, config: GEMConfig | None = None
    ) -> None:
        super().__init__(num_features, num_classes, config)
        self.config: GEMConfig
        self._build_modules()
        self._build_density()

    def _build_modules(self) -> None:
        config, inputs = self.config, self.num_features
        spectral = Spectral(config.spectral) if config.sn else OFF
        sizes = sizes_of(config.sizes)
        count = config.components
        signal = inputs + 1 if config.has_energy else inputs

        def perceptron(first: int, hidden: tuple[int, ...], last: int, **more: Any) -> Perceptron:
            return Perceptron(
                (first, *hidden, last), spectral=spectral, **{"dropout": config.dropout, **more}
            )

        self.heads = perceptron(inputs, sizes.heads, self.num_classes, stack=count)
        self.energy = (
            perceptron(inputs, sizes.energy, 1, **sizes.energy_options)
            if config.has_energy
            else None
        )
        self.gate = (
            perceptron(signal, sizes.gate, self.num_classes)
            if config.core and config.gate != "energy"
            else None
        )
        self.router = perceptron(signal, sizes.router, count) if count > 1 else None
        log_temperature = torch.tensor(math.log(config.initial_temperature))
        if config.temperature_learned:
            self.log_temperature = nn.Parameter(log_temperature)
        else:
            self.register_buffer("log_temperature", log_temperature)
        if self.energy is not None and config.energy_scaled:
            self.log_energy_temperature = nn.Parameter(torch.tensor(math.log(_ENERGY_TEMPERATURE)))

    def _build_density(self) -> None:
        config = self.config
        self.density: ClassGaussians | None = None
        self.scaler: DensityScaler | None = None
        self.running: Statistics | None = None
        if config.has_density:
            self.density = ClassGaussians(
                self.num_classes,
                self.num_features,
                covariance=config.density_covariance,
                shrinkage=config.density_shrinkage,
            )
            if config.rho_refit > 0:
                self.running = self.density.statistics()
        if config.rho != "none":
            self.scaler = DensityScaler(config.rho, power=config.rho_power, floor=config.rho_floor)
        self.report = EnergyReport(config.energy_source)
        self.familiarity = Familiarity()

    @classmethod
    def default_config(cls) -> GEMConfig:
        """The preset of the method's name."""
        return PRESETS[cls.info.name]

    @property
    def outliers(self) -> OutlierConfig:
        """The outliers of the EBM and UNC terms."""
        return self.config.used_outliers

    @property
    def takes_outliers(self) -> bool:
        """The EBM and UNC terms have an outlier half."""
        return self.config.takes_outliers

    @property
    def named_scores(self) -> dict[str, str]:
        """Epistemic is unfamiliarity where the energy is the gate; the paper has evidence."""
        epistemic = self.info.epistemic if self.config.gate == "energy" else "evidence"
        return {**super().named_scores, "epistemic": epistemic}

    def prepare(self, facts: DataFacts) -> None:
        """Forget the calibration of an earlier training: the gate is σ(−E) while it learns."""
        del facts
        self.familiarity.reset()

    def notes(self) -> list[str]:
        """What the configuration leaves out."""
        return self.config.notes()

    # -- forward --------------------------------------------------------------------------------

    def embed(self, z: Tensor) -> Tensor:
        """Features as the Dirichlet heads see them; outliers are made in this space."""
        return _in_space(z, self.config.feature_space)

    def parts(self, z: Tensor) -> Parts:
        """Run every module on features (B, D)."""
        z = self.embed(z)
        seen = _in_space(z, self.config.energy_space)
        energy, signal = None, seen
        if self.energy is not None:
            given = seen.detach() if self.config.energy_detached else seen
            energy = self._scaled_energy(self.energy(given).squeeze(1))
            signal = torch.cat([seen, torch.sigmoid(energy).unsqueeze(1)], dim=1)
        logits = self.heads(z) * torch.exp(-self.log_temperature)
        if self.router is None:
            log_weight = logits.new_zeros(logits.shape[:2])
        else:
            log_weight = torch.log_softmax(self.router(signal), dim=-1)
        log_gate = self._log_gate(signal, energy)
        return Parts(energy, log_gate, log_weight, logits, self._log_alpha(logits, log_gate))

    def forward(self, z: Tensor) -> Belief:
        """Features (B, D) to a belief; no Fisher modulation, no gradient."""
        parts = self.parts(z)
        log_density = log_rho = None
        if self.density is not None and self.density.fitted:
            log_density = self.log_density(z)
            if self.scaler is not None and self.scaler.fitted:
                log_rho = self.scaler(log_density)
        energy, extra = self.report(parts.energy, log_density, parts.logits, parts.log_weight)
        if parts.log_gate is not None and self.config.gate != "prob":
            extra["log_gate"] = parts.log_gate  # already part of α: kept to be looked at
        return self._belief(
            parts,
            log_rho=log_rho,
            log_density=log_density,
            log_familiarity=self.familiarity(parts.log_evidence(), parts.energy, log_density),
            energy=energy,
            logits=parts.logits,
            extra=extra,
        )

    def log_density(self, z: Tensor) -> Tensor:
        """Log p(z) (B,) in the density's feature space."""
        if self.density is None:
            raise RuntimeError("this configuration has no density")
        log_density: Tensor = self.density(self._density_features(z))
        return log_density

    def _density_features(self, z: Tensor) -> Tensor:
        return _in_space(z, self.config.density_space)

    def _belief(self, parts: Parts, **more: Any) -> Belief:
        log_p, log_total = dirichlet.log_mean(parts.log_alpha)
        gate = parts.log_gate if self.config.gate == "prob" else None
        return Belief(log_p, parts.log_weight, log_total, gate, **more)

    def _scaled_energy(self, energy: Tensor) -> Tensor:
        if self.config.energy_scaled:
            energy = energy * torch.exp(-self.log_energy_temperature)
        if self.config.energy_tanh:
            return torch.tanh(energy if self.training else energy * self.config.energy_desaturate)
        return energy

    def _log_gate(self, signal: Tensor, energy: Tensor | None) -> Tensor | None:
        """Log of the gate, (B, 1) for `energy` and (B, C) for the others."""
        if not self.config.core or energy is None:
            return None
        if self.gate is None:  # the energy learns from its own term, not from what it gates
            return self.familiarity.of_energy(energy.detach()).unsqueeze(1)
        low, high = self.config.gate_low, self.config.gate_high
        opened = torch.sigmoid(self.gate(signal))
        if self.config.gate_bound == "clamp":
            return opened.clamp(low, high).log()
        return torch.log(low + (high - low) * opened)

    def _log_alpha(self, logits: Tensor, log_gate: Tensor | None) -> Tensor:
        log_alpha = self._plus_epsilon(
            self._log_evidence(self._gated_logits(logits, log_gate), log_gate)
        )
        return log_alpha + self._common_scale(log_gate)

    def _common_scale(self, log_gate: Tensor | None) -> Tensor | float:
        """The gate of the energy, on ε too: it never changes p, however small it is."""
        if self.config.gate == "energy" and log_gate is not None:
            return log_gate.unsqueeze(1)
        return 0.0

    def _gated_logits(self, logits: Tensor, log_gate: Tensor | None) -> Tensor:
        if self.config.gate == "logit" and log_gate is not None:
            return logits * log_gate.exp().unsqueeze(1)
        return logits

    def _log_evidence(self, logits: Tensor, log_gate: Tensor | None) -> Tensor:
        """Log of α before ε is added and before a common scale."""
        clipped = logits.clamp(-self.config.clip, self.config.clip)
        if self.config.gate == "evidence" and log_gate is not None:
            return clipped + log_gate.unsqueeze(1)
        return clipped

    def _plus_epsilon(self, log_alpha: Tensor) -> Tensor:
        if self.config.epsilon == 0:
            return log_alpha
        floor = log_alpha.new_tensor(math.log(self.config.epsilon))
        return torch.logaddexp(log_alpha, floor)

    # -- objective ------------------------------------------------------------------------------

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Prediction, KL, Fisher, energy and entropy terms, as the switches say."""
        count = len(batch.z)
        z = batch.z if batch.outliers is None else torch.cat([batch.z, batch.outliers])
        parts = self.parts(z)
        inside = parts.rows(slice(count))
        outside = None if batch.outliers is None else parts.rows(slice(count, None))
        fisher = self._fisher(inside, batch.y)
        if self.config.fi_mod and fisher is not None:
            modulated = losses.fisher_modulation(
                inside.log_weight, fisher, self.config.fi_mod_strength, self.config.fi_smoothing
            )
            inside = inside._replace(log_weight=modulated)
        log_p = self._belief(inside).log_probs()
        return {
            **self._prediction_terms(inside, log_p, batch, at),
            **gem_terms.fisher(self.config, inside, fisher),
            **gem_terms.entropy(self.config, log_p),
            **gem_terms.energy(self.config, inside),
            **gem_terms.router(self.config, inside),
            **self._outlier_terms(outside, batch.outlier_weight),
        }

    def _outlier_terms(self, outside: Parts | None, weight: float) -> dict[str, Tensor]:
        if outside is None:
            return {}
        log_p = self._belief(outside).log_probs() if self.config.unc else None
        terms = gem_terms.on_outliers(self.config, outside, log_p)
        return {name: weight * term for name, term in terms.items()}

    def _prediction_terms(
        self, inside: Parts, log_p: Tensor, batch: Batch, at: Progress
    ) -> dict[str, Tensor]:
        config = self.config
        log_alpha = inside.log_alpha
        if self.running is not None:
            log_alpha = self._scale_in_training(self.running, log_alpha, batch, at)
        if config.squared and config.core_loss == "edl":
            mean, total = dirichlet.log_mean(inside.log_alpha)
            return {
                "squared_error": losses.squared_error(log_p, batch.y),
                "variance": losses.dirichlet_variance(mean, total),
                "kl": config.kl_weight * losses.kl_misleading(log_alpha[:, 0], batch.y),
            }
        kl = config.kl_weight * losses.kl_prior(log_alpha, inside.log_weight)
        if config.squared:
            return {"squared_error": losses.squared_error(log_p, batch.y), "kl": kl}
        return {"nll": losses.nll(log_p, batch.y), "kl": kl}

    def _fisher(self, inside: Parts, label: Tensor) -> Tensor | None:
        """The Fisher proxy of each head (B, K), where a term needs it."""
        config = self.config
        if not (config.fi_reg or config.fi_mod or config.fi_trace):
            return None
        if config.fi_label == "pseudo":
            label = inside.logits.mean(dim=1).argmax(dim=-1)
        log_p, _ = dirichlet.log_mean(inside.log_alpha)
        factor = None
        if config.fi_clip:
            logits = self._gated_logits(inside.logits, inside.log_gate)
            kept = (logits.abs() <= config.clip).to(log_p.dtype)
            log_evidence = self._log_evidence(logits, inside.log_gate)
            log_alpha = inside.log_alpha - self._common_scale(inside.log_gate)
            factor = kept * torch.exp(log_evidence - log_alpha)
        return dirichlet.fisher_proxy(log_p, label.unsqueeze(1), factor)

    # -- density --------------------------------------------------------------------------------

    def _scale_in_training(
        self, running: Statistics, log_alpha: Tensor, batch: Batch, at: Progress
    ) -> Tensor:
        """Gather statistics, refit where due, and scale α for the KL if the configuration says so.

        The scaler's quantiles come from the batch at hand; the final ones from `fit_statistics`.
        """
        z = self._density_features(batch.z.detach())
        running.update(z, batch.y)
        density, scaler = self.density, self.scaler
        if density is None or scaler is None:
            return log_alpha
        if at.crossed(self.config.rho_refit):
            density.fit(running)
            scaler.fit(density(z))
            running.reset()
        if self.config.kl_evidence == "unscaled" or not density.fitted:
            return log_alpha
        log_rho: Tensor = scaler(density(z))
        return self._plus_epsilon(log_alpha + log_rho[:, None, None])

    def fit_statistics(self, train: FeatureBatches, validation: FeatureBatches | None) -> list[str]:
        """Fit the density on training features, ρ and the energy's range on validation features."""
        notes: list[str] = []
        if self.density is not None:
            statistics = self.density.statistics()
            for z, y in train:
                statistics.update(self._density_features(z), y)
            self.density.fit(statistics)
            notes += self.density.notes
        if validation is None:
            notes.append("no validation data: ρ and the energy's range come from training features")
        with torch.no_grad():
            self._fit_ranges(train if validation is None else validation)
        return notes

    def _fit_ranges(self, batches: FeatureBatches) -> None:
        """Batch by batch, keeping a few numbers a sample."""
        densities: list[Tensor] = []
        energies: dict[str, list[Tensor]] = {}
        learned: list[Tensor] = []
        evidence: list[Tensor] = []
        for z, _ in batches:
            parts = self.parts(z)
            log_density = None if self.density is None else self.log_density(z)
            if log_density is not None:
                densities.append(log_density)
            evidence.append(parts.log_evidence())
            if parts.energy is not None:
                learned.append(parts.energy)
            found = self.report.energies(parts.energy, log_density, parts.logits, parts.log_weight)
            for name, energy in found.items():
                energies.setdefault(name, []).append(energy)
        if self.scaler is not None:
            self.scaler.fit(_joined(densities))
        self.familiarity.fit(_joined(evidence), _joined(learned), _joined(densities))
        self.report.fit({name: torch.cat(values) for name, values in energies.items()})


def _joined(batches: list[Tensor]) -> Tensor:
    return torch.cat(batches) if batches else torch.empty(0)


def _in_space(z: Tensor, space: Space) -> Tensor:
    return unit(z) if space == "unit" else z


def _info(name: str, summary: str) -> MethodInfo:
    return MethodInfo(
        name=name,
        label=name.upper(),
        summary=summary,
        paper=_PAPER,
        venue="ICML",
        year=2026,
        epistemic="unfamiliarity",
    )


class GEMCore(GEM):
    """GEM-CORE: one head, and an energy that learns from outliers and gates the evidence."""

    info = _info("gem-core", "one Dirichlet head gated by a learned energy, outliers, density")


class GEMMix(GEM):
    """GEM-MIX: GEM-CORE with K heads and a router."""

    info = _info("gem-mix", "GEM-CORE with K heads and a router")


class GEMFI(GEM):
    """GEM-FI: GEM-MIX with Fisher penalty and Fisher modulation."""

    info = _info("gem-fi", "GEM-MIX with Fisher penalty and Fisher modulation")
