"""Re-EDL: EDL with neither the variance term nor the KL; what is left is the prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gemfi import dirichlet, losses
from gemfi._config import check_number
from gemfi.methods.base import MethodInfo, Progress
from gemfi.methods.evidential import Evidential, EvidentialConfig, log_softplus_evidence


@dataclass(frozen=True)
class ReEDLConfig(EvidentialConfig):
    """Choices of Re-EDL.

    Attributes:
        prior: λ, the mass of each class in α without any evidence; the authors take 0.8 for
            CIFAR-10 and 0.1 for MNIST.
    """

    prior: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("prior", self.prior, above=0)


class ReEDL(Evidential):
    """α = softplus(W z + b) + λ; the squared error of the mean alone."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="re-edl",
        label="Re-EDL",
        summary="EDL of the squared error alone, with a prior that is a setting",
        paper="Revisiting Essential and Nonessential Settings of Evidential Deep Learning",
        venue="TPAMI",
        year=2025,
    )
    config_class = ReEDLConfig
    config: ReEDLConfig

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Log(softplus(u) + λ)."""
        return log_softplus_evidence(logits, self.config.prior)

    def terms(self, log_alpha: Tensor, y: Tensor, at: Progress) -> dict[str, Tensor]:
        """Squared error."""
        log_p, _ = dirichlet.log_mean(log_alpha)
        return {"squared_error": losses.squared_error(log_p, y)}
