"""Several backbones side by side, for an ensemble."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gemfi.errors import InputError


class Stack(nn.Module):
    """The features of M backbones of one width D, one after the other: (B, M·D).

    Args:
        members: modules that return (B, D); no two share a parameter.
        num_features: D, where they do not carry it as `num_features`.
    """

    def __init__(self, members: Sequence[nn.Module], num_features: int | None = None) -> None:
        super().__init__()
        widths = {getattr(member, "num_features", num_features) for member in members}
        if len(widths) != 1 or not isinstance(width := widths.pop(), int):
            raise InputError(
                "a stack needs at least one backbone, and all of one integer `num_features`: give "
                "num_features=D where they do not carry it"
            )
        self.members = nn.ModuleList(members)
        if len({id(each) for each in self.parameters()}) < sum(
            len(list(member.parameters())) for member in members
        ):
            raise InputError("the members of a stack share parameters; build each of them anew")
        self.num_features = width * len(members)

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) to (B, M·D)."""
        return torch.cat([member(x) for member in self.members], dim=1)
