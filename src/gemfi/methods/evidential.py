"""What the heads of one Dirichlet share: a linear layer, a belief, and low evidence on outliers."""

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

_POSITIVE = ("prior", "precision", "kl_start")
_NOT_NEGATIVE = (
    "outlier_weight", "kl_weight", "kl_ramp", "fisher_weight", "entropy_weight", "nll_weight",
)  # fmt: skip


@dataclass(frozen=True)
class EvidentialConfig:
    """What every head of one Dirichlet can be given.

    With outliers, `outlier_weight`·KL(Dir(α) ‖ prior) on them asks for no evidence there. The
    paper's fair comparison adds `VOS` this way.
    """

    outliers: OutlierConfig = NONE
    outlier_weight: float = 1e-3
    takes_outliers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_outliers(self.outliers)
        for name in (*_POSITIVE, *_NOT_NEGATIVE):
            value, default = getattr(self, name, None), getattr(type(self), name, None)
            if value is not None or default is not None:
                bound = "above" if name in _POSITIVE else "least"
                check_number(name, value, **{bound: 0})


class Evidential(Head):
    """A linear layer on the features, and one Dirichlet.

    A subclass says how logits become log α (`log_alpha`), the prior mass of a class in α (`prior`),
    and its loss (`terms`).
    """

    prior: float | None = 1.0
    """Mass of each class in α without evidence; None where α has no such floor.

    A configuration with a field `prior` sets it.
    """

    authors: ClassVar[Mapping[str, float]] = {}
    """Weights of terms that sum over the classes, as their authors chose them.

    They stand where the configuration has None, times `losses.class_share`.
    """

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        self.linear = Linear(num_features, num_classes)
        self.prior = getattr(self.config, "prior", self.prior)
        share = losses.class_share(num_classes)
        self.weights = {name: value * share for name, value in self.authors.items()}
        given = {name: getattr(self.config, name) for name in self.authors}
        self.weights |= {name: value for name, value in given.items() if value is not None}

    def notes(self) -> list[str]:
        """Which weights follow from the number of classes."""
        if losses.class_share(self.num_classes) == 1:
            return []
        return [
            f"{self.num_classes} classes: {name} is {self.weights[name]:g}"
            for name in self.authors
            if getattr(self.config, name) is None
        ]

    def logits(self, z: Tensor) -> Tensor:
        """Features (B, D) to logits (B, C)."""
        return self.linear(z)  # type: ignore[no-any-return]

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Logits (..., C) to log α (..., C): log(softplus(u) + prior), unless a method differs."""
        return torch.log(functional.softplus(logits) + (self.prior or 0.0))

    def kl_weight(self, at: Progress) -> float:
        """The weight of the KL, which rises from 0 over `kl_ramp`."""
        return self.weights["kl_weight"] * at.ramp(0.0, self.config.kl_ramp)

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
        return Belief(
            log_p=log_p,
            log_weight=logits.new_zeros(logits.shape[:2]),
            log_evidence=log_total,
            logits=logits,
            log_prior=None if self.prior is None else logits.new_full((), math.log(self.prior)),
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
        alpha = self.log_alpha(self.logits(z)).exp()
        prior = torch.full_like(alpha, 1.0 if self.prior is None else self.prior)
        return self.config.outlier_weight * dirichlet.kl(alpha, prior).mean()  # type: ignore[no-any-return]
