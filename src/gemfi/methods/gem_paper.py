"""GEM as the paper has it: what its text and its released code do differently from `gem.py`.

The switches of the paper's ablation are `sn`, `core`, K > 1 for MIX, and a weight above 0 for
FI-Reg, FI-Mod, EBM and UNC; `ablation` has its rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gemfi import dirichlet, losses
from gemfi._config import check_number, to_plain
from gemfi.density import Covariance, DensityScaler, RhoKind
from gemfi.errors import InputError
from gemfi.methods.base import MethodInfo
from gemfi.methods.gem import CLIP, ENERGY_TEMPERATURE, GEM, LOG_EPSILON, SMOOTHING, GEMConfig
from gemfi.methods.gem_modules import Parts, Perceptron, in_space
from gemfi.methods.gem_presets import PAPER, PRESETS
from gemfi.outliers import NONE, VOS, OutlierConfig
from gemfi.spectral import OFF, Spectral

# hidden layers of heads, energy, gate and router
SIZES: dict[str, tuple[tuple[int, ...], ...]] = {
    "linear": ((), (64,), (64,), (64,)),
    "paper": ((128,), (64,), (64,), (64,)),
    "released": ((512, 256), (1024, 512, 256, 512), (512, 512, 256), (256, 128)),
}


@dataclass(frozen=True)
class PaperConfig(GEMConfig):
    """`GEMConfig` with the paper's switches and readings; a weight of 0 switches its term off.

    Attributes:
        sn: spectral normalisation of the head's modules and of a backbone given by name.
        core: the energy and the gate.
        sizes: of the modules: `linear` heads as ours, `paper` with a hidden layer of 128 in each
            head (the paper's counts of parameters), `released` the much larger ones of its code.
        spectral: `soft` or `hard` normalisation, to norm 1.
        temperature: T of u = h(z)/T at the start; None for 0.2 on unit-norm features, 1 on raw.
        gate: `energy`, ours; or one learned value a class that acts on probabilities (`prob`, the
            equations) or on logits (`logit`, the released CORE).
        gate_low: s_min.
        gate_high: s_max.
        gate_bound: `sigmoid` maps into the bounds, `clamp` cuts off at them (the released code).
        energy_scaled: whether the energy has a learned temperature.
        loss: `nll`, `squared` error, or `auto`: squared for one head, NLL for a mixture.
        core_loss: `paper` is squared error + KL(α ‖ 1); `edl` adds the Dirichlet variance and takes
            KL of misleading evidence only (the released CORE).
        fi_label: label of the Fisher proxy: `true`, or `pseudo`, the argmax of the mean logits.
        fi_gradient: of the penalty: `full`, or through the `router` alone.
        fi_clip: keep the clip's mask and ε in the proxy, so that saturated heads have FI = 0.
        fi_trace: β, weight of the plain mean of FI over heads.
        ebm_outlier_weight: weight of softplus(m − E) on outliers.
        ebm_margin: m.
        ebm_clip: bound of |E| in both terms; None for none.
        unc_weight: λ_UNC.
        unc_id: β_id, on the entropy of ID predictions.
        unc_outlier: β_ood, on the entropy of predictions on outliers.
        rho: `standardised`, `minmax`, `raw` (σ(log p)^γ to the letter) or `none`.
    """

    ebm_weight: float = 0.01
    feature_space: Literal["unit", "raw"] = "unit"
    pi_entropy: float = 0.0
    density_space: Literal["layers", "unit", "raw"] = "unit"
    density_covariance: Covariance = "class"
    outliers: OutlierConfig = VOS
    sn: bool = True
    core: bool = True
    sizes: Literal["linear", "paper", "released"] = "paper"
    spectral: Literal["soft", "hard"] = "soft"
    temperature: float | None = None
    gate: Literal["energy", "prob", "logit"] = "prob"
    gate_low: float = 0.1
    gate_high: float = 0.9
    gate_bound: Literal["sigmoid", "clamp"] = "sigmoid"
    energy_scaled: bool = False
    loss: Literal["nll", "squared", "auto"] = "auto"
    core_loss: Literal["paper", "edl"] = "paper"
    fi_label: Literal["true", "pseudo"] = "true"
    fi_gradient: Literal["full", "router"] = "full"
    fi_clip: bool = False
    fi_trace: float = 0.0
    ebm_outlier_weight: float = 0.1
    ebm_margin: float = 3.0
    ebm_clip: float | None = None
    unc_weight: float = 0.1
    unc_id: float = 0.1
    unc_outlier: float = 0.1
    rho: RhoKind = "standardised"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fi_trace", "ebm_outlier_weight", "unc_weight", "unc_id", "unc_outlier"):
            check_number(name, getattr(self, name), 0)
        for name in ("temperature", "ebm_clip"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), above=0)
        check_number("gate_low", self.gate_low, above=0)
        check_number("gate_high", self.gate_high, most=1, above=self.gate_low)
        check_number("ebm_margin", self.ebm_margin)
        if self.core_loss == "edl" and self.squared and self.num_components > 1:
            raise InputError('core_loss="edl" is for one head: set num_components=1 or loss="nll"')

    @property
    def has_energy(self) -> bool:
        """Whether there is an energy at all."""
        return self.core or self.ebm_weight > 0

    @property
    def takes_outliers(self) -> bool:
        """Whether a term on outliers is on."""
        return self.ebm_weight > 0 or self.unc_weight > 0

    @property
    def start_temperature(self) -> float:
        """T at the start of training."""
        return self.temperature or (0.2 if self.feature_space == "unit" else 1.0)

    @property
    def squared(self) -> bool:
        """Whether the prediction loss is squared error."""
        return self.loss == "squared" or (self.loss == "auto" and self.num_components == 1)


_FI = PaperConfig()
_MIX = replace(
    _FI, fi_reg_weight=0.0, fi_mod_strength=0.0, ebm_weight=0.0, unc_weight=0.0, outliers=NONE
)
PAPER_PRESETS = {"gem-core": replace(_MIX, num_components=1), "gem-mix": _MIX, "gem-fi": _FI}
"""The paper's equations, as far as they can be followed."""


class GEMPaper(GEM):
    """The paper's equations, as far as they can be followed, or any row of its ablation."""

    info = MethodInfo(
        "gem-paper", "GEM-FI (paper)", "GEM as its paper has it, by switches", PAPER, "ICML", 2026
    )
    default = _FI
    energy: Perceptron | None  # type: ignore[assignment]

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        kind, floor = self.config.rho, self.config.rho_floor
        self.scaler = None if kind == "none" else DensityScaler(kind, floor=floor)

    def _build_modules(self) -> None:
        config, inputs = self.config, self.num_features
        heads, energy, gate, router = SIZES[config.sizes]
        signal = inputs + 1 if config.has_energy else inputs
        shared = {
            "spectral": Spectral(config.spectral) if config.sn else OFF,
            "dropout": config.dropout,
        }
        count, classes = config.num_components, self.num_classes
        self.heads = Perceptron((inputs, *heads, classes), stack=count, **shared)
        self.energy = self.gate = self.router = None
        if config.has_energy:
            more = {"dropout": 0.1, "batch_norm": True} if config.sizes == "released" else {}
            self.energy = Perceptron((inputs, *energy, 1), **shared | more)
        if config.core and config.gate != "energy":
            self.gate = Perceptron((signal, *gate, classes), **shared)
        if count > 1:
            self.router = Perceptron((signal, *router, count), **shared)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(config.start_temperature)))
        if config.has_energy and config.energy_scaled:
            self.log_energy_temperature = nn.Parameter(torch.tensor(math.log(ENERGY_TEMPERATURE)))

    @property
    def named_scores(self) -> dict[str, str]:
        """Epistemic is evidence as in the paper; unfamiliarity where the energy is the gate."""
        gated = self.config.gate == "energy"
        return {**super().named_scores, "epistemic": "unfamiliarity" if gated else "evidence"}

    def notes(self) -> list[str]:
        """What the configuration leaves out."""
        config, notes = self.config, []
        if self.outliers.is_none:
            if config.ebm_weight:
                notes.append("no outliers: the EBM term only pulls the energy of ID features down")
            if config.unc_weight:
                notes.append("no outliers: the UNC term only lowers the entropy of ID predictions")
        if config.core and config.gate == "energy" and not config.ebm_weight:
            notes.append("EBM is off: the energy learns nothing, and its gate means nothing")
        if config.fi_mod_strength and config.num_components == 1:
            notes.append("one head: Fisher modulation changes nothing")
        if config.core and config.gate == "prob":
            notes.append("probability gate: it moves p̂ between classes and never the evidence α0")
        return notes

    def parts(self, z: Tensor) -> Parts:
        """Run every module on features (B, D)."""
        z = self.embed(z[:, : self.num_features])
        signal, energy = in_space(z, "unit"), None
        if self.energy is not None:
            energy = self.energy(signal).squeeze(1)
            if self.config.energy_scaled:
                energy = energy * torch.exp(-self.log_energy_temperature)
            signal = torch.cat([signal, torch.sigmoid(energy).unsqueeze(1)], dim=1)
        logits = self.heads(z) * torch.exp(-self.log_temperature)
        log_weight = logits.new_zeros(logits.shape[:2])
        if self.router is not None:
            log_weight = torch.log_softmax(self.router(signal), dim=-1)
        log_gate = self._log_gate(signal, energy)
        gated = logits
        if log_gate is not None and self.config.gate == "logit":
            gated, log_gate = logits * log_gate.exp().unsqueeze(1), None
        log_alpha = torch.logaddexp(gated.clamp(-CLIP, CLIP), logits.new_full((), LOG_EPSILON))
        if log_gate is not None and self.config.gate == "energy":
            log_alpha = log_alpha + log_gate.unsqueeze(1)  # on ε too: it never changes p
        return Parts(energy, log_gate, log_weight, logits, log_alpha)

    def _log_gate(self, signal: Tensor, energy: Tensor | None) -> Tensor | None:
        """Log s, (B, 1) of the energy or (B, C) of the paper's gate."""
        if not self.config.core or energy is None:
            return None
        if self.gate is None:
            return self.familiarity.of_energy(energy.detach()).unsqueeze(1)
        low, high = self.config.gate_low, self.config.gate_high
        opened = torch.sigmoid(self.gate(signal))
        if self.config.gate_bound == "clamp":
            return opened.clamp(low, high).log()
        return torch.log(low + (high - low) * opened)

    def _log_probs(self, parts: Parts, log_weight: Tensor) -> Tensor:
        """Log p̂ (B, C), through the gate where it acts on probabilities."""
        log_p = dirichlet.log_mixture(dirichlet.log_mean(parts.log_alpha)[0], log_weight)
        if self.config.gate == "prob" and parts.log_gate is not None:
            log_p = torch.log_softmax(log_p + parts.log_gate, dim=-1)
        return log_p

    def _terms(self, inside: Parts, label: Tensor) -> dict[str, Tensor]:
        """Prediction, KL, Fisher, entropy and energy terms, as the weights say."""
        config, log_weight = self.config, inside.log_weight
        fisher = self._fisher(inside, label)
        if strength := config.fi_mod_strength:
            log_weight = losses.fisher_modulation(log_weight, fisher, strength, SMOOTHING)
        log_p = self._log_probs(inside, log_weight)
        terms = self._prediction_terms(inside, log_p, log_weight, label)
        penalised = fisher.detach() if config.fi_gradient == "router" else fisher
        if config.fi_reg_weight:
            terms["fisher"] = config.fi_reg_weight * losses.fisher_penalty(log_weight, penalised)
        if config.fi_trace:
            terms["fisher_trace"] = config.fi_trace * penalised.mean()
        if config.unc_weight and config.unc_id:
            terms["entropy"] = config.unc_weight * config.unc_id * losses.mean_entropy(log_p)
        if config.ebm_weight:
            pulled = losses.energy_inside(inside.energy, config.ebm_clip)
            terms["energy"] = config.ebm_weight * pulled
        if config.pi_entropy and config.num_components > 1:
            terms["router_entropy"] = -config.pi_entropy * losses.mean_entropy(log_weight)
        return terms

    def _prediction_terms(
        self, inside: Parts, log_p: Tensor, log_weight: Tensor, label: Tensor
    ) -> dict[str, Tensor]:
        config, log_alpha = self.config, inside.log_alpha
        if not config.squared:
            kl = losses.kl_prior(log_alpha, log_weight)
            return {"nll": losses.nll(log_p, label), "kl": config.kl_weight * kl}
        terms = {"squared_error": losses.squared_error(log_p, label)}
        if config.core_loss == "edl":
            terms["variance"] = losses.dirichlet_variance(*dirichlet.log_mean(log_alpha))
            terms["kl"] = config.kl_weight * losses.kl_misleading(log_alpha[:, 0], label)
        else:
            terms["kl"] = config.kl_weight * losses.kl_prior(log_alpha, log_weight)
        return terms

    def _fisher(self, inside: Parts, label: Tensor) -> Tensor:
        """The Fisher proxy of each head (B, K)."""
        if self.config.fi_label == "pseudo":
            label = inside.logits.mean(dim=1).argmax(dim=-1)
        factor = None
        if self.config.fi_clip:
            clipped = inside.logits.clamp(-CLIP, CLIP)
            log_alpha = torch.logaddexp(clipped, clipped.new_full((), LOG_EPSILON))
            unclipped = (inside.logits.abs() <= CLIP).to(clipped.dtype)
            factor = unclipped * torch.exp(clipped - log_alpha)
        log_p, _ = dirichlet.log_mean(inside.log_alpha)
        return dirichlet.fisher_proxy(log_p, label.unsqueeze(1), factor)

    def _outlier_terms(self, outside: Parts) -> dict[str, Tensor]:
        """λ softplus(m − E) and −λ_UNC β_ood H(p̂)."""
        config, terms = self.config, {}
        if config.ebm_weight:
            pushed = losses.energy_outside(outside.energy, config.ebm_margin, config.ebm_clip)
            terms["energy_outliers"] = config.ebm_outlier_weight * pushed
        if config.unc_weight and config.unc_outlier:
            spread = losses.mean_entropy(self._log_probs(outside, outside.log_weight))
            terms["entropy_outliers"] = -config.unc_weight * config.unc_outlier * spread
        return terms


