"""Texts as token ids: what a backbone says of itself that takes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gemfi._config import check_int
from gemfi.backbones.stack import Stack
from gemfi.errors import InputError


@dataclass(frozen=True)
class Tokens:
    """A backbone with an attribute `tokens` of this kind takes integers (B, L) in place of numbers.

    Attributes:
        vocabulary: how many ids there are: 0 to one less.
        pad: the id that fills short texts up; None if there is none. The network is told which
            positions are padding by this id alone, so that it must not stand for anything else.
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
        low, high = int(x.min()), int(x.max())
        if low < 0 or high >= self.vocabulary:
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
    """What a backbone says of the tokens that it takes; None where it takes numbers."""
    if isinstance(backbone, Stack):
        return tokens_of(backbone.members[0])
    found = getattr(backbone, "tokens", None)
    return found if isinstance(found, Tokens) else None
