"""CEDL+: evidential learning for OOD detection in a stream of tasks, here for one task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from gemfi import dirichlet, losses
from gemfi._config import check_number
from gemfi.methods.base import MethodInfo, Progress
from gemfi.methods.evidential import Evidential, EvidentialConfig

_PAPER = "CEDL+: Exploiting evidential deep learning for continual out-of-distribution detection"


@dataclass(frozen=True)
class CEDLPlusConfig(EvidentialConfig):
    """Choices of CEDL+.

    Attributes:
        kl_weight: w in (1 − w)·risk + w·c(t)·KL(Dir(α̃) ‖ Dir(1)).
        kl_start: c at the start of training; it grows exponentially, to 1 at the end.
    """

    kl_weight: float = 0.1
    kl_start: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("kl_weight", self.kl_weight, 0, 1)
        check_number("kl_start", self.kl_start, most=1, above=0)


class CEDLPlus(Evidential):
    """α = exp(W z + b) + 1; the log risk and a KL whose weight grows exponentially.

    This is the objective within one task. The rest of the method is for a sequence of tasks and has
    nothing to act on here: replay of stored samples, distillation from the model before, a KL on
    new classes alone (in the first task all are new), the order of tasks. Code is public for the
    workshop paper's CEDL only, and this follows it; what CEDL+ changes could not be checked, nor
    could the numbers that are reported for it on MNIST and CIFAR-10. CEDL clips logits at ±10 from
    its second task on; here they are always clipped, so that exp cannot overflow.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        name="cedl-plus",
        label="CEDL+",
        summary="log risk with a KL that grows exponentially; the single-task part of CEDL+",
        paper=_PAPER,
        venue="Expert Systems with Applications",
        year=2025,
        aleatoric="dissonance",
        epistemic="vacuity",
    )
    config_class = CEDLPlusConfig
    config: CEDLPlusConfig

    def notes(self) -> list[str]:
        """What a single task leaves out."""
        single = (
            "cedl-plus on a single task: no replay, no distillation, no order of tasks, and the KL "
            "on every class; it follows the public code of CEDL, as there is none of CEDL+"
        )
        return [single]

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Log(exp u + 1), with u clipped at ±10."""
        return functional.softplus(logits.clamp(-10, 10))

    def terms(self, log_alpha: Tensor, y: Tensor, at: Progress) -> dict[str, Tensor]:
        """Log risk and KL."""
        log_p, log_total = dirichlet.log_mean(log_alpha)
        weight, growth = self.config.kl_weight, self.config.kl_start ** (1 - at.fraction)
        return {
            "risk": (1 - weight) * losses.evidential_risk(log_p, log_total, y, "log"),
            "kl": weight * growth * losses.kl_misleading(log_alpha, y),
        }
