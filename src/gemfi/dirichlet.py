"""Closed forms for Dirichlet distributions and mixtures of them (`docs/mathematics.md`, C1-C7).

A Dirichlet is given by its log mean `log_p` (..., C) and its log total `log_total` (...): α = α0·p.
So every quantity is finite where α itself would underflow. Scores call them in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_SERIES_FROM = 20.0


def log_mean(log_alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Split log α (..., C) into the log mean (..., C) and the log total (...)."""
    log_total = torch.logsumexp(log_alpha, dim=-1)
    return log_alpha - log_total.unsqueeze(-1), log_total


def log_concentration(log_p: Tensor, log_total: Tensor) -> Tensor:
    """Log α = log α0 + log p."""
    return log_p + log_total.unsqueeze(-1)


# -- one Dirichlet ------------------------------------------------------------------------------


def kl(alpha: Tensor, beta: Tensor) -> Tensor:
    """KL(Dir(α) ‖ Dir(β)) over the last dimension.

    ln B(β) − ln B(α) + Σ (α_c − β_c)(ψ(α_c) − ψ(α0)).
    """
    total, prior_total = alpha.sum(dim=-1), beta.sum(dim=-1)
    normalisers = (
        torch.lgamma(total)
        - torch.lgamma(alpha).sum(dim=-1)
        - torch.lgamma(prior_total)
        + torch.lgamma(beta).sum(dim=-1)
    )
    shift = torch.digamma(alpha) - torch.digamma(total).unsqueeze(-1)
    return normalisers + ((alpha - beta) * shift).sum(dim=-1)


def kl_to_uniform(alpha: Tensor) -> Tensor:
    """KL(Dir(α) ‖ Dir(1)) over the last dimension (C2)."""
    total = alpha.sum(dim=-1)
    normalisers = torch.lgamma(total) - torch.lgamma(alpha).sum(dim=-1)
    shift = torch.digamma(alpha) - torch.digamma(total).unsqueeze(-1)
    return normalisers - math.lgamma(alpha.shape[-1]) + ((alpha - 1) * shift).sum(dim=-1)


def entropy(log_p: Tensor) -> Tensor:
    """Shannon entropy −Σ p log p over the last dimension, in nats; 0·log 0 = 0."""
    return -_times(log_p.exp(), log_p).sum(dim=-1)


def digamma_gap(log_x: Tensor) -> Tensor:
    """g(x) = ψ(x + 1) − ln x, positive and decreasing, from ln x (C3).

    Beyond x = 20 by the series 1/(2x) − 1/(12x²) + 1/(120x⁴) − 1/(252x⁶): there ψ and ln agree in
    nearly all digits, and their difference in float32 is noise.
    """
    x = log_x.clamp_max(math.log(2 * _SERIES_FROM)).exp()  # an infinite x has no gradient
    r = torch.exp(-log_x.clamp_min(math.log(_SERIES_FROM)))
    r2 = r * r
    series = r * (0.5 - r * (1 / 12 - r2 * (1 / 120 - r2 / 252)))
    direct = torch.digamma(x + 1) - log_x
    return torch.where(x > _SERIES_FROM, series, direct)


def mutual_information(log_p: Tensor, log_total: Tensor) -> Tensor:
    """I[y; p] under Dir(α0·p): H(p) − E[H] = Σ p_c (g(α_c) − g(α0)), each term ≥ 0 (C3)."""
    gap = digamma_gap(log_concentration(log_p, log_total)) - digamma_gap(log_total).unsqueeze(-1)
    return _times(log_p.exp(), gap.clamp_min(0)).sum(dim=-1)


def expected_entropy(log_p: Tensor, log_total: Tensor) -> Tensor:
    """E[H] under Dir(α0·p): Σ p_c (ψ(α0 + 1) − ψ(α_c + 1)), each term ≥ 0 (C3)."""
    alpha = log_concentration(log_p, log_total).exp()
    gap = torch.digamma(log_total.exp() + 1).unsqueeze(-1) - torch.digamma(alpha + 1)
    return (log_p.exp() * gap.clamp_min(0)).sum(dim=-1)


