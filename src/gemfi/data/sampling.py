"""Seeded randomness and stratified draws, the only two sources of chance in `gemfi.data`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gemfi._config import check_int
from gemfi.errors import InputError


def generator(seed: int, *stream: int) -> np.random.Generator:
    """A generator of its own for each `stream` of one `seed`; the global state is never touched.

    Two streams of a seed are independent, so that the size of one split does not change another.
    """
    check_int("seed", seed, 0)
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=stream))


def stratified_indices(
    labels: npt.NDArray[np.int64], count: int, seed: int
) -> npt.NDArray[np.int64]:
    """Draw exactly `count` indices, with each class in proportion, in ascending order.

    Class c of n_c samples gives count·n_c/N of them, rounded down or up by largest remainder; ties
    go to the lower class. Every class that is present keeps at least one sample outside the draw.

    Args:
        labels: (N,) non-negative labels.
        count: how many to draw, from 1 to N minus the number of classes present.
        seed: the same labels, count and seed give the same indices.
    """
    total = len(labels)
    sizes = np.bincount(labels)  # (C,)
    room = total - int((sizes > 0).sum())
    if not 1 <= count <= room:
        raise InputError(
            f"cannot draw {count} of {total} samples: expected 1 to {room}, "
            "so that every class keeps at least one sample"
        )
    take = count * sizes // total  # whole numbers throughout: no rounding to argue about
    while take.sum() < count:
        owed = np.where(take < sizes - 1, count * sizes - take * total, np.iinfo(np.int64).min)
        take[np.argmax(owed)] += 1
    order = generator(seed).permutation(total)
    by_class = order[np.argsort(labels[order], kind="stable")]
    first = np.cumsum(sizes) - sizes  # where each class starts in `by_class`
    rank = np.arange(total) - first[labels[by_class]]
    chosen: npt.NDArray[np.int64] = np.sort(by_class[rank < take[labels[by_class]]])
    return chosen
