"""Rows that count for more or less than others.

A weight says how often a row is drawn, and never scales a loss: some terms of some methods are no
sum over rows (densities, quantiles, batch statistics), and a draw means the same for all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemfi.data import Split
from gemfi.errors import InputError
from gemfi.training.batches import generator_of, permutation

_STATISTICS = -1  # the "epoch" of the draw for statistics


class RowWeights(NamedTuple):
    """Weights (N,) of training and of validation rows; None where all count alike."""

    train: Tensor | None = None
    validation: Tensor | None = None


def row_weights(
    train: Split, validation: Split | None, sample_weight: Any, validation_weight: Any
) -> RowWeights:
    """The weights of a run, checked."""
    return RowWeights(
        _checked(sample_weight, train, "sample_weight"),
        _checked(validation_weight, validation, "validation_weight"),
    )


def _checked(weight: Any, split: Split | None, name: str) -> Tensor | None:
    """Weights of a split as float64 (N,), or None where they are all the same.

    Args:
        weight: of every row, or None.
        split: whose rows they are; None where there is none.
        name: of the argument, for messages.
    """
    if weight is None:
        return None
    if split is None:
        raise InputError(f"{name} was given, but the split that it belongs to was not")
    found = torch.as_tensor(weight, dtype=torch.float64).detach()
    if found.shape != (len(split),):
        raise InputError(
            f"{name} must have one number for each of the {len(split)} samples of split "
            f"{split.name!r}, got shape {tuple(found.shape)}"
        )
    if not bool((found.isfinite() & (found >= 0)).all()) or not 0 < float(found.sum()) < torch.inf:
        raise InputError(f"{name} must be finite and not negative, and not all of them zero")
    return None if bool((found == found[0]).all()) else found


def epoch_rows(labels: Tensor, weight: Tensor | None, seed: int, epoch: int) -> Tensor:
    """The rows of an epoch in random order: every row once, or as often as its weight says.

    N rows are drawn. Row i has N·w_i / Σw copies on average, and never one more or less than that
    rounded down and up; so has every class. The draw depends on seed and epoch alone.
    """
    if weight is None:
        return permutation(len(labels), seed, epoch)
    generator = generator_of(f"{seed}:{epoch}:weights")
    mixed = torch.randperm(len(labels), generator=generator)
    order = mixed[labels.cpu()[mixed].argsort(stable=True)]  # class by class
    ends = _copies(weight)[order].cumsum(0)
    points = torch.arange(len(labels)) + torch.rand((), generator=generator, dtype=torch.float64)
    last = int(_copies(weight)[order].nonzero().max())  # never a row without weight, by rounding
    drawn = order[torch.searchsorted(ends, points, right=True).clamp_max(last)]
    return drawn[torch.randperm(len(labels), generator=generator)]


def as_drawn(split: Split, weight: Tensor | None, seed: int) -> Split:
    """A split as statistics see it: one draw of its rows, or itself without weights.

    A class too light to be drawn has one row, its heaviest: densities need every class.
    """
    if weight is None:
        return split
    labels = split.labels.cpu()
    rows = epoch_rows(labels, weight, seed, _STATISTICS)
    missing = sorted(set(labels.tolist()) - set(labels[rows].tolist()))
    heaviest = [int(torch.where(labels == each, weight, -1.0).argmax()) for each in missing]
    return split.subset(torch.cat([rows, torch.tensor(heaviest, dtype=torch.int64)]))


def _copies(weight: Tensor) -> Tensor:
    """How often each row is drawn an epoch, on average."""
    return weight * (len(weight) / weight.sum())
