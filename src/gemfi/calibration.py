"""Temperature scaling: one number T that makes probabilities honest, fitted on ID validation data.

It acts on the predictive distribution, p^(1/T) renormalised, which for a plain softmax is the usual
division of the logits by T, and which leaves the labels as they are.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from gemfi.belief import Belief
from gemfi.errors import InputError

LOWEST, HIGHEST = 0.05, 20.0
"""Bounds of T. Where every prediction is right the NLL falls for ever as T → 0, and where they are
worse than none as T → ∞: there is no optimum, and T is the bound."""


def fit_temperature(
    log_probs: Tensor,
    labels: Tensor,
    *,
    weight: Tensor | None = None,
    prior: float = math.inf,
) -> Tensor:
    """Log T, a float64 scalar, of the smallest NLL of p^(1/T) renormalised, T in the bounds.

    With β = 1/T the NLL is convex: its derivative is the mean of E_β[log p] − log p_y, whose root
    Brent's method finds. Where no T is better than another (uniform predictions) T is 1.

    With log T ~ N(0, prior²) it is the most probable T: a few samples are easily luckier than the
    rest, and the plain fit would then make every prediction far too certain. With n samples that
    adds ln β / (nβ·prior²) to the derivative, and the root is on the same side of β = 1.

    Args:
        log_probs: (N, C) log-probabilities of ID validation data, C at least 2.
        labels: (N,) their classes.
        weight: (N,) how much each counts; None where all count alike.
        prior: standard deviation of log T before any sample is seen.
    """
    values, y = _checked(log_probs, labels)
    count = len(values)
    share = values.new_full((count,), 1 / count) if weight is None else weight / weight.sum()
    of_label = share @ values.gather(1, y.unsqueeze(1))[:, 0]
    finite = values.masked_fill(values.isinf(), 0.0)  # 0·log 0 = 0

    def slope(beta: float) -> float:
        p = torch.softmax(beta * values, dim=1)
        gain = float(share @ (p * finite).sum(dim=1) - of_label)
        return gain + math.log(beta) / (count * beta * prior**2)

    low, high = 1 / HIGHEST, 1 / LOWEST
    first, last = slope(low), slope(high)
    if first == last == 0:
        return values.new_zeros(())
    if first >= 0 or last <= 0:
        return values.new_tensor(math.log(HIGHEST if first >= 0 else LOWEST))
    from scipy import optimize  # noqa: PLC0415 - slow to import

    return values.new_tensor(-math.log(optimize.brentq(slope, low, high, xtol=1e-15, rtol=1e-14)))


def calibrated(belief: Belief, log_temperature: Tensor | float) -> Belief:
    """The belief at a temperature, on top of the one that it has; log T is of `fit_temperature`."""
    log_p = belief.log_p
    added = torch.as_tensor(log_temperature, dtype=log_p.dtype, device=log_p.device).detach()
    if added.ndim != 0 or not bool(torch.isfinite(added)):
        raise InputError(f"log_temperature must be one finite number, got {log_temperature!r}")
    before = belief.log_temperature
    return replace(belief, log_temperature=added if before is None else before + added)


def at_bound(log_temperature: Tensor) -> bool:
    """Whether a fitted temperature is a bound and not an optimum."""
    return float(log_temperature) in {math.log(LOWEST), math.log(HIGHEST)}


def _checked(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    if log_probs.ndim != 2 or labels.shape != log_probs.shape[:1] or 0 in log_probs.shape:
        raise InputError(
            "a temperature needs log-probabilities (N, C) and N labels, N at least 1, got "
            f"{tuple(log_probs.shape)} and {tuple(labels.shape)}"
        )
    classes = log_probs.shape[1]
    if classes < 2:
        raise InputError("a temperature needs at least two classes: with one, p is 1 at every T")
    values, y = log_probs.detach().to(torch.float64), labels.to(torch.int64)
    if int(y.min()) < 0 or int(y.max()) >= classes:
        raise InputError(
            f"labels must be in 0..{classes - 1}, found {int(y.min())}..{int(y.max())}"
        )
    if not bool((torch.logsumexp(values, dim=1).abs() < 1e-4).all()):  # NaN too
        raise InputError(
            "rows of log-probabilities must be finite or −inf and sum to one in probability; of "
            "logits take log_softmax first"
        )
    impossible = values.gather(1, y.unsqueeze(1)).isinf()
    if bool(impossible.any()):
        raise InputError(
            f"sample {int(impossible.nonzero()[0, 0])} has a label of probability 0, so that the "
            "NLL is infinite at every temperature"
        )
    return values, y
