"""ODIN: a high temperature, and a small step of the input towards its predicted class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from gemfi import metrics
from gemfi._config import check_number
from gemfi.data import Role, Split, require_role
from gemfi.detectors.base import Detector, DetectorInfo, joint_logits, perturbed
from gemfi.errors import InputError
from gemfi.model import Model

CANDIDATES = (0.0, 0.0005, 0.0014, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Steps that `choose_epsilon` tries."""


@dataclass(frozen=True)
class ODINConfig:
    """Choices of ODIN.

    Attributes:
        temperature: T.
        epsilon: the step, in the units of the inputs before the normalisation, bytes as [0, 1];
            0 leaves the temperature alone. The default is the paper's, of 32×32 photographs.
    """

    temperature: float = 1000.0
    epsilon: float = 0.0014

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, above=0)
        check_number("epsilon", self.epsilon, 0)


class ODIN(Detector):
    """1 − max_c softmax(f(x̃)/T)_c at x̃ = x − ε·sign(∇_x −log softmax(f(x)/T)_ŷ).

    ŷ is the predicted class. Two forward passes and one backward pass an input.
    """

    info: ClassVar[DetectorInfo] = DetectorInfo(
        name="odin",
        summary="1 − the largest probability at T = 1000 after a step towards the predicted class",
        paper="Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks",
        venue="ICLR",
        year=2018,
        needs="inputs",
    )
    default: ClassVar[ODINConfig] = ODINConfig()
    config: ODINConfig

    def _score_batch(self, model: Model, x: Tensor) -> Tensor:
        temperature = self.config.temperature

        def loss(inputs: Tensor) -> Tensor:
            logits = joint_logits(model(inputs)) / temperature
            return functional.cross_entropy(logits, logits.argmax(dim=1), reduction="none")

        moved = perturbed(x, self.config.epsilon, loss)
        with torch.no_grad():
            # in float64: at T = 1000 all that tells inputs apart is in the last digits
            logits = joint_logits(model(moved).to(torch.float64)) / temperature
        p = torch.softmax(logits, dim=1)
        return p.scatter(1, p.argmax(dim=1, keepdim=True), 0.0).sum(dim=1)

    @classmethod
    def choose_epsilon(
        cls,
        model: Model,
        inside: Split,
        outside: Split | None = None,
        *,
        temperature: float = 1000.0,
        candidates: Sequence[float] = CANDIDATES,
    ) -> float:
        """The step for this model, without looking at test data.

        From ID data alone it is the one of the largest mean of max_c p (Generalised ODIN); with OOD
        validation data, the one of the largest AUROC. Of equals, the smallest.

        Args:
            model: trained.
            inside: role validation.
            outside: role ood-validation, or None.
            temperature: T.
            candidates: steps to try.
        """
        require_role(inside, (Role.VALIDATION,), "the choice of ODIN's step as ID data")
        if outside is not None:
            use = "the choice of ODIN's step as OOD data"
            require_role(outside, (Role.OOD_VALIDATION,), use)
        if not candidates:
            raise InputError("choose_epsilon needs at least one candidate, got none")

        def worth(epsilon: float) -> float:
            detector = cls(ODINConfig(temperature, epsilon))
            base = detector.score_inputs(model, inside.x)
            if outside is None:
                return -float(base.mean())
            return metrics.auroc(base, detector.score_inputs(model, outside.x))

        return max(sorted(candidates), key=worth)
