"""The norms of a model's layers."""

from __future__ import annotations

from torch import Tensor, nn

from gemfi.spectral import SpectralLayer


def spectral_norms(module: nn.Module) -> dict[str, Tensor]:
    """Norm of every linear or convolutional operator by name, as evaluation uses it."""
    return {
        name: layer.norms()
        for name, layer in module.named_modules()
        if isinstance(layer, SpectralLayer)
    }
