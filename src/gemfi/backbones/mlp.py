"""A residual perceptron for tabular and toy data."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi.backbones.inputs import check_rows
from gemfi.errors import InputError
from gemfi.spectral import OFF, Linear, Spectral, SpectralLayer


class MLP(nn.Module):
    """One linear layer, then `depth` blocks z + act(W z + b).

    The residual form with bounded W keeps distances: a block stretches by at most 1 + σ(W) and,
    for σ(W) < 1, shrinks by at least 1 − σ(W).

    Args:
        in_features: size of the (flattened) input.
        width: number of features.
        depth: number of residual blocks.
        dropout: rate in each block.
        spectral: how the norms of the blocks are held.
    """

    def __init__(
        self,
        in_features: int,
        width: int = 128,
        depth: int = 4,
        *,
        dropout: float = 0.0,
        spectral: Spectral = OFF,
    ) -> None:
        super().__init__()
        if min(in_features, width) < 1 or depth < 0:
            raise InputError(
                f"mlp needs in_features >= 1, width >= 1 and depth >= 0, got {in_features}, "
                f"{width} and {depth}"
            )
        self.first = Linear(in_features, width, spectral=spectral)
        self.blocks = nn.ModuleList(Linear(width, width, spectral=spectral) for _ in range(depth))
        self.dropout = nn.Dropout(dropout)
        self.num_features = width

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, ...) to (B, width); inputs with more dimensions are flattened."""
        check_rows(x, "mlp", self.first.inputs)
        z: Tensor = self.first(x.flatten(1))
        for block in self.blocks:
            z = z + self.dropout(functional.leaky_relu(block(z)))
        return z

    @torch.no_grad()
    def lipschitz(self) -> float:
        """A bound on ‖z(x) − z(x')‖ / ‖x − x'‖: σ(W₀)·Π(1 + σ(W_i))."""
        bound = _norm(self.first)
        for block in self.blocks:
            bound *= 1 + _norm(block)
        return bound


def _norm(layer: nn.Module) -> float:
    if not isinstance(layer, SpectralLayer):
        raise InputError(f"expected a layer of gemfi.spectral, got {type(layer).__name__}")
    return float(layer.norms().max())
