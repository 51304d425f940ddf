"""Logit scaling: logits are scaled by how much of the activation is in a few features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from gemfi._config import check_number
from gemfi.detectors.base import Detector, DetectorInfo, Observed


@dataclass(frozen=True)
class LTSConfig:
    """Choices of LTS.

    Attributes:
        percentile: p; the strongest features are the k = n − round(n·p/100) largest of n, and at
            least one.
    """

    percentile: float = 95.0

    def __post_init__(self) -> None:
        check_number("percentile", self.percentile, 0, 100)


class LTS(Detector):
    """−log Σ_c exp(S·f_c), S = (Σ relu(h) / Σ of the k largest relu(h))².

    Features without any activation leave the logits as they are (S = 1).
    """

    info: ClassVar[DetectorInfo] = DetectorInfo(
        name="lts",
        summary="energy of logits scaled by the share of the strongest features",
        paper="Logit Scaling for Out-of-Distribution Detection",
        venue="Machine Vision and Applications",
        year=2025,
        needs="features",
        unnormalised=True,
    )
    default: ClassVar[LTSConfig] = LTSConfig()
    config: LTSConfig

    def _score(self, observed: Observed) -> Tensor:
        scale = activation_scale(observed.features, self.config.percentile)
        return -torch.logsumexp(scale.unsqueeze(1) * observed.logits, dim=1)


def activation_scale(features: Tensor, percentile: float) -> Tensor:
    """S (N,) of features (N, n), in float64."""
    active = functional.relu(features.to(torch.float64))
    count = active.shape[1]
    strongest = max(1, count - round(count * percentile / 100))
    top = active.topk(strongest, dim=1).values.sum(dim=1)
    return torch.where(top > 0, active.sum(dim=1) / top, 1.0).square()
