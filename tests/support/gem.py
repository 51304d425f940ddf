"""What the tests of the GEM head share: features, its perceptrons by hand, its objective."""

from __future__ import annotations

import torch
from torch import Tensor

from gemfi.methods import GEMFI, Batch, Progress

D, C, B = 12, 4, 16
MIDDLE = Progress(50, 100)


def features(seed: int = 0, count: int = B) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, D, generator=generator)
    return z, torch.randint(C, (count,), generator=generator)


def perceptron(module: torch.nn.Module, x: Tensor, head: int | None = None) -> Tensor:
    """A perceptron of the head, one matrix at a time."""
    last = len(module.layers) - 1
    for index, layer in enumerate(module.layers):
        weight, bias = layer.weight, layer.bias
        sigma = layer.sigma if hasattr(layer, "sigma") else torch.ones(len(weight))
        if head is not None:
            weight, bias, sigma = weight[head], bias[head], sigma[head]
        weight = weight / max(1.0, float(sigma.max()))
        x = x @ weight.T + bias
        if index < last:
            x = torch.where(x > 0, x, 0.1 * x)
    return x


def objective(head: GEMFI, *, outliers: bool = True, at: Progress = MIDDLE) -> dict[str, Tensor]:
    z, y = features()
    outside = features(1, 5)[0].double() if outliers else None
    return head.objective(Batch(z.double(), y, outside), at)