def differential_entropy(log_p: Tensor, log_total: Tensor) -> Tensor:
    """h(Dir(α)) = ln B(α) + (α0 − C) ψ(α0) − Σ (α_c − 1) ψ(α_c) (C3); falls like −1/α_c near 0."""
    alpha = log_concentration(log_p, log_total).exp()
    alpha = alpha.clamp_min(torch.finfo(alpha.dtype).tiny)  # at 0 it would be ∞ − ∞
    total = log_total.exp()
    log_beta = torch.lgamma(alpha).sum(dim=-1) - torch.lgamma(total)
    spread = ((alpha - 1) * torch.digamma(alpha)).sum(dim=-1)
    return log_beta + (total - alpha.shape[-1]) * torch.digamma(total) - spread


def fisher_proxy(log_p: Tensor, label: Tensor, factor: Tensor | None = None) -> Tensor:
    """‖∂ log p_y / ∂u‖² for logits u with α = ρ·exp(clip u) + ε, and log p (..., C) (C1).

    FI = Σ_c f_c² (1[c = y] − p_c)²; the `factor` f_c = m_c·e_c/α_c is one away from clip and ε. 1 −
    p_y is summed from the other classes: 1 − 2p_y + Σp² loses every digit in float32 on a confident
    head. Labels (...) are broadcast.
    """
    label = label.expand(log_p.shape[:-1]).unsqueeze(-1)
    others = log_p.exp().scatter(-1, label, 0.0)
    gradient = others.scatter(-1, label, others.sum(dim=-1, keepdim=True))
    if factor is not None:
        gradient = gradient * factor
    return gradient.square().sum(dim=-1)


# -- mixtures: log_p (B, K, C), log_weight (B, K) -----------------------------------------------


def log_mixture(log_p: Tensor, log_weight: Tensor) -> Tensor:
    """Log Σ_k π_k p_k (B, C) (C6)."""
    if log_p.shape[1] == 1:
        return log_p.squeeze(1)
    return torch.logsumexp(log_weight.unsqueeze(-1) + log_p, dim=1)


def logit_energy(logits: Tensor, log_weight: Tensor) -> Tensor:
    """−log Σ_k π_k Σ_c exp u_kc (B,)."""
    return -torch.logsumexp(log_weight + torch.logsumexp(logits, dim=-1), dim=-1)


def disagreement(log_p: Tensor, log_weight: Tensor) -> Tensor:
    """Jensen-Shannon divergence of the components, Σ π_k KL(p_k ‖ p_mix) ≥ 0 (B,) (C4).

    Summed as Σ (p_k d − p_k + p_mix) with d = log(p_k/p_mix), every term non-negative. Where the
    heads nearly agree it is p_k (d + e^−d − 1) ≈ p_k d²/2, and where they are equal it is exactly
    zero.
    """
    log_mix = log_mixture(log_p, log_weight).unsqueeze(1)
    p = log_p.exp()
    d = torch.where(p > 0, log_p - log_mix, -1.0)  # at p = 0 the term is p_mix, whatever d is
    d = torch.where(log_p.amax(dim=1, keepdim=True) == log_p.amin(dim=1, keepdim=True), 0.0, d)
    near = d.clamp(-1, 1)
    terms = torch.where(d.abs() < 1, p * (near + torch.expm1(-near)), p * d - p + log_mix.exp())
    return (log_weight.exp() * terms.clamp_min(0).sum(dim=-1)).sum(dim=-1)


def gate_components(log_p: Tensor, log_weight: Tensor, log_gate: Tensor) -> tuple[Tensor, Tensor]:
    """A gated mixture is a mixture: p̂_k ∝ s·p_k with weights w_k ∝ π_k⟨s, p_k⟩ (C5)."""
    gated = log_p + log_gate.unsqueeze(1)
    mass = torch.logsumexp(gated, dim=-1)
    return gated - mass.unsqueeze(-1), torch.log_softmax(log_weight + mass, dim=-1)


def class_variance(log_p: Tensor, log_weight: Tensor, log_total: Tensor) -> tuple[Tensor, Tensor]:
    """Total variance of p_c by the law of total variance (C4), as (between, within), each (B, C).

    between = Var_π(p_kc); within = Σ π_k p_kc (1 − p_kc)/(α0_k + 1).
    """
    p, weight = log_p.exp(), log_weight.exp().unsqueeze(-1)
    mean = (weight * p).sum(dim=1, keepdim=True)
    between = (weight * (p - mean).square()).sum(dim=1)
    within = (weight * p * (1 - p) / (log_total.exp() + 1).unsqueeze(-1)).sum(dim=1)
    return between, within


def _times(p: Tensor, value: Tensor) -> Tensor:
    """p·value with 0·∞ = 0, which is the limit in every formula here."""
    return p * torch.where(p > 0, value, 0.0)
