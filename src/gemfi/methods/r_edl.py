"""R-EDL: EDL with a prior that is a setting, and without the variance term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gemfi import dirichlet, losses
from gemfi._config import check_number
from gemfi.methods.base import MethodInfo, Progress
from gemfi.methods.evidential import Evidential, EvidentialConfig, log_softplus_evidence


@dataclass(frozen=True)
class REDLConfig(EvidentialConfig):
    """Choices of R-EDL.

    Attributes:
        prior: λ, the mass of each class in α without any evidence.
        kl_weight: of KL(Dir(α̃) ‖ Dir(λ)) once it has risen. None is the authors' 1 for up to ten
            classes and less for more (`losses.class_share`).
        kl_ramp: fraction of training over which that weight rises from 0. The authors take 10
            epochs of 60 or 200; in a run of 20 epochs on digits all evidence dies within half of
            it, so the default is the whole.
    """

    prior: float = 0.1
    kl_weight: float | None = None
    kl_ramp: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("prior", self.prior, above=0)
        if self.kl_weight is not None:
            check_number("kl_weight", self.kl_weight, 0)
        check_number("kl_ramp", self.kl_ramp, 0)


class REDL(Evidential):
    """α = softplus(W z + b) + λ; squared error of the mean and an annealed KL to Dir(λ).

    With λ below one a class needs less evidence to be believed: p can come close to one-hot.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        name="r-edl",
        label="R-EDL",
        summary="EDL with a prior of 0.1 a class and without the variance term",
        paper="R-EDL: Relaxing Nonessential Settings of Evidential Deep Learning",
        venue="ICLR",
        year=2024,
    )
    authors: ClassVar[Mapping[str, float]] = {"kl_weight": 1.0}
    config_class = REDLConfig
    config: REDLConfig

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Log(softplus(u) + λ)."""
        return log_softplus_evidence(logits, self.config.prior)

    def terms(self, log_alpha: Tensor, y: Tensor, at: Progress) -> dict[str, Tensor]:
        """Squared error and annealed KL."""
        log_p, _ = dirichlet.log_mean(log_alpha)
        weight = self.weights["kl_weight"] * at.ramp(0.0, self.config.kl_ramp)
        return {
            "squared_error": losses.squared_error(log_p, y),
            "kl": weight * losses.kl_misleading_to(log_alpha, y, self.config.prior),
        }
