"""How many threads of torch a fit uses.

A step of a small network is shorter than what it takes to wake threads and wait for them, most of
all on a busy machine. One thread also gives the same numbers on machines of two and of fifty cores.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

import torch

from gemfi.model import Model

SMALL: Final = 1 << 28
"""Up to so many products a step, samples times weights, rows are trained with one thread."""

_LOCK = threading.RLock()  # the number belongs to the process


def choose_threads(model: Model, batch_size: int, dimensions: int) -> int | None:
    """One thread for a small network of rows, which no machine's number of cores changes.

    Args:
        model: before it is trained.
        batch_size: samples a step.
        dimensions: of X; a layer of images uses its weights many times for a sample.

    Returns:
        1, or None for as many as torch is set to.
    """
    weights = sum(each.numel() for each in model.parameters())
    return 1 if dimensions == 2 and weights * batch_size <= SMALL else None


@contextlib.contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads for a while; other fits that limit them wait.

    Args:
        count: of threads; None changes nothing.
    """
    if count is None:
        yield
        return
    with _LOCK:
        before = torch.get_num_threads()
        if before == count:
            yield
            return
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)
