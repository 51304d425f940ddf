"""GEMConfig: every choice of the GEM family, our presets and the paper's.

The seven switches are those of the paper's ablation. Where the paper contradicts itself or its
code, or a trial spoke against it, `docs/mathematics.md` lists the default and the options.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from gemfi._config import check_choice, check_int, check_number
from gemfi.density import Covariance, RhoKind
from gemfi.errors import InputError
from gemfi.outliers import NONE, VOS, OutlierConfig, require_outliers

Space = Literal["unit", "raw"]
GateMode = Literal["energy", "prob", "logit", "evidence"]
EnergySource = Literal["learned", "gmm", "logits", "auto"]


@dataclass(frozen=True)
class GEMConfig:
    """The GEM family in one record.

    Attributes:
        sn: switch SN, spectral normalisation of the head's modules (and, through
            `build_model`, of a backbone given by name).
        core: switch CORE, the energy and the gate.
        mix: switch MIX, K heads and a router; off means one head.
        fi_reg: switch FI-Reg, the Fisher penalty.
        fi_mod: switch FI-Mod, Fisher modulation of the router in training.
        ebm: switch EBM, the energy terms.
        unc: switch UNC, the entropy terms.
        num_components: K.
        sizes: module sizes: `linear` heads (energy D-64-1, gate and router D+1-64-·), `paper`
            (the same with heads D-128-C; they match the paper's parameter counts) or `released`
            (the much larger ones of its code).
        dropout: rate inside the head's modules.
        spectral: `soft` or `hard` normalisation, to norm 1.
        feature_space: heads see `unit`-norm or `raw` features.
        energy_space: energy, gate and router see `unit`-norm features, or those of the heads
            (`raw`).
        temperature: initial T of u = h(z)/T; None means 0.2 for unit-norm features, 1 for raw.
        temperature_learned: whether log T is a parameter (without weight decay).
        clip: τ, logits are clipped to ±τ before the exponential.
        epsilon: ε of α = exp(u) + ε.
        gate: what the gate is and where it acts. `energy`: α·σ(−E), nothing to learn, and p̂ stays
            as it is. A learned gate for each class acts on probabilities (`prob`, the paper's
            equations; a common scale cancels), on `logit`s (the released CORE) or on `evidence`
            (α_c·s_c, changes α0).
        gate_low: s_min.
        gate_high: s_max.
        gate_bound: `sigmoid` maps smoothly into the bounds, `clamp` cuts a sigmoid off at them
            (the released code; no gradient outside).
        energy_detached: the energy learns on the features as they are, and its terms do not move
            the backbone.
        energy_scaled: the energy has a learned temperature of its own.
        energy_tanh: squash the energy by tanh.
        energy_desaturate: with tanh, the factor on its argument in evaluation.
        energy_source: which energy the belief reports: `learned`, `gmm` (−log p(z)), `logits`, or
            `auto`, the one with the widest 1-99 % span on ID data (logits if both are tight).
        loss: prediction loss: `nll`, `squared` error, or `auto`: squared error for one head and
            NLL for a mixture, as the paper has it.
        core_loss: `paper` is squared error + KL(α ‖ 1); `edl` adds the Dirichlet variance and
            takes KL of misleading evidence only (the released CORE).
        kl_weight: λ_KL.
        kl_evidence: KL on `unscaled` α, or on α `scaled` by ρ (needs `rho_refit`).
        fi_reg_weight: λ_FI of the penalty.
        fi_mod_strength: λ_FI of the modulation.
        fi_gradient: the penalty's gradient: `full`, or through the `router` only.
        fi_label: label of the proxy: `true` or `pseudo` (argmax of the mean logits).
        fi_clip: keep the clip's mask and ε in the proxy, so that saturated heads have FI = 0.
        fi_trace: β, weight of the plain mean of FI over heads.
        fi_smoothing: ε' of the modulated weights.
        ebm_weight: λ_EBM on softplus(E) of ID features. Both weights say how much the energy moves
            the backbone; its own perceptron hardly feels them.
        ebm_outlier_weight: weight on softplus(m − E) of outliers.
        ebm_margin: m.
        ebm_clip: clip of E in both terms (paper: τ); None for no clip.
        unc_weight: λ_UNC.
        unc_id: β_id on the entropy of ID predictions.
        unc_outlier: β_ood on the entropy of predictions on outliers.
        pi_entropy: weight on −H(π), each input's, against the router's collapse.
        pi_balance: weight on −H of the batch's mean π, which asks for heads that are used and
            leaves the router free to tell inputs apart.
        repulsion: weight on minus the Jensen-Shannon divergence of the heads on outliers, so that
            they part where there are no data.
        rho: the density scaler: `standardised`, `minmax`, `raw` or `none`.
        rho_power: γ.
        rho_floor: smallest ρ.
        rho_refit: 0 fits the density once after training; r > 0 also refits it in training each
            fraction r.
        density_space: features of the density: `unit` or `raw`.
        density_covariance: `class` or `tied`.
        density_shrinkage: weight of the tied covariance in each class's.
        outliers: what the EBM and UNC terms treat as outliers. With `none` the outlier half of
            both is absent.
    """

    sn: bool = False
    core: bool = True
    mix: bool = True
    fi_reg: bool = True
    fi_mod: bool = True
    ebm: bool = True
    unc: bool = False

    num_components: int = 3
    sizes: Literal["linear", "paper", "released"] = "linear"
    dropout: float = 0.03
    spectral: Literal["soft", "hard"] = "soft"
    feature_space: Space = "raw"
    energy_space: Space = "unit"
    temperature: float | None = None
    temperature_learned: bool = True
    clip: float = 10.0
    epsilon: float = 1e-8

    gate: GateMode = "energy"
    gate_low: float = 0.1
    gate_high: float = 0.9
    gate_bound: Literal["sigmoid", "clamp"] = "sigmoid"
    energy_detached: bool = False
    energy_scaled: bool = True
    energy_tanh: bool = False
    energy_desaturate: float = 0.5
    energy_source: EnergySource = "learned"

    loss: Literal["nll", "squared", "auto"] = "nll"
    core_loss: Literal["paper", "edl"] = "paper"
    kl_weight: float = 1e-4
    kl_evidence: Literal["unscaled", "scaled"] = "unscaled"
    fi_reg_weight: float = 0.1
    fi_mod_strength: float = 0.1
    fi_gradient: Literal["full", "router"] = "full"
    fi_label: Literal["true", "pseudo"] = "true"
    fi_clip: bool = False
    fi_trace: float = 0.0
    fi_smoothing: float = 1e-4
    ebm_weight: float = 0.03
    ebm_outlier_weight: float = 0.03
    ebm_margin: float = 0.0
    ebm_clip: float | None = None
    unc_weight: float = 0.1
    unc_id: float = 0.1
    unc_outlier: float = 0.1
    pi_entropy: float = 0.1
    pi_balance: float = 0.0
    repulsion: float = 0.0

    rho: RhoKind = "standardised"
    rho_power: float = 1.2
    rho_floor: float = 1e-3
    rho_refit: float = 0.0
    density_space: Space = "unit"
    density_covariance: Covariance = "tied"
    density_shrinkage: float = 0.3

    outliers: OutlierConfig = field(default_factory=OutlierConfig)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        _check_numbers(self)
        require_outliers(self.outliers)
        if self.core_loss == "edl" and self.squared and self.components > 1:
            raise InputError('core_loss="edl" is for one head: set mix=False, or loss="nll"')

    @property
    def components(self) -> int:
        """K, which is one without MIX."""
        return self.num_components if self.mix else 1

    @property
    def has_energy(self) -> bool:
        """Whether there is an energy head at all."""
        return self.core or self.ebm

    @property
    def has_density(self) -> bool:
        """Whether a density is fitted."""
        return self.rho != "none" or self.energy_source in ("gmm", "auto")

    @property
    def takes_outliers(self) -> bool:
        """Whether a term with an outlier half is on."""
        return self.ebm or self.unc or (self.repulsion > 0 and self.components > 1)

    @property
    def used_outliers(self) -> OutlierConfig:
        """The outliers that the objective has a use for."""
        return self.outliers if self.takes_outliers else NONE

    @property
    def initial_temperature(self) -> float:
        """T at the start of training."""
        if self.temperature is not None:
            return self.temperature
        return 0.2 if self.feature_space == "unit" else 1.0

    @property
    def squared(self) -> bool:
        """Whether the prediction loss is squared error."""
        return self.loss == "squared" or (self.loss == "auto" and not self.mix)

    def notes(self) -> list[str]:
        """What this configuration leaves out, in plain words."""
        notes = []
        if self.used_outliers.is_none:
            if self.ebm:
                notes.append("no outliers: the EBM term only pulls the energy of ID features down")
            if self.unc:
                notes.append("no outliers: the UNC term only lowers the entropy of ID predictions")
        if self.core and self.gate == "energy" and not self.ebm:
            notes.append("EBM is off: the energy learns nothing, and its gate means nothing")
        if self.fi_mod and self.components == 1:
            notes.append("one head: Fisher modulation changes nothing")
        if self.gate == "prob" and self.core:
            notes.append("probability gate: it moves p̂ between classes and never the evidence α0")
        if (self.kl_evidence == "scaled") != (self.rho_refit > 0) or (
            self.rho_refit > 0 and self.rho == "none"
        ):
            notes.append(
                "ρ acts in training only with rho_refit > 0, kl_evidence=scaled and rho not none"
            )
        return notes


_CHOICES = {
    "sizes": ("linear", "paper", "released"),
    "spectral": ("soft", "hard"),
    "feature_space": get_args(Space),
    "energy_space": get_args(Space),
    "gate": get_args(GateMode),
    "gate_bound": ("sigmoid", "clamp"),
    "energy_source": get_args(EnergySource),
    "loss": ("nll", "squared", "auto"),
    "core_loss": ("paper", "edl"),
    "kl_evidence": ("unscaled", "scaled"),
    "fi_gradient": ("full", "router"),
    "fi_label": ("true", "pseudo"),
    "rho": get_args(RhoKind),
    "density_space": get_args(Space),
    "density_covariance": get_args(Covariance),
}


_NOT_NEGATIVE = (
    "epsilon", "kl_weight", "fi_reg_weight", "fi_mod_strength", "fi_trace", "fi_smoothing",
    "ebm_weight", "ebm_outlier_weight", "unc_weight", "unc_id", "unc_outlier", "pi_entropy",
    "pi_balance", "repulsion", "rho_power",
)  # fmt: skip


def _check_numbers(config: GEMConfig) -> None:
    for name in _NOT_NEGATIVE:
        check_number(name, getattr(config, name), 0)
    for name in ("temperature", "ebm_clip"):
        if getattr(config, name) is not None:
            check_number(name, getattr(config, name), above=0)
    check_int("num_components", config.num_components, 1)
    check_number("gate_low", config.gate_low, above=0)
    check_number("gate_high", config.gate_high, most=1, above=config.gate_low)
    check_number("dropout", config.dropout, 0, below=1)
    check_number("clip", config.clip, most=1e30, above=0)  # of float32
    check_number("energy_desaturate", config.energy_desaturate)
    check_number("ebm_margin", config.ebm_margin)
    check_number("rho_refit", config.rho_refit, 0, below=1)
    check_number("rho_floor", config.rho_floor, 0, below=1)
    check_number("density_shrinkage", config.density_shrinkage, 0, 1)


_FI = GEMConfig()
_MIX = replace(_FI, fi_reg=False, fi_mod=False)
_CORE = replace(_MIX, mix=False)
PRESETS: dict[str, GEMConfig] = {"gem-core": _CORE, "gem-mix": _MIX, "gem-fi": _FI}
"""The defaults, each choice with its trials in `docs/findings.md`."""

_PAPER_FI = GEMConfig(
    sn=True,
    unc=True,
    sizes="paper",
    feature_space="unit",
    gate="prob",
    energy_scaled=False,
    loss="auto",
    ebm_weight=0.01,
    ebm_outlier_weight=0.1,
    ebm_margin=3.0,
    pi_entropy=0.0,
    density_covariance="class",
    outliers=VOS,
)
_PAPER_MIX = replace(_PAPER_FI, fi_reg=False, fi_mod=False, ebm=False, unc=False, outliers=NONE)
_PAPER_CORE = replace(_PAPER_MIX, mix=False)
PAPER_PRESETS: dict[str, GEMConfig] = {
    "gem-core": _PAPER_CORE,
    "gem-mix": _PAPER_MIX,
    "gem-fi": _PAPER_FI,
}
"""The paper's equations, as far as they can be followed."""
