"""Evidential deep learning: one Dirichlet, with a prior of one for each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from gemfi import checks, dirichlet, losses
from gemfi.belief import Belief
from gemfi.methods.base import Batch, Head, MethodInfo, Progress
from gemfi.spectral import Linear


@dataclass(frozen=True)
class EDLConfig:
    """Choices of EDL.

    The defaults are the strongest on digits' validation data among the three kinds of evidence and
    two lengths of annealing: with ReLU (the paper) units die in short runs.

    Attributes:
        evidence: how logits become evidence e ≥ 0; α = e + 1.
        risk: the Bayes risk: of squared error (`mse`), of −log p (`digamma`), or its bound (`log`).
        kl_weight: weight of KL(Dir(α̃) ‖ Dir(1)) once annealed.
        kl_ramp: fraction of training over which that weight rises from 0.
    """

    evidence: Literal["relu", "softplus", "exp"] = "exp"
    risk: losses.Risk = "mse"
    kl_weight: float = 1.0
    kl_ramp: float = 1.0

    def __post_init__(self) -> None:
        checks.choice("evidence", self.evidence, ("relu", "softplus", "exp"))
        checks.choice("risk", self.risk, ("mse", "log", "digamma"))
        checks.number("kl_weight", self.kl_weight, 0)
        checks.number("kl_ramp", self.kl_ramp, 0)


class EDL(Head):
    """α = e(W z + b) + 1; Bayes risk plus an annealed KL on misleading evidence."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="edl",
        summary="one Dirichlet head, Bayes risk of squared error with annealed KL",
        paper="Evidential Deep Learning to Quantify Classification Uncertainty",
        venue="NeurIPS",
        year=2018,
    )

    def __init__(
        self, num_features: int, num_classes: int, config: EDLConfig | None = None
    ) -> None:
        super().__init__(num_features, num_classes, config)
        self.config: EDLConfig
        self.linear = Linear(num_features, num_classes)

    @classmethod
    def default_config(cls) -> Any:
        """Exponential evidence and the squared-error risk."""
        return EDLConfig()

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Log(e + 1); the exponential is clipped at ±10."""
        if self.config.evidence == "exp":
            return functional.softplus(logits.clamp(-10, 10))  # log(1 + exp u)
        if self.config.evidence == "softplus":
            return torch.log1p(functional.softplus(logits))
        return torch.log1p(functional.relu(logits))

    def forward(self, z: Tensor) -> Belief:
        """One Dirichlet with a prior of one a class."""
        logits = self.linear(z).unsqueeze(1)
        log_p, log_total = dirichlet.log_mean(self.log_alpha(logits))
        return Belief(
            log_p=log_p,
            log_weight=logits.new_zeros(logits.shape[:2]),
            log_evidence=log_total,
            logits=logits,
            log_prior=logits.new_zeros(()),
        )

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Risk and annealed KL."""
        log_alpha = self.log_alpha(self.linear(batch.z))
        log_p, log_total = dirichlet.log_mean(log_alpha)
        weight = self.config.kl_weight * at.ramp(0.0, self.config.kl_ramp)
        return {
            "risk": losses.evidential_risk(log_p, log_total, batch.y, self.config.risk),
            "kl": weight * losses.kl_misleading(log_alpha, batch.y),
        }
