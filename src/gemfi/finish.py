"""What is done when the weights are there: densities, quantiles and scales from training data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeVar

import torch
from torch import Tensor

from gemfi import spectral
from gemfi.backbones import cannot_learn
from gemfi.data.splits import AnySplit, Split
from gemfi.density import Statistics
from gemfi.devices import CPU, device_of
from gemfi.errors import InputError
from gemfi.methods.base import SharedBatches
from gemfi.processes import gathered, in_turn, own_share, total
from gemfi.randomness import forked_generator

if TYPE_CHECKING:
    from gemfi.model import Model

T = TypeVar("T")
MEMORY_BYTES = 2 << 30
"""Features of a split that take no more memory than this are kept for a second walk: 2 GiB."""
_BATCH: Final = 512


class FeatureBatches(SharedBatches):
    """Batches of features and labels of a split, on the CPU, that can be walked through repeatedly.

    Of several processes each embeds its part. Features of what is in memory are kept by the first
    whole walk, where they fit into `MEMORY_BYTES`; otherwise, and for streams, each walk runs the
    backbone again. Either way the model must not change in between, and the batches must not be
    written to.
    """

    def __init__(self, model: Model, split: AnySplit) -> None:
        self.model, self.split = model, split
        self._kept: list[tuple[Tensor, Tensor]] | None = None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.in_turn(self.own())

    def in_turn(self, mine: Iterator[T]) -> Iterator[T]:
        """In every process."""
        return in_turn(mine)

    def add_up(self, statistics: Statistics) -> None:
        """The bytes of the sums go to the others, and no feature."""
        if own_share().count == 1:
            return
        found = gathered(torch.cat([statistics.count.sum()[None], statistics.origin])[None])
        with_rows = found[found[:, 0] > 0, 1:]
        if len(with_rows):  # their origin is that of one process, the mean of the first batch
            statistics.move(with_rows[0])
        for part in statistics.sums():
            part.copy_(total(part))

    def own(self) -> Iterator[tuple[Tensor, Tensor]]:
        """In order; of p processes each has every p-th batch."""
        if self._kept is not None:
            yield from self._kept
            return
        width = 4 * (self.model.head.num_features + self.model.head.num_taps)
        fits = isinstance(self.split, Split) and len(self.split) * width <= MEMORY_BYTES
        kept = []
        for batch in self._embedded():
            if fits:
                kept.append(batch)
            yield batch
        if fits:  # only here: a walk that is broken off has seen a part of them
            self._kept = kept

    def _embedded(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.split.walk(_BATCH, own_share()):
            if y is None:
                raise InputError(f"split {self.split.name!r} has no labels")
            yield self.model.embed(x, taps=True), y.cpu()


def finish(model: Model, train: AnySplit, validation: AnySplit | None, seed: int = 0) -> list[str]:
    """Fit what a head fits after training, on the CPU in float64; returns notes.

    Args:
        model: whose weights are there; it is in evaluation mode afterwards.
        train: as statistics see it.
        validation: likewise, or None.
        seed: of what a network may draw.
    """
    backbone, head = model.backbone, model.head
    spectral.refresh(head if cannot_learn(backbone) else model)
    model.eval()
    device = device_of(head)
    with torch.no_grad(), forked_generator(seed):
        held = None if validation is None else FeatureBatches(model, validation)
        head.to(CPU)
        try:
            return head.fit_statistics(FeatureBatches(model, train), held)
        finally:
            head.to(device)
