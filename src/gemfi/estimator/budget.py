"""How long to train on N samples, in which batches, and how many of them to hold out.

The budget is one of steps and not of epochs: ten thousand samples need more steps than a hundred,
but not a hundred times as many.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gemfi.data.sampling import stratified_indices
from gemfi.training.batches import batches_per_epoch

Ints = npt.NDArray[np.int64]

FEWEST: Final = 100
"""With fewer samples nothing is held out."""
LEAST_PART: Final = 20
"""Samples of a part that is held out: with 19, a p-value can be as small as 0.05."""
_FEWEST_STEPS, _MOST_STEPS = 60, 3_000


class Budget(NamedTuple):
    """Samples a step, and passes over the training data."""

    batch_size: int
    epochs: int


class Parts(NamedTuple):
    """Indices of the samples for weights, for temperature and scales, and for decisions."""

    train: Ints
    validation: Ints
    calibration: Ints


def choose_budget(
    samples: int,
    *,
    batch_size: int | None = None,
    epochs: int | None = None,
    max_steps: int | None = None,
) -> Budget:
    """The budget for a number of training samples, with what the user has fixed.

    Args:
        samples: to train on.
        batch_size: None for a power of two that grows with the samples.
        epochs: None for as many as the steps allow.
        max_steps: None for `default_steps`. An epoch is always finished, so that there may be as
            many steps as one has.
    """
    size = _batch_size(samples) if batch_size is None else min(batch_size, samples)
    batches = batches_per_epoch(samples, size)
    steps = default_steps(samples) if max_steps is None else max_steps
    allowed = steps // batches if max_steps is not None else round(steps / batches)
    if epochs is None:
        return Budget(size, max(1, allowed))
    return Budget(size, epochs if max_steps is None else max(1, min(epochs, allowed)))


def default_steps(samples: int) -> int:
    """Steps for a number of training samples: 5·N^0.7 within bounds."""
    return round(min(_MOST_STEPS, max(_FEWEST_STEPS, 5 * math.pow(samples, 0.7))))


def _batch_size(samples: int) -> int:
    return min(256, max(16, 1 << int(math.log2(max(1, samples / 16)))))


def split_parts(
    labels: Ints, validation: float | None, calibration: float | None, seed: int
) -> Parts:
    """Disjoint parts, each in proportion to the classes; every class keeps a training sample.

    Args:
        labels: (N,) of all samples.
        validation: share that is held out for temperature and scales; None chooses it.
        calibration: share that is held out for decisions; None chooses it.
        seed: of the draws.
    """
    everything = np.arange(len(labels))
    first = _held_out(labels, _part(validation, len(labels)), seed)
    rest = np.setdiff1d(everything, first)
    second = rest[_held_out(labels[rest], _part(calibration, len(labels)), seed + 1)]
    return Parts(np.setdiff1d(rest, second), first, second)


def _part(share: float | None, samples: int) -> int:
    """How many to hold out: a tenth of few samples, and of many no more than scales need."""
    if share == 0 or samples < FEWEST:
        return 0
    wanted = min(samples / 10, 4 * math.sqrt(samples)) if share is None else share * samples
    return max(LEAST_PART, round(wanted))


def _held_out(labels: Ints, count: int, seed: int) -> Ints:
    """At most half of what the classes can spare, and nothing where that is too few."""
    spare = (len(labels) - len(np.unique(labels))) // 2
    count = min(count, spare)
    return stratified_indices(labels, count, seed) if count >= LEAST_PART else labels[:0]
