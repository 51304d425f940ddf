"""Deep deterministic uncertainty: the density of the features under one Gaussian a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gemfi._config import check_number
from gemfi.density import ClassGaussians
from gemfi.detectors.base import BATCH, Detector, DetectorInfo, Observed


@dataclass(frozen=True)
class DDUConfig:
    """Choices of the density.

    Attributes:
        shrinkage: of each covariance towards the tied one; the paper has none.
        ridge: added to each diagonal, in units of the mean variance; it alone gives full rank to
            the covariance of a class with no more samples than features.
    """

    shrinkage: float = 0.0
    ridge: float = 1e-4

    def __post_init__(self) -> None:
        check_number("shrinkage", self.shrinkage, 0, 1)
        check_number("ridge", self.ridge, above=0)


class DDU(Detector):
    """−log Σ_c π_c N(z; μ_c, Σ_c) on raw features, in float64."""

    info: ClassVar[DetectorInfo] = DetectorInfo(
        name="ddu",
        summary="minus the log density of the features, one Gaussian a class",
        paper="Deep Deterministic Uncertainty: A New Simple Baseline",
        venue="CVPR",
        year=2023,
        needs="features",
    )
    default: ClassVar[DDUConfig] = DDUConfig()
    config: DDUConfig
    gaussians: ClassGaussians

    def _fit(self, train: Observed, validation: Observed) -> None:
        config = self.config
        self.gaussians = fitted_gaussians(train, shrinkage=config.shrinkage, ridge=config.ridge)
        self.notes = list(self.gaussians.notes)

    def _score(self, observed: Observed) -> Tensor:
        # in pieces: whitened features are (B, C·D)
        pieces = torch.split(observed.features.to(torch.float64), BATCH)
        return -torch.cat([self.gaussians(piece) for piece in pieces])


def empty_gaussians(num_classes: int, z: Tensor, **options: Any) -> ClassGaussians:
    """Gaussians in float64 for features like z (B, D), with options of `ClassGaussians`."""
    gaussians = ClassGaussians(num_classes, z.shape[1], **options)
    return gaussians.to(z.device, torch.float64)


def fitted_gaussians(train: Observed, **options: Any) -> ClassGaussians:
    """Gaussians on the features of training data."""
    gaussians = empty_gaussians(train.logits.shape[1], train.features, **options)
    statistics = gaussians.statistics()
    statistics.update(train.features, train.required_split.labels)
    gaussians.fit(statistics)
    return gaussians
