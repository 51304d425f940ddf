"""Batches: their order, and the features of a split."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gemfi.data import Split
from gemfi.model import Model


class Features:
    """Batches of features of a split that can be walked through more than once."""

    def __init__(self, model: Model, split: Split) -> None:
        self.model, self.split = model, split

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = 512
        for start in range(0, len(self.split), size):
            rows = slice(start, start + size)
            yield self.model.embed(self.split.x[rows]), self.split.labels[rows]


def batches_per_epoch(samples: int, batch_size: int) -> int:
    """Every sample once an epoch, but a last batch of one is dropped: batch norm needs two."""
    batches = math.ceil(samples / batch_size)
    return batches - 1 if batches > 1 and samples % batch_size == 1 else batches


def permutation(count: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch depends on seed and epoch alone, so that resuming needs no history."""
    digest = hashlib.blake2b(f"{seed}:{epoch}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
    return torch.randperm(count, generator=generator)


def data_digest(split: Split) -> str:
    """A checksum of the inputs and labels of a split."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(split.x.contiguous().cpu().numpy().data)
    if split.y is not None:
        digest.update(split.y.contiguous().cpu().numpy().data)
    return digest.hexdigest()
