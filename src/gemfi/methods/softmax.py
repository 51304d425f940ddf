"""Softmax with cross-entropy: the classifier that everything is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from gemfi.belief import Belief
from gemfi.methods.base import Batch, Head, MethodInfo, Progress
from gemfi.spectral import Linear


@dataclass(frozen=True)
class SoftmaxConfig:
    """Nothing to set."""


class Softmax(Head):
    """p = softmax(W z + b), trained by −log p_y."""

    info: ClassVar[MethodInfo] = MethodInfo(
        name="softmax",
        label="Softmax",
        summary="cross-entropy, one linear layer; epistemic score = energy of the logits",
        paper="A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural "
        "Networks",
        venue="ICLR",
        year=2017,
        epistemic="logit_energy",
    )
    config_class = SoftmaxConfig

    def __init__(
        self, num_features: int, num_classes: int, config: SoftmaxConfig | None = None
    ) -> None:
        super().__init__(num_features, num_classes, config)
        self.linear = Linear(num_features, num_classes)

    def forward(self, z: Tensor) -> Belief:
        """One component without evidence."""
        logits = self.linear(z).unsqueeze(1)
        return Belief(
            log_p=torch.log_softmax(logits, dim=-1),
            log_weight=logits.new_zeros(logits.shape[:2]),
            logits=logits,
        )

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Cross-entropy."""
        del at
        return {"nll": functional.cross_entropy(self.linear(batch.z), batch.y)}
