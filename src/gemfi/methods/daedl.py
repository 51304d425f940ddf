"""DAEDL: exponential evidence whose logits are scaled down where training data are sparse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gemfi import dirichlet, losses
from gemfi._config import check_number
from gemfi.belief import Belief
from gemfi.density import ClassGaussians, Fitted, Statistics
from gemfi.errors import InputError
from gemfi.methods.base import (
    DataFacts,
    FeatureBatches,
    MethodInfo,
    Progress,
    gather,
    of_each,
)
from gemfi.methods.evidential import Evidential, EvidentialConfig

_LARGEST = 30.0  # of a logit: exp of it and its log-gamma are finite in float32
_LOG_EPSILON = math.log(1e-6)
_ENOUGH = 5  # samples for each dimension, for a covariance of one's own
_LEAST_WIDTH = 1e-6  # of the range, where all training features have the same density


@dataclass(frozen=True)
class DAEDLConfig(EvidentialConfig):
    """Choices of DAEDL.

    Attributes:
        kl_weight: of KL(Dir(α̃) ‖ Dir(1)), from the first step to the last. None is the authors'
            0.05 for up to ten classes and less for more (`losses.class_share`).
        shrinkage: of each class covariance towards that of all classes. None is the authors' 0, but
            1 where a class has fewer than five samples a feature: with a covariance of its own, new
            ID inputs would lie below every density seen in training, where λ = 0 and p is uniform.
        ridge: added to the diagonal of each class covariance, in units of the mean variance. The
            authors add the least with which a Cholesky factorisation succeeds, often nothing.
    """

    kl_weight: float | None = None
    shrinkage: float | None = None
    ridge: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shrinkage is not None:
            check_number("shrinkage", self.shrinkage, 0, 1)
        check_number("ridge", self.ridge, 1e-9)


class _EqualGaussians(ClassGaussians):
    """log Σ_c N(z; μ_c, Σ_c): every class counts alike, whatever its share of the data."""

    @torch.no_grad()
    def fit(self, statistics: Statistics) -> None:
        """As `ClassGaussians`, then without the log share of each class that has samples."""
        super().fit(statistics)
        share = statistics.count / statistics.count.sum()
        self.log_norm.sub_(torch.where(share > 0, share, 1.0).log())


class DensityRange(Fitted):
    """λ(z) = clip((log q(z) − min)/(max − min), 0, 1), with the range on training features.

    In float64: without shrinkage a class covariance may have directions that float32 cannot tell
    from none.
    """

    high: Tensor
    width: Tensor

    def __init__(self, num_classes: int, num_features: int, config: DAEDLConfig) -> None:
        super().__init__()
        self.shrinkage = config.shrinkage
        self.gaussians = _EqualGaussians(
            num_classes, num_features, shrinkage=config.shrinkage or 0.0, ridge=config.ridge
        )
        self.register_buffer("high", torch.zeros(()))
        self.register_buffer("width", torch.ones(()))
        self.double()

    @torch.no_grad()
    def fit(self, batches: FeatureBatches) -> list[str]:
        """Fit the density, then its range, on the same features; returns notes."""
        statistics = gather(self.gaussians.statistics(), batches, lambda z: z)
        notes = []
        if self.shrinkage is None:
            few = (statistics.count > 0) & (statistics.count < _ENOUGH * len(statistics.origin))
            self.gaussians.shrinkage = float(few.any())
            if few.any():
                notes.append(
                    f"one covariance for all classes: some have fewer than {_ENOUGH} samples for "
                    "each of the features; shrinkage=0 gives each its own"
                )
        self.gaussians.fit(statistics)
        ends = list(of_each(batches, lambda z, _: torch.stack(torch.aminmax(self.log_density(z)))))
        if not ends:
            raise InputError(
                "the density needs two walks through the features: give a list, not an iterator"
            )
        low, high = torch.stack(ends, dim=1)
        self.high.copy_(high.max())
        self.width.copy_((high.max() - low.min()).clamp_min(_LEAST_WIDTH))
        self.mark_fitted()
        return [*notes, *self.gaussians.notes]

    def log_density(self, z: Tensor) -> Tensor:
        """Log q(z) (B,)."""
        return self.gaussians(z.to(self.high.dtype))  # type: ignore[no-any-return]

    def forward(self, log_density: Tensor) -> Tensor:
        """λ (B,) of log densities (B,)."""
        return (1 - (self.high - log_density) / self.width).clamp(0, 1)


class DAEDL(Evidential):
    """Trained with α = 10⁻⁶ + exp u, asked with α = exp(λ(z)·u), where λ is 0 off the support.

    λ scales logits and so changes p too: off the support p is uniform and α0 = C. Before the
    density is fitted λ is one. Unlike the authors' code: the loss is a mean over the batch and not
    a sum, the density is fitted without augmentation, logits end at 30 (theirs overflow at 88), and
    see `ridge`.
    """

    prior = None
    info = MethodInfo(
        name="daedl",
        label="DAEDL",
        summary="exponential evidence, logits scaled by the density of the features",
        paper="Uncertainty Estimation by Density Aware Evidential Deep Learning",
        venue="ICML",
        year=2024,
    )
    authors: ClassVar[Mapping[str, float]] = {"kl_weight": 5e-2}
    default = DAEDLConfig()

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        self.density = DensityRange(num_classes, num_features, self.config)

    def prepare(self, facts: DataFacts) -> None:
        """Forget the density of an earlier training."""
        self.density.mark_fitted(fitted=False)

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Log(10⁻⁶ + exp u), as in training."""
        logits = logits.clamp(max=_LARGEST)
        return torch.logaddexp(logits, logits.new_full((), _LOG_EPSILON))

    def forward(self, z: Tensor) -> Belief:
        """One Dirichlet, after the density is fitted with scaled logits; `logits` has them bare."""
        logits = self.linear(z).clamp(max=_LARGEST)
        scaled, log_density = logits, None
        if self.density.fitted:
            log_density = self.density.log_density(z)
            scaled = logits * self.density(log_density).to(logits.dtype).unsqueeze(1)
            log_density = log_density.to(logits.dtype)
        log_p, log_total = dirichlet.log_mean(scaled.unsqueeze(1))
        return Belief(
            log_p=log_p,
            log_weight=torch.zeros_like(log_total),
            log_evidence=log_total,
            log_density=log_density,
            logits=logits.unsqueeze(1),
        )

    def terms(self, log_alpha: Tensor, y: Tensor, at: Progress) -> dict[str, Tensor]:
        """Risk of squared error and KL, neither annealed nor scaled."""
        log_p, log_total = dirichlet.log_mean(log_alpha)
        return {
            "risk": losses.evidential_risk(log_p, log_total, y, "mse"),
            "kl": self.weights["kl_weight"] * losses.kl_misleading_to(log_alpha, y, 1.0),
        }

    def fit_statistics(self, train: FeatureBatches, validation: FeatureBatches | None) -> list[str]:
        """Fit the density and its range on training features; count where λ = 0 on validation."""
        notes = self.density.fit(train)
        if validation is None:
            return notes
        with torch.no_grad():
            scale = torch.cat(
                list(of_each(validation, lambda z, _: self.density(self.density.log_density(z))))
            )
        share = 100 * float((scale == 0).double().mean())
        if share < 1:
            return notes
        note = (
            f"λ = 0 for {share:.0f} % of the validation inputs: they are less dense than any "
            "training feature, so p is uniform there and the label arbitrary"
        )
        if self.density.gaussians.shrinkage < 1:
            note += "; with few samples a class set shrinkage=1, for one covariance of all classes"
        return [*notes, note]
