"""Batches: their order, and the features of a split."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gemfi.data import Split
from gemfi.model import Model

KEPT_BYTES = 2 << 30
"""Features of a split that take no more memory than this are computed once: 2 GiB."""


class Features:
    """Batches of features of a split that can be walked through more than once.

    The first whole walk keeps them where they fit into `KEPT_BYTES` as float32; otherwise each
    walk runs the backbone again. Either way the model must not change in between, and who walks
    must not write to them.
    """

    def __init__(self, model: Model, split: Split) -> None:
        self.model, self.split = model, split
        self._kept: list[tuple[Tensor, Tensor]] | None = None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self._kept is not None:
            yield from self._kept
            return
        size = 512
        fits = len(self.split) * self.model.head.num_features * 4 <= KEPT_BYTES
        kept = []
        for start in range(0, len(self.split), size):
            rows = slice(start, start + size)
            batch = self.model.embed(self.split.x[rows]), self.split.labels[rows]
            if fits:
                kept.append(batch)
            yield batch
        if fits:  # only here: a walk that is broken off has seen a part of them
            self._kept = kept


def batches_per_epoch(samples: int, batch_size: int) -> int:
    """Every sample once an epoch, but a last batch of one is dropped: batch norm needs two."""
    batches = math.ceil(samples / batch_size)
    return batches - 1 if batches > 1 and samples % batch_size == 1 else batches


def permutation(count: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch depends on seed and epoch alone, so that resuming needs no history."""
    return torch.randperm(count, generator=generator_of(f"{seed}:{epoch}"))


def generator_of(text: str) -> torch.Generator:
    """A generator that begins with the digest of a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))
