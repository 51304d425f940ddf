"""No backbone: the features are the inputs, as for features that were extracted before."""

from __future__ import annotations

from torch import Tensor, nn

from gemfi.backbones.inputs import check_rows
from gemfi.errors import InputError
from gemfi.spectral import OFF, Spectral


class Identity(nn.Module):
    """z = x: a head directly on features that are at hand, such as those of `gemfi_bench.frozen`.

    Args:
        in_features: size D of the (flattened) input.
        dropout: rate, on the features.
        spectral: without effect, as there is no layer to hold; every backbone takes it.
    """

    def __init__(
        self,
        in_features: int,
        *,
        dropout: float = 0.0,
        spectral: Spectral = OFF,
    ) -> None:
        super().__init__()
        if in_features < 1:
            raise InputError(f"identity needs in_features >= 1, got {in_features}")
        self.dropout = nn.Dropout(dropout)
        self.num_features = in_features

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, ...) to (B, D); inputs with more dimensions are flattened."""
        check_rows(x, "identity", self.num_features)
        z: Tensor = self.dropout(x.flatten(1))
        return z
