"""The temperature of few samples, which say little about it."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

from gemfi.calibration import HIGHEST, LOWEST

PRIOR: Final = 0.15
"""Standard deviation of log T before any sample is seen."""
_SMALLEST = -1e3  # log-probability that counts for less
_STEPS = 100


def shrunk_temperature(
    log_probs: Tensor, labels: Tensor, prior: float = PRIOR, *, weight: Tensor | None = None
) -> float:
    """The most probable log T, if log T ~ N(0, prior²) and labels are drawn from p^(1/T).

    Forty validation samples, by which the epoch was chosen too, are easily luckier than the rest:
    the plain fit (`gemfi.calibration.fit_temperature`) would then make every prediction far too
    certain. With u = −log T the derivative of the negative log posterior is n·e^u·g(u) + u/prior²,
    where g, the slope of the NLL in 1/T, rises: its root lies on the side of 0 that g(0) points to.
    Of many samples both fits are the same.

    Args:
        log_probs: (n, C) log-probabilities of validation data, n at least 1.
        labels: (n,) their classes.
        prior: standard deviation of log T.
        weight: (n,) of the samples; None where all count alike.
    """
    values = log_probs.to(torch.float64).clamp_min(_SMALLEST)
    copies = torch.ones(len(values), dtype=torch.float64)
    copies = copies if weight is None else weight * (len(values) / weight.sum())
    wanted = values.gather(1, labels.unsqueeze(1))[:, 0]

    def slope(u: float) -> float:
        mean = (torch.softmax(math.exp(u) * values, dim=1) * values).sum(dim=1)
        return math.exp(u) * float(copies @ (mean - wanted)) + u / prior**2

    low, high = (-math.log(HIGHEST), 0.0) if slope(0.0) > 0 else (0.0, -math.log(LOWEST))
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return -0.5 * (low + high)
