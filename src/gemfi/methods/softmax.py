"""Softmax with cross-entropy: alone, with norms held, as a deep ensemble, with dropout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi._config import check_int, check_number, check_seed
from gemfi.backbones import Stack
from gemfi.belief import Belief
from gemfi.errors import InputError
from gemfi.methods.base import Batch, Head, MethodInfo, Progress
from gemfi.modes import evaluating
from gemfi.randomness import forked_generator
from gemfi.spectral import Linear

if TYPE_CHECKING:
    from gemfi.model import Inputs, Model


def _equal_components(logits: Tensor) -> Belief:
    """The belief of logits (B, K, C): K points of equal weight, without evidence."""
    weight = logits.new_full((), 0.0 - math.log(logits.shape[1])).expand(logits.shape[:2])
    return Belief(torch.log_softmax(logits, dim=-1), weight, logits=logits)


@dataclass(frozen=True)
class SoftmaxConfig:
    """Share of the label that is spread over all classes."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_number("label_smoothing", self.label_smoothing, 0, below=1)


class Softmax(Head):
    """p = softmax(W z + b), trained by −log p_y."""

    info = MethodInfo(
        name="softmax",
        label="Softmax",
        summary="cross-entropy, one linear layer; epistemic score = energy of the logits",
        paper="A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural "
        "Networks",
        venue="ICLR",
        year=2017,
        epistemic="logit_energy",
    )
    default: ClassVar[Any] = SoftmaxConfig()

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        self.linear = Linear(num_features, num_classes)

    def forward(self, z: Tensor) -> Belief:
        """One component without evidence."""
        return _equal_components(self.linear(z).unsqueeze(1))

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Cross-entropy."""
        return {"nll": self._cross_entropy(self.linear(batch.z), batch.y)}

    def _cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(logits, y, label_smoothing=self.config.label_smoothing)


# -- norms held in training -----------------------------------------------------------------------


@dataclass(frozen=True)
class NormConfig(SoftmaxConfig):
    """τ, the temperature of what has unit norm."""

    temperature: float = 0.04

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("temperature", self.temperature, above=0)


class LogitNorm(Softmax):
    """p = softmax(u/(τ‖u‖)) of logits u: their norm can not make a network sure of itself."""

    info = MethodInfo(
        name="logit-norm",
        label="LogitNorm",
        summary="cross-entropy of logits of unit norm; epistemic score = 1 − max p",
        paper="Mitigating Neural Network Overconfidence with Logit Normalization",
        venue="ICML",
        year=2022,
        epistemic="max_prob",
    )
    default = NormConfig()

    def forward(self, z: Tensor) -> Belief:
        """One component without evidence."""
        return _equal_components(self._logits(z).unsqueeze(1))

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Cross-entropy of the directions."""
        return {"nll": self._cross_entropy(self._logits(batch.z), batch.y)}

    def _logits(self, z: Tensor) -> Tensor:
        u = functional.normalize(self.linear(z), dim=-1)
        return u / self.config.temperature  # type: ignore[no-any-return]


