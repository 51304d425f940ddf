"""The temperature of few samples, which may all be right."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from gemfi.calibration import HIGHEST, LOWEST

PSEUDO: Final = 0.5
"""Samples with a label of no class in particular that are added to those at hand."""
_SMALLEST = -1e3  # log-probability that counts for less
_ALIKE = 1e-9  # a smaller range of log-probabilities is none
_STEPS = 100


def smoothed_temperature(
    log_probs: Tensor,
    labels: Tensor,
    pseudo: float = PSEUDO,
    *,
    weight: Tensor | None = None,
) -> float:
    """Log T of the smallest NLL of p^(1/T), as if half a sample more had a label drawn at random.

    Twenty validation samples that are all right say that errors are rare, not that there are none:
    the plain fit (`gemfi.calibration.fit_temperature`) would make every prediction certain. Here
    each target is (1 − ε)·one-hot + ε/C with ε = m/(n + m), so that the NLL, which is convex in
    β = 1/T, has its minimum at a finite β. Of many samples both fits are the same.

    Args:
        log_probs: (n, C) log-probabilities of validation data, n at least 1.
        labels: (n,) their classes.
        pseudo: m.
        weight: (n,) of the samples; None where all count alike.
    """
    values = log_probs.to(torch.float64).clamp_min(_SMALLEST)
    share = pseudo / (len(values) + pseudo)
    hard = functional.one_hot(labels, values.shape[1]).to(values.dtype)
    target = (1 - share) * hard + share / values.shape[1]
    shares = (
        torch.full((len(values),), 1 / len(values)) if weight is None else weight / weight.sum()
    )
    shares = shares.to(values.dtype)
    wanted = float(shares @ (target * values).sum(dim=1))

    def slope(beta: float) -> float:
        mean = shares @ (torch.softmax(beta * values, dim=1) * values).sum(dim=1)
        return float(mean) - wanted

    if float((values.amax(dim=1) - values.amin(dim=1)).max()) < _ALIKE:
        return 0.0  # uniform predictions are so at every T
    low, high = 1 / HIGHEST, 1 / LOWEST
    if slope(low) >= 0:
        return math.log(HIGHEST)
    if slope(high) <= 0:
        return math.log(LOWEST)
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return -0.5 * math.log(low * high)
