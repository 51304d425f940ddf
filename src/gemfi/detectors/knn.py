"""Distance to the k-th nearest training feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gemfi._config import check_int
from gemfi.detectors.base import Detector, DetectorInfo, Observed
from gemfi.diagnostics import knn_distance


@dataclass(frozen=True)
class KNNConfig:
    """Choices of the neighbours.

    Attributes:
        k: which neighbour; with fewer training samples than that, the farthest of them.
    """

    k: int = 50

    def __post_init__(self) -> None:
        check_int("k", self.k, 1)


class KNN(Detector):
    """‖z/‖z‖ − z_(k)/‖z_(k)‖‖ to the k-th nearest training feature z_(k), in float64."""

    info: ClassVar[DetectorInfo] = DetectorInfo(
        name="knn",
        summary="distance to the k-th nearest training feature, on unit-norm features",
        paper="Out-of-Distribution Detection with Deep Nearest Neighbors",
        venue="ICML",
        year=2022,
        needs="features",
    )
    config: KNNConfig
    reference: Tensor
    k: int

    @classmethod
    def default_config(cls) -> KNNConfig:
        """The fiftieth neighbour."""
        return KNNConfig()

    def _fit(self, train: Observed, validation: Observed) -> None:
        self.reference = train.features.to(torch.float64)
        self.k = min(self.config.k, len(train))
        if self.k < self.config.k:
            self.notes = [
                f"k = {self.k} and not {self.config.k}: there are no more training samples"
            ]

    def _score(self, observed: Observed) -> Tensor:
        return knn_distance(observed.features.to(torch.float64), self.reference, self.k)
