"""A backbone that does not learn."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from gemfi.backbones.tokens import Tokens, tokens_of
from gemfi.errors import InputError


class Frozen(nn.Module):
    """A backbone as it is: no gradient for its weights, and always in evaluation mode.

    So the statistics of its batch norms stay, and its dropout is off, also while a head learns on
    its features. `fit` computes these once, and not in every epoch.

        >>> model = build_model("gem-fi", Frozen(backbone), num_classes=10)

    Args:
        backbone: maps inputs to (B, D). Its parameters no longer ask for gradients.
        num_features: D, where it does not carry it as `num_features`.
    """

    def __init__(self, backbone: nn.Module, num_features: int | None = None) -> None:
        super().__init__()
        width = getattr(backbone, "num_features", None) if num_features is None else num_features
        if not isinstance(width, int):
            raise InputError(
                f"{type(backbone).__name__} has no `num_features`: give Frozen num_features=D"
            )
        self.backbone = backbone.requires_grad_(False).eval()
        self.num_features = width

    @property
    def tokens(self) -> Tokens | None:
        """Those of the backbone."""
        return tokens_of(self.backbone)

    def train(self, mode: bool = True) -> Self:
        """The backbone stays in evaluation mode whatever is asked for."""
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) to (B, D); with a gradient only where x itself asks for one, as ODIN's does."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and x.requires_grad):
            z: Tensor = self.backbone(x)
        return z


def is_frozen(backbone: nn.Module) -> bool:
    """Whether the features of an input are the same before, during and after training."""
    return isinstance(backbone, Frozen)


def cannot_learn(backbone: nn.Module) -> bool:
    """Whether it has weights, and none of them asks for a gradient."""
    wanted = [each.requires_grad for each in backbone.parameters()]
    return bool(wanted) and not any(wanted)
