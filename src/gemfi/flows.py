"""Radial flows: a density for each class, all of them computed at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi import checks


class RadialFlows(nn.Module):
    """One normalising flow a class from z to a standard normal, and with it a density q(z|c).

    A layer pulls the space towards a centre z0 or pushes it away,

        f(z) = z + β̂·h·(z − z0) with h = 1/(α̂ + r) and r = ‖z − z0‖,

    and with α̂ = softplus(a) and β̂ = softplus(b) − α̂ it is invertible. Then
    log q(z|c) = log N(f_L(… f_1(z)); 0, I) + Σ_l log|det ∂f_l|.

    Args:
        num_classes: C, one flow each.
        dimensions: H of z.
        length: L, layers of a flow; 0 leaves the standard normal.
    """

    def __init__(self, num_classes: int, dimensions: int, length: int) -> None:
        super().__init__()
        checks.whole("num_classes", num_classes, 1)
        checks.whole("dimensions", dimensions, 1)
        checks.whole("length", length, 0)
        bound = 1 / math.sqrt(dimensions)

        def start(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(length, num_classes, *shape).uniform_(-bound, bound))

        self.center = start(dimensions)  # (L, C, H), z0
        self.radius = start()  # (L, C), the a of α̂
        self.slope = start()  # (L, C), the b of β̂

    def forward(self, z: Tensor) -> Tensor:
        """Log q(z|c) (B, C) of points (B, H)."""
        moved, log_det = self.transform(z)
        square = moved.square().sum(dim=-1)
        return log_det - 0.5 * square - 0.5 * z.shape[-1] * math.log(2 * math.pi)

    def transform(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Points (B, H) through the flow of every class (B, C, H), and log|det| of it (B, C)."""
        length, classes, dimensions = self.center.shape
        moved = z.unsqueeze(1).expand(-1, classes, -1)
        log_det = z.new_zeros(()).expand(z.shape[0], classes)
        for layer in range(length):
            inner = functional.softplus(self.radius[layer])  # α̂
            outer = functional.softplus(self.slope[layer])  # α̂ + β̂
            away = moved - self.center[layer]
            r = torch.linalg.vector_norm(away, dim=-1)  # (B, C)
            # 1 + β̂h = (r + α̂ + β̂)/(r + α̂) stretches the sphere, and 1 + β̂h + β̂h'r the radius;
            # as quotients of sums of positive numbers neither loses a digit
            log_span = torch.log(r + inner)
            across = torch.log(r + outer) - log_span
            along = torch.log(r * (r + 2 * inner) + inner * outer) - 2 * log_span
            log_det = log_det + (dimensions - 1) * across + along
            moved = self.center[layer] + away * across.exp().unsqueeze(-1)
        return moved, log_det
