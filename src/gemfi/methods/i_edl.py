"""I-EDL: EDL whose errors are weighted by the Fisher information of each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gemfi import losses
from gemfi._config import check_number
from gemfi.methods.base import MethodInfo, Progress
from gemfi.methods.evidential import Evidential, EvidentialConfig, log_softplus_evidence


@dataclass(frozen=True)
class IEDLConfig(EvidentialConfig):
    """Choices of I-EDL.

    Attributes:
        fisher_weight: of −log det of the Fisher information, which keeps evidence from growing
            everywhere; the authors take 0.005 for MNIST and 0.05 for CIFAR-10. None is 0.05 for up
            to ten classes and less for more (`losses.class_share`).
        kl_weight: of KL(Dir(α̃) ‖ Dir(1)) once it has risen; None is the authors' 1, likewise.
        kl_ramp: fraction of training over which that weight rises from 0; the authors take 10
            epochs of up to 200.
    """

    fisher_weight: float | None = None
    kl_weight: float | None = None
    kl_ramp: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fisher_weight", "kl_weight"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 0)
        check_number("kl_ramp", self.kl_ramp, 0)


class IEDL(Evidential):
    """α = softplus(W z + b) + 1; squared error and variance of class c are weighted by ψ1(α_c).

    ψ1 falls with α, so a class with little evidence counts for more.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        name="i-edl",
        label="I-EDL",
        summary="EDL with errors weighted by the Fisher information of each class",
        paper="Uncertainty Estimation by Fisher Information-based Evidential Deep Learning",
        venue="ICML",
        year=2023,
    )
    authors: ClassVar[Mapping[str, float]] = {"fisher_weight": 0.05, "kl_weight": 1.0}
    config_class = IEDLConfig
    config: IEDLConfig

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Log(softplus(u) + 1)."""
        return log_softplus_evidence(logits, 1.0)

    def terms(self, log_alpha: Tensor, y: Tensor, at: Progress) -> dict[str, Tensor]:
        """Weighted error and variance, −log det, annealed KL."""
        error, variance = losses.trigamma_risk(log_alpha, y)
        weight = self.weights["kl_weight"] * at.ramp(0.0, self.config.kl_ramp)
        return {
            "squared_error": error,
            "variance": variance,
            "fisher": -self.weights["fisher_weight"] * losses.fisher_log_det(log_alpha),
            "kl": weight * losses.kl_misleading(log_alpha, y),
        }
