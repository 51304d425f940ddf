"""What is done when the weights are there: densities, quantiles and scales from training data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from gemfi import spectral
from gemfi.backbones import cannot_learn
from gemfi.data.splits import AnySplit, Split
from gemfi.devices import CPU, device_of
from gemfi.errors import InputError
from gemfi.processes import in_turn, own_share
from gemfi.randomness import forked_generator

if TYPE_CHECKING:
    from gemfi.model import Model

MEMORY_BYTES = 2 << 30
"""Features of a split that take no more memory than this are kept for a second walk: 2 GiB."""
_BATCH: Final = 512


class FeatureBatches:
    """Batches of features and labels of a split, on the CPU, that can be walked through repeatedly.

    Of several processes each embeds its part, and all of them see all batches in order. Features of
    what is in memory are kept by the first whole walk, where they fit into `MEMORY_BYTES`;
    otherwise, and for streams, each walk runs the backbone again. Either way the model must not
    change in between, and the batches must not be written to.
    """

    def __init__(self, model: Model, split: AnySplit) -> None:
        self.model, self.split = model, split
        self._kept: list[tuple[Tensor, Tensor]] | None = None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self._kept is not None:
            yield from self._kept
            return
        width = 4 * self.model.head.num_features
        fits = isinstance(self.split, Split) and len(self.split) * width <= MEMORY_BYTES
        kept = []
        for batch in in_turn(self._embedded()):
            if fits:
                kept.append(batch)
            yield batch
        if fits:  # only here: a walk that is broken off has seen a part of them
            self._kept = kept

    def _embedded(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.split.walk(_BATCH, own_share()):
            if y is None:
                raise InputError(f"split {self.split.name!r} has no labels")
            yield self.model.embed(x), y.cpu()


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