class T2FNorm(Softmax):
    """p = softmax(W z/(τ‖z‖) + b), so that the norm of features, unused, tells what is familiar.

    Probabilities are those that were trained; the energy of the logits W z + b sees the norm.
    """

    info = MethodInfo(
        name="t2f-norm",
        label="T2FNorm",
        summary="cross-entropy on features of unit norm; epistemic score = energy with their norm",
        paper="T2FNorm: Train-time Feature Normalization for OOD Detection in Image Classification",
        venue="CVPR Workshops",
        year=2024,
        epistemic="logit_energy",
    )
    default = NormConfig(temperature=0.1)

    def forward(self, z: Tensor) -> Belief:
        """One component without evidence."""
        log_p = torch.log_softmax(self._logits(z), dim=-1).unsqueeze(1)
        return replace(_equal_components(self.linear(z).unsqueeze(1)), log_p=log_p)

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Cross-entropy on the directions of features."""
        return {"nll": self._cross_entropy(self._logits(batch.z), batch.y)}

    def _logits(self, z: Tensor) -> Tensor:
        return self.linear(functional.normalize(z, dim=-1) / self.config.temperature)  # type: ignore[no-any-return]


# -- the ensemble -------------------------------------------------------------------------------


@dataclass(frozen=True)
class EnsembleConfig:
    """M, the number of members."""

    members: int = 5

    def __post_init__(self) -> None:
        check_int("members", self.members, 2)


class Ensemble(Head):
    """M softmax heads, each on the features of its own backbone (`Stack`), with equal weights.

    Each member is trained as a run of its own, with its own initial weights and order of the data,
    in the folders `member-0`, `member-1`, ... of a `run_dir`.
    """

    info = MethodInfo(
        name="ensemble",
        label="Ensemble",
        summary="softmax networks trained apart; epistemic score = their disagreement",
        paper="Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
        venue="NeurIPS",
        year=2017,
        epistemic="disagreement",
        passes=5,
    )
    default = EnsembleConfig()

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        count = self.config.members
        if num_features % count:
            raise InputError(
                f"an ensemble of {count} needs the features of {count} backbones of one width, got "
                f"{num_features}, which {count} does not divide"
            )
        self.heads = nn.ModuleList(
            Softmax(num_features // count, num_classes) for _ in range(count)
        )

    @classmethod
    def copies(cls, config: Any) -> int:
        """One backbone a member."""
        chosen = cls.default if config is None else config
        if not isinstance(chosen, EnsembleConfig):
            raise InputError(f"ensemble takes an EnsembleConfig, got {type(chosen).__name__}")
        return chosen.members

    def members(self, backbone: nn.Module) -> list[tuple[nn.Module, Head]]:
        """The networks to train one by one."""
        if not isinstance(backbone, Stack) or len(backbone.members) != len(self.heads):
            raise InputError(
                f"an ensemble of {len(self.heads)} needs that many backbones: give one by name, or "
                "Stack([...]) of your own modules"
            )
        return list(zip(backbone.members, self.heads, strict=True))  # type: ignore[arg-type]

    def notes(self) -> list[str]:
        """What the count of steps means."""
        return [f"{len(self.heads)} members trained one by one; the steps are those of one"]

    def forward(self, z: Tensor) -> Belief:
        """One component a member, without evidence."""
        return _equal_components(torch.stack(self._logits(z), dim=1))

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """The mean of the members' cross-entropies."""
        terms = [functional.cross_entropy(logits, batch.y) for logits in self._logits(batch.z)]
        return {"nll": torch.stack(terms).mean()}

    def _logits(self, z: Tensor) -> list[Tensor]:
        parts = z.chunk(len(self.heads), dim=1)
        return [head.linear(part) for head, part in zip(self.heads, parts, strict=True)]  # type: ignore[operator]


# -- Monte Carlo dropout ------------------------------------------------------------------------


@dataclass(frozen=True)
class MCDropoutConfig:
    """Share of the features that a mask leaves out, number S of masks at evaluation, their seed.

    The rate has the best NLL on digits' validation data of 0.1, 0.3 and 0.5.
    """

    rate: float = 0.3
    passes: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("rate", self.rate, above=0, below=1)
        check_int("passes", self.passes, 1)
        check_seed("seed", self.seed)


