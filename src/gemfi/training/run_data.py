"""The data of a run: its splits, how often each row is drawn, and in which order.

A weight says how often a row is drawn. It never scales a loss: some terms of some methods are no
sum over rows (densities, quantiles, batch statistics), and a draw means the same for all of them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import torch
from torch import Tensor

from gemfi.data.splits import AnySplit, Rows
from gemfi.errors import InputError
from gemfi.randomness import derived_generator

_STATISTICS: Final = -1  # the "epoch" of the draw for statistics


@dataclass(frozen=True, eq=False)
class RunData:
    """What a run learns from and is judged by.

    Attributes:
        train: role train.
        validation: role validation, or None.
        auxiliary: role auxiliary, or None.
        train_weight: (N,) float64, or None where all rows count alike.
        validation_weight: likewise, of the validation rows.
    """

    train: AnySplit
    validation: AnySplit | None = None
    auxiliary: AnySplit | None = None
    train_weight: Tensor | None = None
    validation_weight: Tensor | None = None

    @classmethod
    def of(
        cls,
        train: AnySplit,
        validation: AnySplit | None,
        auxiliary: AnySplit | None,
        sample_weight: Any,
        validation_weight: Any,
    ) -> Self:
        """The data of a run, whose weights are checked."""
        return cls(
            train,
            validation,
            auxiliary,
            _checked_weight(sample_weight, train, "sample_weight"),
            _checked_weight(validation_weight, validation, "validation_weight"),
        )

    def map_splits(self, change: Callable[[AnySplit], AnySplit]) -> Self:
        """The same data with every split changed."""
        return replace(
            self,
            train=change(self.train),
            validation=None if self.validation is None else change(self.validation),
            auxiliary=None if self.auxiliary is None else change(self.auxiliary),
        )

    def splits(self) -> list[AnySplit]:
        """Those that are there."""
        return [s for s in (self.train, self.validation, self.auxiliary) if s is not None]

    def for_statistics(self, seed: int) -> tuple[AnySplit, AnySplit | None]:
        """Training and validation data as statistics see them: one draw of weighted rows."""
        held = self.validation
        return (
            drawn_split(self.train, self.train_weight, seed),
            None if held is None else drawn_split(held, self.validation_weight, seed),
        )

    def fingerprint(self) -> dict[str, Any]:
        """Checksums of the splits and weights, for JSON."""
        splits = {"train": self.train, "validation": self.validation, "auxiliary": self.auxiliary}
        weights = {"train_weight": self.train_weight, "validation_weight": self.validation_weight}
        return {
            "data": {name: split.checksum() for name, split in splits.items() if split is not None},
            **{
                name: text_digest(str(weight.tolist()))
                for name, weight in weights.items()
                if weight is not None
            },
        }


def text_digest(text: str) -> str:
    """A checksum of a text."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def batches_per_epoch(samples: int, batch_size: int, processes: int = 1) -> int:
    """Every sample once an epoch, but a last batch too small for batch norm is dropped.

    It needs two samples in each process.
    """
    batches = math.ceil(samples / batch_size)
    rest = samples - (batches - 1) * batch_size
    return batches - 1 if batches > 1 and rest < 2 * processes else batches


def permutation(count: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch depends on seed and epoch alone, so that resuming needs no history."""
    return torch.randperm(count, generator=derived_generator(f"{seed}:{epoch}"))


def epoch_rows(labels: Tensor, weight: Tensor, seed: int, epoch: int) -> Tensor:
    """The rows of an epoch in random order, as often as their weights say.

    N rows are drawn. Row i has N·w_i / Σw copies on average, and never one more or less than that
    rounded down and up; so has every class. The draw depends on seed and epoch alone.
    """
    count = len(labels)
    generator = derived_generator(f"{seed}:{epoch}:weights")
    mixed = torch.randperm(count, generator=generator)
    order = mixed[labels.cpu()[mixed].argsort(stable=True)]  # class by class
    copies = (weight * (count / weight.sum()))[order]
    points = torch.arange(count) + torch.rand((), generator=generator, dtype=torch.float64)
    last = int(copies.nonzero().max())  # rounding must never reach a row without weight
    drawn = order[torch.searchsorted(copies.cumsum(0), points, right=True).clamp_max(last)]
    return drawn[torch.randperm(count, generator=generator)]


def training_order(
    data: AnySplit, weight: Tensor | None, seed: int, batch_size: int, batches: int, step: int
) -> Iterator[Rows]:
    """The rows of every step from a step on, without end.

    Args:
        data: of role train.
        weight: (N,) how often each row is drawn; None where all count alike.
        seed: of the run.
        batch_size: samples of a step.
        batches: steps of an epoch.
        step: the first.
    """
    epoch, done = divmod(step, batches)
    while True:
        if not data.has_rows:  # in an order of its own: how many is all that is asked for
            rows = torch.zeros((), dtype=torch.int64).expand(len(data))
        elif weight is None:
            rows = permutation(len(data), seed, epoch)
        else:
            rows = epoch_rows(data.labels, weight, seed, epoch)
        for part in torch.split(rows, batch_size)[done:batches]:
            yield Rows(part, str(seed), epoch)
        epoch, done = epoch + 1, 0


def drawn_split(split: AnySplit, weight: Tensor | None, seed: int) -> AnySplit:
    """One draw of the rows of a split; the split itself without weights.

    A class too light to be drawn has one row, its heaviest: densities need every class.
    """
    if weight is None:
        return split
    labels = split.labels.cpu()
    rows = epoch_rows(labels, weight, seed, _STATISTICS)
    missing = sorted(set(labels.tolist()) - set(labels[rows].tolist()))
    heaviest = [int(torch.where(labels == label, weight, -1.0).argmax()) for label in missing]
    return split.subset(torch.cat([rows, torch.tensor(heaviest, dtype=torch.int64)]))


def _checked_weight(weight: Any, split: AnySplit | None, name: str) -> Tensor | None:
    """Weights of a split as float64 (N,), or None where they are all the same."""
    if weight is None:
        return None
    if split is None:
        raise InputError(f"{name} was given, but the split that it belongs to was not")
    values = torch.as_tensor(weight, dtype=torch.float64).detach()
    if values.shape != (len(split),):
        raise InputError(
            f"{name} must have one number for each of the {len(split)} samples of split "
            f"{split.name!r}, got shape {tuple(values.shape)}"
        )
    usable = bool((values.isfinite() & (values >= 0)).all())
    if not usable or not 0 < float(values.sum()) < torch.inf:
        raise InputError(f"{name} must be finite and not negative, and not all of them zero")
    return None if bool((values == values[0]).all()) else values
