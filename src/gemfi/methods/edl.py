"""Evidential deep learning: one Dirichlet, with a prior of one for each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from gemfi import dirichlet, losses
from gemfi._config import check_choice, check_number
from gemfi.methods.base import MethodInfo, Progress
from gemfi.methods.evidential import Evidential, EvidentialConfig, log_softplus_evidence


@dataclass(frozen=True)
class EDLConfig(EvidentialConfig):
    """Choices of EDL.

    The defaults are the strongest on digits' validation data among the three kinds of evidence and
    two lengths of annealing: with ReLU (the paper) units die in short runs.

    Attributes:
        evidence: how logits become evidence e ≥ 0; α = e + 1.
        risk: the Bayes risk: of squared error (`mse`), of −log p (`digamma`), or its bound (`log`).
        kl_weight: of KL(Dir(α̃) ‖ Dir(1)) once annealed. None is the authors' 1 for up to ten
            classes and less for more, where it would kill all evidence (`losses.class_share`).
        kl_ramp: fraction of training over which that weight rises from 0.
    """

    evidence: Literal["relu", "softplus", "exp"] = "exp"
    risk: losses.Risk = "mse"
    kl_weight: float | None = None
    kl_ramp: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("evidence", self.evidence, ("relu", "softplus", "exp"))
        check_choice("risk", self.risk, ("mse", "log", "digamma"))
        if self.kl_weight is not None:
            check_number("kl_weight", self.kl_weight, 0)
        check_number("kl_ramp", self.kl_ramp, 0)


class EDL(Evidential):
    """α = e(W z + b) + 1; Bayes risk plus an annealed KL on misleading evidence."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="edl",
        label="EDL",
        summary="one Dirichlet head, Bayes risk of squared error with annealed KL",
        paper="Evidential Deep Learning to Quantify Classification Uncertainty",
        venue="NeurIPS",
        year=2018,
    )
    authors: ClassVar[Mapping[str, float]] = {"kl_weight": 1.0}
    config_class = EDLConfig
    config: EDLConfig

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Log(e + 1); the exponential is clipped at ±10."""
        if self.config.evidence == "exp":
            return functional.softplus(logits.clamp(-10, 10))  # log(1 + exp u)
        if self.config.evidence == "softplus":
            return log_softplus_evidence(logits, 1.0)
        return torch.log1p(functional.relu(logits))

    def terms(self, log_alpha: Tensor, y: Tensor, at: Progress) -> dict[str, Tensor]:
        """Risk and annealed KL."""
        log_p, log_total = dirichlet.log_mean(log_alpha)
        weight = self.weights["kl_weight"] * at.ramp(0.0, self.config.kl_ramp)
        return {
            "risk": losses.evidential_risk(log_p, log_total, y, self.config.risk),
            "kl": weight * losses.kl_misleading(log_alpha, y),
        }