class MCDropout(Head):
    """p = 1/S Σ_s softmax(W (m_s ∘ z) + b), trained by cross-entropy with a fresh mask a sample.

    The S masks of evaluation are drawn once and saved, so that a belief depends on its input alone.
    The backbone runs once, and all passes through the last layer are one matrix product.
    """

    info = MethodInfo(
        name="mc-dropout",
        label="MC dropout",
        summary="cross-entropy with dropout on the features; the mean of 20 fixed masks",
        paper="Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep "
        "Learning",
        venue="ICML",
        year=2016,
        epistemic="mutual_information",
        passes=20,
    )
    default = MCDropoutConfig()
    masks: Tensor

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        self.linear = Linear(num_features, num_classes)
        generator = torch.Generator().manual_seed(self.config.seed)
        kept = torch.rand(self.config.passes, num_features, generator=generator) >= self.config.rate
        self.register_buffer("masks", kept / (1 - self.config.rate))  # (S, D)

    def forward(self, z: Tensor) -> Belief:
        """S equal components without evidence."""
        weight = self.masks.unsqueeze(1) * self.linear.normalised_weight()  # (S, C, D)
        flat = functional.linear(z, weight.flatten(0, 1))
        logits = flat.view(-1, len(self.masks), self.num_classes) + self.linear.bias  # (B, S, C)
        return _equal_components(logits)

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Cross-entropy, with fresh masks in training mode."""
        z = functional.dropout(batch.z, self.config.rate, training=self.training)
        return {"nll": functional.cross_entropy(self.linear(z), batch.y)}


def monte_carlo(
    model: Model, x: Inputs, passes: int = 20, seed: int = 0, *, batch_size: int = 512
) -> Belief:
    """The belief of several passes with dropout layers inside any model, as float64.

    Every dropout layer draws anew in each pass; all else is in evaluation mode. The components of
    all passes become components of one belief; a gate is moved into them, and densities and
    energies are averaged. The model and torch's global generators are left as they were; but
    dropout draws from these, so threads that draw at the same time change the masks. Dropout that
    is not a layer of its own, as in attention, is not seen.

    Args:
        model: with dropout layers of a rate above 0.
        x: (N, ...) inputs with N ≥ 1: a tensor, an array or a split.
        passes: how many; each costs a forward pass.
        seed: of the masks; with the same `batch_size` they are the same.
        batch_size: how many inputs at a time.
    """
    check_int("passes", passes, 1)
    check_seed("seed", seed)
    dropout = nn.modules.dropout._DropoutNd
    if not any(isinstance(part, dropout) and part.p > 0 for part in model.modules()):
        raise InputError(
            "monte_carlo needs dropout, and this model has no dropout layer of a rate above 0: "
            "build its backbone with some, or train the method mc-dropout"
        )
    model = evaluating(model, training=(dropout,))
    with torch.no_grad(), forked_generator(seed):
        return _joined([_one_pass(model, x, batch_size) for _ in range(passes)])


def _one_pass(model: Model, x: Inputs, batch_size: int) -> Belief:
    beliefs = [belief for _, belief in model.passes(x, batch_size)]
    return Belief.cat(beliefs).to(torch.float64)


def _joined(beliefs: Sequence[Belief]) -> Belief:
    """One belief whose components are those of all the passes."""
    parts = [belief.gated() for belief in beliefs]
    first, log_count = parts[0], math.log(len(parts))
    values: dict[str, Any] = {}
    for name, joined in _JOINED.items():
        if getattr(first, name) is not None:
            values[name] = joined([getattr(part, name) for part in parts])
    for name in ("log_weight", "log_rho", "log_density", "log_familiarity"):
        if name in values:
            values[name] = values[name] - log_count
    extra = {name: _mean([part.extra[name] for part in parts]) for name in first.extra}
    return replace(first, **values, extra=extra)


def _components(values: list[Tensor]) -> Tensor:
    return torch.cat(values, dim=1)


def _sum_of_exp(values: list[Tensor]) -> Tensor:
    return torch.logsumexp(torch.stack(values), dim=0)


def _mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean(dim=0)


_JOINED = {
    **dict.fromkeys(("log_p", "log_weight", "log_evidence", "logits"), _components),
    **dict.fromkeys(("log_rho", "log_density", "log_familiarity"), _sum_of_exp),
    **dict.fromkeys(("energy", "features"), _mean),
}
