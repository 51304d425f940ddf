"""Measures of the parts of a model: rank correlations, and how the heads differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gemfi import dirichlet, losses
from gemfi.belief import Belief
from gemfi.errors import InputError


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's ρ of two (N,) tensors, ties sharing their mean rank; NaN where one is constant."""
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise InputError(
            "rank correlation needs two tensors of the same length, at least 2, got "
            f"{tuple(first.shape)} and {tuple(second.shape)}"
        )
    if bool(first.isnan().any() | second.isnan().any()):
        raise InputError("rank correlation needs numbers, and some are NaN")
    from scipy import stats  # noqa: PLC0415 - slow to import

    pair = [stats.rankdata(values.numpy(force=True)) for values in (first, second)]
    return float(torch.corrcoef(torch.from_numpy(np.stack(pair)))[0, 1])


@dataclass(frozen=True)
class Heads:
    """How the K components of a belief differ, and how the router uses them."""

    used: float  # effective number of heads, exp of the entropy of the mean weights, in [1, K]
    used_each: float  # the same for one input, averaged over the inputs
    differ: float  # share of inputs on which not all heads have the same most probable class
    cosine: float  # mean cosine between the predictions of two heads
    disagreement: float  # mean Jensen-Shannon divergence, in nats


def heads(belief: Belief) -> Heads:
    """Compare the components of a belief, on inputs of your choice."""
    weight, label = belief.log_weight, belief.log_p.argmax(dim=-1)
    direction = functional.normalize(belief.log_p.exp(), dim=-1)
    gram = direction @ direction.transpose(1, 2)  # (B, K, K)
    row, column = torch.triu_indices(weight.shape[1], weight.shape[1], offset=1)
    pairs = gram[:, row, column]
    return Heads(
        used=float(losses.usage(weight).exp()),
        used_each=float(dirichlet.entropy(weight).exp().mean()),
        differ=float((label != label[:, :1]).any(dim=1).to(torch.float64).mean()),
        cosine=float(pairs.mean()) if len(row) else 1.0,
        disagreement=float(dirichlet.disagreement(belief.log_p, weight).mean()),
    )
