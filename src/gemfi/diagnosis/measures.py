"""Measures of the parts of a model.

`support` compares energy, gate and evidence by rank with the distance to the training features,
which no part of a model has seen. `heads` compares the heads with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gemfi import dirichlet, losses, scores
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


@dataclass(frozen=True)
class Support:
    """Rank correlations of energy, gate and evidence, with the sign that they ought to have."""

    energy: float | None  # of the energy with the distance to the training data: positive
    evidence: float | None  # of the evidence, ρ included, with the distance: negative
    gate: float | None  # of the mean gate with the distance: negative
    gate_energy: float | None  # of the mean gate with the energy: negative
    label_changes: float
    """Share of inputs whose most probable class a gate on probabilities changes; 0 for gates that
    are part of α, which cannot be undone here."""


def support(belief: Belief, distance: Tensor) -> Support:
    """Compare a belief with distances (B,), such as those of `knn_distance`."""

    def correlation(first: Tensor | None, second: Tensor | None) -> float | None:
        return None if first is None or second is None else rank_correlation(first, second)

    evidence = None if belief.log_evidence is None else -scores.evidence(belief)
    gate = None if belief.log_gate is None else belief.log_gate.exp().mean(dim=1)
    ungated = dirichlet.log_mixture(belief.log_p, belief.log_weight).argmax(dim=-1)
    changed = (ungated != belief.labels()).to(torch.float64)
    return Support(
        energy=correlation(belief.energy, distance),
        evidence=correlation(evidence, distance),
        gate=correlation(gate, distance),
        gate_energy=correlation(gate, belief.energy),
        label_changes=float(changed.mean()),
    )
