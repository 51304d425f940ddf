"""Loss terms as pure functions; each returns a scalar, the mean over the batch.

Predictions come as log probabilities (B, C) or per component (B, K, C) with log weights (B, K); the
formulas and the paper's equations are in `docs/mathematics.md`.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from gemfi import dirichlet

Risk = Literal["mse", "log", "digamma"]
_SMALLEST_ALPHA = 1e-3  # below it KL(Dir(α) ‖ Dir(1)) grows like 1/α and drowns every other term


def nll(log_p: Tensor, label: Tensor) -> Tensor:
    """−log p̂_y."""
    return functional.nll_loss(log_p, label)


def squared_error(log_p: Tensor, label: Tensor) -> Tensor:
    """‖e_y − p̂‖²."""
    target = functional.one_hot(label, log_p.shape[-1]).to(log_p.dtype)
    return (target - log_p.exp()).square().sum(dim=-1).mean()


def dirichlet_variance(log_p: Tensor, log_total: Tensor) -> Tensor:
    """Σ_c p_c(1 − p_c)/(α0 + 1), the second half of the EDL risk."""
    p = log_p.exp()
    return (p * (1 - p) / (log_total.exp() + 1).unsqueeze(-1)).sum(dim=-1).mean()


def evidential_risk(log_p: Tensor, log_total: Tensor, label: Tensor, risk: Risk) -> Tensor:
    """Bayes risk of Dir(α0·p): of squared error, of −log p (`digamma`), or its bound (`log`).

    mse: Σ (y − p)² + p(1 − p)/(α0 + 1); log: log α0 − log α_y; digamma: ψ(α0) − ψ(α_y).
    """
    if risk == "mse":
        return squared_error(log_p, label) + dirichlet_variance(log_p, log_total)
    log_p_true = log_p.gather(-1, label.unsqueeze(-1)).squeeze(-1)
    if risk == "log":
        return -log_p_true.mean()
    alpha_true = (log_p_true + log_total).exp()
    return (torch.digamma(log_total.exp()) - torch.digamma(alpha_true)).mean()


def kl_prior(log_alpha: Tensor, log_weight: Tensor) -> Tensor:
    """Σ_k π_k KL(Dir(α_k) ‖ Dir(1)) for log α (B, K, C) and log π (B, K)."""
    each = dirichlet.kl_to_uniform(log_alpha.exp().clamp_min(_SMALLEST_ALPHA))
    return (log_weight.exp() * each).sum(dim=-1).mean()


def kl_misleading(log_alpha: Tensor, label: Tensor) -> Tensor:
    """KL(Dir(α̃) ‖ Dir(1)) with the true class set to one: only misleading evidence is punished."""
    alpha = log_alpha.exp().clamp_min(_SMALLEST_ALPHA)
    return dirichlet.kl_to_uniform(alpha.scatter(-1, label.unsqueeze(-1), 1.0)).mean()


def fisher_penalty(log_weight: Tensor, fisher: Tensor) -> Tensor:
    """Σ_k π_k FI_k."""
    return (log_weight.exp() * fisher).sum(dim=-1).mean()


def fisher_modulation(
    log_weight: Tensor, fisher: Tensor, strength: float, smoothing: float
) -> Tensor:
    """Log of π_k·exp(λ(1 − FI_k/ΣFI)), normalised and smoothed by ε' (B, K).

    FI is a constant here (stop-gradient). Where every head has FI = 0 the shares are taken as
    equal, which leaves π alone.
    """
    total = fisher.sum(dim=-1, keepdim=True)
    share = torch.where(total > 0, fisher / total, torch.full_like(fisher, 1 / fisher.shape[-1]))
    modulated = torch.log_softmax(log_weight + strength * (1 - share.detach()), dim=-1)
    floor = modulated.new_tensor(math.log(smoothing)) if smoothing > 0 else None
    if floor is None:
        return modulated
    return torch.logaddexp(modulated, floor) - math.log1p(fisher.shape[-1] * smoothing)


def energy_inside(energy: Tensor, clip: float | None = None) -> Tensor:
    """softplus(E) on ID features, pulling the energy down; `clip` is the paper's ±τ."""
    return functional.softplus(_clipped(energy, clip)).mean()


def energy_outside(energy: Tensor, margin: float, clip: float | None = None) -> Tensor:
    """softplus(m − E) on outliers, pushing the energy above the margin."""
    return functional.softplus(margin - _clipped(energy, clip)).mean()


def mean_entropy(log_p: Tensor) -> Tensor:
    """H(p̂)."""
    return dirichlet.entropy(log_p).mean()


def usage(log_weight: Tensor) -> Tensor:
    """Entropy of the mean weights of a batch: how evenly the heads are used, for log π (B, K)."""
    return dirichlet.entropy(torch.logsumexp(log_weight, dim=0) - math.log(len(log_weight)))


def _clipped(energy: Tensor, clip: float | None) -> Tensor:
    return energy if clip is None else energy.clamp(-clip, clip)
