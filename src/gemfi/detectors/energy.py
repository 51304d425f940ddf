"""Energy of the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gemfi._config import check_number
from gemfi.detectors.base import Detector, DetectorInfo, Observed


@dataclass(frozen=True)
class EnergyConfig:
    """Choices of the energy.

    Attributes:
        temperature: T.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, above=0)


class Energy(Detector):
    """−T·log Σ_c exp(f_c/T)."""

    info: ClassVar[DetectorInfo] = DetectorInfo(
        name="energy",
        summary="minus the logsumexp of the logits",
        paper="Energy-based Out-of-distribution Detection",
        venue="NeurIPS",
        year=2020,
        needs="logits",
        unnormalised=True,
    )
    default: ClassVar[EnergyConfig] = EnergyConfig()
    config: EnergyConfig

    def _score(self, observed: Observed) -> Tensor:
        temperature = self.config.temperature
        return -temperature * torch.logsumexp(observed.logits / temperature, dim=1)
