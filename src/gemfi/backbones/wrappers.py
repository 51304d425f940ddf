"""What stands around a network: several side by side, one that does not learn, one for texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from gemfi._config import check_int
from gemfi.errors import InputError


@dataclass(frozen=True)
class Tokens:
    """A backbone with an attribute `tokens` of this kind takes integers (B, L) in place of numbers.

    Ids are below `vocabulary`; `pad` fills short texts up and stands for nothing else, if there is
    one.
    """

    vocabulary: int
    pad: int | None = None

    def __post_init__(self) -> None:
        check_int("vocabulary", self.vocabulary, 1)
        if self.pad is not None:
            check_int("pad", self.pad, 0)
            if self.pad >= self.vocabulary:
                raise InputError(f"pad must be below vocabulary={self.vocabulary}, got {self.pad}")

    def checked(self, x: Tensor) -> Tensor:
        """Ids (N, L) as int64; refuses what is no text of this vocabulary."""
        if x.is_floating_point() or x.is_complex() or x.dtype is torch.bool:
            raise InputError(
                f"this model takes token ids, which are integers, got {x.dtype}: give what a "
                "tokenizer returns as input_ids"
            )
        if x.ndim != 2 or x.shape[1] == 0:
            raise InputError(
                f"expected token ids of shape (N, L), got {tuple(x.shape)}; a single text needs a "
                "batch dimension: x[None]"
            )
        if int(x.min()) < 0 or int(x.max()) >= self.vocabulary:
            row = int(((x < 0) | (x >= self.vocabulary)).any(dim=1).nonzero()[0])
            raise InputError(
                f"token ids must be in 0..{self.vocabulary - 1}, but input {row} has "
                f"{int(x[row].min())}..{int(x[row].max())}: were the texts made into ids by the "
                "tokenizer of this network?"
            )
        empty = (~self.mask(x).any(dim=1)).nonzero()
        if len(empty):
            raise InputError(f"input {int(empty[0])} holds nothing but padding (id {self.pad})")
        return x.to(torch.int64)

    def mask(self, x: Tensor) -> Tensor:
        """(B, L), True where there is a token and no padding."""
        return torch.ones_like(x, dtype=torch.bool) if self.pad is None else x != self.pad


def tokens_of(backbone: nn.Module) -> Tokens | None:
    """The tokens that a backbone takes; None where it takes numbers."""
    if isinstance(backbone, Stack):
        return tokens_of(backbone.members[0])
    tokens = getattr(backbone, "tokens", None)
    return tokens if isinstance(tokens, Tokens) else None


class Stack(nn.Module):
    """The features of M backbones of one width D, one after the other: (B, M·D), for an ensemble.

    No two share a parameter. `num_features` is D, where they do not carry it themselves.
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
        if len([*self.parameters()]) < sum(len([*member.parameters()]) for member in members):
            raise InputError("the members of a stack share parameters; build each of them anew")
        self.num_features = width * len(members)

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) to (B, M·D)."""
        return torch.cat([member(x) for member in self.members], dim=1)


class Frozen(nn.Module):
    """A backbone as it is: no gradient for its weights, and always in evaluation mode.

    So the statistics of its batch norms stay, and its dropout is off, also while a head learns on
    its features, which `fit` computes once. `num_features` is D, where it does not carry it itself.

        >>> model = build_model("gem-fi", Frozen(backbone), num_classes=10)
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
        """Like `nn.Module.train`, but the backbone stays in evaluation mode."""
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
    wanted = [parameter.requires_grad for parameter in backbone.parameters()]
    return bool(wanted) and not any(wanted)