# -- ours with the paper's switches, and the rows of its ablation ---------------------------------


def as_paper(config: GEMConfig) -> PaperConfig:
    """Any configuration of GEM, with the paper's switches and readings; the paper's as it is."""
    if isinstance(config, PaperConfig):
        return config
    return PaperConfig(
        **{field.name: getattr(config, field.name) for field in fields(GEMConfig)},
        sn=False,
        sizes="linear",
        gate="energy",
        energy_scaled=True,
        loss="nll",
        ebm_outlier_weight=config.ebm_weight,
        ebm_margin=0.0,
        unc_weight=0.0,
    )


OURS = replace(as_paper(PRESETS["gem-fi"]), unc_weight=0.1)
"""Our GEM-FI with the paper's switches, for an ablation of it, in which UNC has a weight too."""

SWITCHES = ("sn", "core", "mix", "fi_reg", "fi_mod", "ebm", "unc")
"""The columns of the paper's ablation."""

_ROWS: Mapping[str, str] = {  # in the order of the paper's table; 1 is on
    "ablation-none": "0000000",
    "ablation-sn": "1000000",
    "ablation-core": "1100000",
    "ablation-mix": "1110000",
    "ablation-fi-reg": "1111000",
    "ablation-fi-mod": "1110100",
    "ablation-fi": "1111100",
    "ablation-ebm": "1111110",
    "ablation-full": "1111111",
    "ablation-full-without-sn": "0111111",
}
_RELATED: Mapping[str, tuple[str, str]] = {
    "dirichlet-mixture": (
        "0010000",
        (
            "K Dirichlet heads and a router without energy or gate; stands for the mixture of "
            "Dirichlets of related work (2024), of which no code was published"
        ),
    ),
    "gated-dirichlet": (
        "0100000",
        (
            "one Dirichlet head with the energy's gate and nothing else; stands for the gated EDL "
            "of related work (2024), of which neither code nor paper was found"
        ),
    ),
}


