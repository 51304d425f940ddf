"""What the heads of one Dirichlet share: a linear layer, a belief, and low evidence on outliers.

A subclass says how logits become log α (`log_alpha`), the prior that α holds for each class
(`prior`), and its loss (`terms`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from gemfi import dirichlet, losses
from gemfi._config import check_number
from gemfi.belief import Belief
from gemfi.methods.base import Batch, Head, Progress
from gemfi.outliers import NONE, OutlierConfig, require_outliers
from gemfi.spectral import Linear


@dataclass(frozen=True)
class EvidentialConfig:
    """What every head of one Dirichlet can be given.

    Attributes:
        outliers: none by default; with some, `outlier_weight`·KL(Dir(α) ‖ prior) on them asks for
            no evidence there. The paper's fair comparison adds `VOS` this way.
        outlier_weight: of that term.
    """

    outliers: OutlierConfig = NONE
    outlier_weight: float = 1e-3

    def __post_init__(self) -> None:
        require_outliers(self.outliers)
        check_number("outlier_weight", self.outlier_weight, 0)


class Evidential(Head):
    """A linear layer on the features, and one Dirichlet."""

    prior: float | None = 1.0
    """Mass of each class in α without any evidence; None where α has no such floor.

    A configuration with a field `prior` sets it.
    """

    authors: ClassVar[Mapping[str, float]] = {}
    """Settings of terms that sum over the classes -> the value that their authors chose.

    Where a configuration leaves one None, `weights` has that value for up to ten classes and less
    for more (`losses.class_share`).
    """

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        self.config: Any
        self.linear = Linear(num_features, num_classes)
        self.prior = getattr(self.config, "prior", self.prior)
        share = losses.class_share(num_classes)
        self.weights: dict[str, float] = {
            name: value * share
            if getattr(self.config, name) is None
            else getattr(self.config, name)
            for name, value in self.authors.items()
        }

    def notes(self) -> list[str]:
        """Which weights follow from the number of classes."""
        if losses.class_share(self.num_classes) == 1:
            return []
        return [
            f"{self.num_classes} classes: {name} is {self.weights[name]:g}"
            for name in self.authors
            if getattr(self.config, name) is None
        ]

    @property
    def outliers(self) -> OutlierConfig:
        """Those of the configuration."""
        outliers: OutlierConfig = self.config.outliers
        return outliers

    @property
    def takes_outliers(self) -> bool:
        """Any of these heads can be asked for no evidence on outliers."""
        return True

    def logits(self, z: Tensor) -> Tensor:
        """Features (B, D) to logits (B, C)."""
        logits: Tensor = self.linear(z)
        return logits

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Logits (..., C) to log α (..., C)."""
        raise NotImplementedError

    def terms(self, log_alpha: Tensor, y: Tensor, at: Progress) -> dict[str, Tensor]:
        """Named, weighted loss terms on log α (B, C) of ID features with labels y (B,)."""
        raise NotImplementedError

    def forward(self, z: Tensor) -> Belief:
        """One Dirichlet."""
        return self.belief(self.logits(z))

    def belief(self, logits: Tensor, **more: Any) -> Belief:
        """The belief of logits (B, C)."""
        logits = logits.unsqueeze(1)
        log_p, log_total = dirichlet.log_mean(self.log_alpha(logits))
        log_prior = None if self.prior is None else logits.new_tensor(math.log(self.prior))
        return Belief(
            log_p=log_p,
            log_weight=logits.new_zeros(logits.shape[:2]),
            log_evidence=log_total,
            logits=logits,
            log_prior=log_prior,
            **more,
        )

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """The method's own terms and, where there are outliers, the one on them."""
        terms = self.terms(self.log_alpha(self.logits(batch.z)), batch.y, at)
        if batch.outliers is not None:
            terms["outliers"] = batch.outlier_weight * self.outlier_term(batch.outliers)
        return terms

    def outlier_term(self, z: Tensor) -> Tensor:
        """`outlier_weight`·KL(Dir(α) ‖ Dir(prior)) on features of outliers."""
        log_alpha = self.log_alpha(self.logits(z))
        prior = 1.0 if self.prior is None else self.prior
        kl = dirichlet.kl(log_alpha.exp(), torch.full_like(log_alpha, prior)).mean()
        weight: float = self.config.outlier_weight
        return weight * kl


def log_softplus_evidence(logits: Tensor, prior: float) -> Tensor:
    """Log(softplus(u) + prior)."""
    return torch.log(functional.softplus(logits) + prior)
