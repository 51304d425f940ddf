"""The loss of a method as one module, and the optimiser of its parameters."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from gemfi.methods.base import Batch, Progress
from gemfi.model import Model, check_width
from gemfi.outliers import OutlierConfig, scramble, synthesiser
from gemfi.training.config import TrainConfig

_MOMENTUM: Final = 0.9


class NonFiniteFeaturesError(ArithmeticError):
    """The backbone returned NaN or infinite features."""


class Objective(nn.Module):
    """Inputs to named loss terms: backbone, outliers, objective of the head.

    All of a step goes through its `forward`, so that DistributedDataParallel sees it.

    Args:
        model: what is trained.
        outliers: what to synthesise. Defaults to `model.head.outliers`.
        bf16: run the backbone under bfloat16 autocast.
    """

    def __init__(
        self, model: Model, outliers: OutlierConfig | None = None, *, bf16: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        self.bf16 = bf16
        self.outliers = model.head.outliers if outliers is None else outliers
        self.synthesiser = synthesiser(
            self.outliers, model.head.num_classes, model.head.num_features
        )

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        auxiliary: Tensor | None,
        at: Progress,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """The terms of the loss on inputs x with labels y and, perhaps, auxiliary outliers."""
        head = self.model.head
        weight = at.ramp(self.outliers.start, self.outliers.ramp)
        extra = [] if auxiliary is None else [auxiliary]
        if weight > 0 and not self.outliers.is_none:
            scrambled = scramble(x, y, round(self.outliers.scrambled * len(x)), generator)
            extra += [] if scrambled is None else [scrambled]
        inputs = torch.cat([x, *extra]) if extra else x
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            z = self.model.features(inputs)
        check_width(z, head.num_features)
        if not bool(torch.isfinite(z).all()):
            raise NonFiniteFeaturesError
        inside = z[: len(x)]
        outliers = [head.embed(z[len(x) :])] if extra else []
        if self.synthesiser is not None:
            embedded = head.embed(inside.detach())
            self.synthesiser.observe(embedded, y)
            made = self.synthesiser.sample(embedded, y, generator) if weight > 0 else None
            outliers += [] if made is None else [made]
        outside = torch.cat(outliers) if outliers else None
        return head.objective(Batch(inside, y, outside, weight), at)


def make_optimizer(model: Model, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser of a configuration, with weight decay on weight matrices alone."""
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        matrix = name.endswith("weight") and parameter.ndim > 1
        (decayed if matrix else others).append(parameter)
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "sgd":
        # never fused: that wants every momentum at once, and some parameters meet a loss late
        return torch.optim.SGD(groups, lr=rate, weight_decay=decay, momentum=_MOMENTUM)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, lr=rate, weight_decay=decay, fused=True)