def switches(config: Mapping[str, Any]) -> dict[str, bool]:
    """Which of `SWITCHES` are on in JSON values of a configuration; without GEM's fields, none."""
    gem = "fi_reg_weight" in config
    return {
        "sn": bool(config.get("sn", False)),
        "core": bool(config.get("core", gem)),
        "mix": gem and config["num_components"] > 1,
        "fi_reg": gem and config["fi_reg_weight"] > 0,
        "fi_mod": gem and config["fi_mod_strength"] > 0,
        "ebm": gem and config["ebm_weight"] > 0,
        "unc": bool(config.get("unc_weight", 0)),
    }


def ablation(config: PaperConfig = _FI) -> dict[str, PaperConfig]:
    """The ten rows of the paper's ablation by name, from a configuration with every switch on."""
    return {name: _switched(config, row) for name, row in _ROWS.items()}


def presets(config: PaperConfig = _FI) -> dict[str, PaperConfig]:
    """Every named configuration: the rows of the ablation, then related work."""
    related = {name: _switched(config, row) for name, (row, _) in _RELATED.items()}
    return ablation(config) | related


def preset(name: str, config: PaperConfig = _FI) -> PaperConfig:
    """The configuration of a name, or an error that lists the names."""
    known = presets(config)
    if name not in known:
        raise InputError(f"unknown preset {name!r}; known: {', '.join(known)}")
    return known[name]


def meaning(name: str) -> str:
    """What a preset stands for, in a line."""
    if name in _RELATED:
        return _RELATED[name][1]
    parts = switches(to_plain(preset(name))).items()
    on = [switch.upper().replace("_", "-") for switch, is_on in parts if is_on]
    number = list(_ROWS).index(name) + 1
    return f"row {number} of the paper's ablation: {' + '.join(on) or 'every switch off'}"


def _switched(config: PaperConfig, row: str) -> PaperConfig:
    """A row of zeros and ones, in the order of `SWITCHES`."""
    on = dict(zip(SWITCHES, (digit == "1" for digit in row), strict=True))
    return replace(
        config,
        sn=on["sn"],
        core=on["core"],
        num_components=config.num_components if on["mix"] else 1,
        fi_reg_weight=config.fi_reg_weight * on["fi_reg"],
        fi_mod_strength=config.fi_mod_strength * on["fi_mod"],
        ebm_weight=config.ebm_weight * on["ebm"],
        unc_weight=config.unc_weight * on["unc"],
    )
