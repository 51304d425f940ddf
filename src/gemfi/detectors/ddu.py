"""Deep deterministic uncertainty: the density of the features under one Gaussian a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gemfi._config import check_number
from gemfi.density import ClassGaussians, Covariance
from gemfi.detectors.base import BATCH, Detector, DetectorInfo, Observed, labels_of


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
    config: DDUConfig
    gaussians: ClassGaussians

    @classmethod
    def default_config(cls) -> DDUConfig:
        """Full covariances with a small ridge."""
        return DDUConfig()

    def _fit(self, train: Observed, validation: Observed) -> None:
        config = self.config
        self.gaussians = fitted_gaussians(train, "class", config.shrinkage, config.ridge)
        self.notes = list(self.gaussians.notes)

    def _score(self, observed: Observed) -> Tensor:
        # in pieces: whitened features are (B, C·D)
        pieces = torch.split(observed.features.to(torch.float64), BATCH)
        return -torch.cat([self.gaussians(piece) for piece in pieces])


def fitted_gaussians(
    train: Observed, covariance: Covariance, shrinkage: float, ridge: float
) -> ClassGaussians:
    """Gaussians in float64 on the features of training data."""
    labels, classes = labels_of(train), train.logits.shape[1]
    gaussians = ClassGaussians(
        classes,
        train.features.shape[1],
        covariance=covariance,
        shrinkage=shrinkage,
        ridge=ridge,
    ).to(train.features.device, torch.float64)
    statistics = gaussians.statistics()
    statistics.update(train.features, labels)
    gaussians.fit(statistics)
    return gaussians
