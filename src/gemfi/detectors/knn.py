"""Distance to the k-th nearest training feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from gemfi._config import check_int
from gemfi.detectors.base import Detector, DetectorInfo, Observed
from gemfi.errors import InputError

_BLOCK = 1 << 24  # distances held at a time


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
    default: ClassVar[KNNConfig] = KNNConfig()
    config: KNNConfig
    reference: Tensor
    k: int

    def _fit(self, train: Observed, validation: Observed) -> None:
        self.reference = train.features.to(torch.float64)
        self.k = min(self.config.k, len(train))
        if self.k < self.config.k:
            self.notes = [
                f"k = {self.k} and not {self.config.k}: there are no more training samples"
            ]

    def _score(self, observed: Observed) -> Tensor:
        return knn_distance(observed.features.to(torch.float64), self.reference, self.k)


def knn_distance(z: Tensor, reference: Tensor, k: int = 10, *, unit: bool = True) -> Tensor:
    """Distance (B,) from each feature (B, D) to its k-th nearest neighbour in `reference` (N, D).

    For features that are themselves in `reference` the nearest neighbour is the feature itself.

    Args:
        z: features.
        reference: training features.
        k: which neighbour.
        unit: scale both to unit norm first.
    """
    if len(z) == 0:
        raise InputError("no features were given")
    if not 1 <= k <= len(reference):
        raise InputError(f"k must lie in 1 to {len(reference)} (the reference features), got {k}")
    if unit:
        z, reference = functional.normalize(z, dim=-1), functional.normalize(reference, dim=-1)
    rows = max(1, _BLOCK // len(reference))
    nearest = [
        torch.cdist(z[start : start + rows], reference).topk(k, dim=1, largest=False).values[:, -1]
        for start in range(0, len(z), rows)
    ]
    return torch.cat(nearest)
