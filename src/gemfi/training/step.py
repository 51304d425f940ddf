"""One training step as one module, so that DistributedDataParallel sees all of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gemfi.methods.base import Batch, Progress
from gemfi.model import Model, check_width
from gemfi.outliers import OutlierConfig, scramble, synthesiser


class NonFiniteFeaturesError(ArithmeticError):
    """The backbone returned NaN or infinite features."""


class TrainingStep(nn.Module):
    """Inputs to named loss terms: backbone, outliers, objective.

    Args:
        model: what is trained.
        outliers: what to synthesise; the head's own wish where None.
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
        weight = at.ramp(self.outliers.start, self.outliers.ramp)
        extra = [] if auxiliary is None else [auxiliary]
        if weight > 0 and not self.outliers.is_none:
            made = scramble(x, y, round(self.outliers.scrambled * len(x)), generator)
            extra += [] if made is None else [made]
        inputs = torch.cat([x, *extra]) if extra else x
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            z = self.model.features(inputs)
        check_width(z, self.model.head.num_features)
        if not bool(torch.isfinite(z).all()):
            raise NonFiniteFeaturesError
        inside = z[: len(x)]
        outliers = [self.model.head.embed(z[len(x) :])] if extra else []
        if self.synthesiser is not None:
            seen = self.model.head.embed(inside.detach())
            self.synthesiser.observe(seen, y)
            made = self.synthesiser.sample(seen, y, generator) if weight > 0 else None
            outliers += [] if made is None else [made]
        outside = torch.cat(outliers) if outliers else None
        return self.model.head.objective(Batch(inside, y, outside, weight), at)
