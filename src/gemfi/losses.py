"""Loss terms as pure functions; each returns a scalar, the mean over the batch.

Predictions are log probabilities (B, C), or (B, K, C) with log weights (B, K).
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
_SERIES_FROM = 20.0  # beyond it h(x) of `fisher_log_det` loses digits as 1/ψ1(x) − x
_STEPS = 8  # from here on the series of ψ1 is exact to 1e-14


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
    kl = dirichlet.kl_to_uniform(log_alpha.exp().clamp_min(_SMALLEST_ALPHA))
    return (log_weight.exp() * kl).sum(dim=-1).mean()


def kl_misleading(log_alpha: Tensor, label: Tensor) -> Tensor:
    """KL(Dir(α̃) ‖ Dir(1)) with the true class set to one: only misleading evidence is punished."""
    alpha = log_alpha.exp().clamp_min(_SMALLEST_ALPHA)
    return dirichlet.kl_to_uniform(alpha.scatter(-1, label.unsqueeze(-1), 1.0)).mean()


def kl_misleading_to(log_alpha: Tensor, label: Tensor, prior: float) -> Tensor:
    """KL(Dir(α̃) ‖ Dir(β)) with β = `prior` in every class, and α̃ = α but β in the true class.

    α is taken as it is: a head whose α can come near 0 pays 1/α for it.
    """
    log_alpha = log_alpha.scatter(-1, label.unsqueeze(-1), math.log(prior))
    return dirichlet.kl(log_alpha.exp(), torch.full_like(log_alpha, prior)).mean()


def class_share(num_classes: int) -> float:
    """What a term that sums over C classes is weighted by: 1 up to ten classes, (10/C)² beyond.

    The gradient of the squared error of p starts in proportion to p = 1/C, and that of a KL between
    Dirichlets grows like √C. A weight that was found with ten classes lets the KL win with a
    hundred, and all evidence dies. The square is a rule of thumb, tried with a hundred classes.
    """
    return min(1.0, (10 / num_classes) ** 2)


def trigamma_risk(log_alpha: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Σ ψ1(α_c)(y_c − p_c)² and Σ ψ1(α_c) p_c(1 − p_c)/(α0 + 1), the two halves of I-EDL's risk.

    ψ1(α_c) is the Fisher information of the class's own α, and its gradient counts.
    """
    log_p, log_total = dirichlet.log_mean(log_alpha)
    p, weight = log_p.exp(), _trigamma(log_alpha.exp())
    target = functional.one_hot(label, p.shape[-1]).to(p.dtype)
    error = (weight * (target - p).square()).sum(dim=-1)
    variance = (weight * p * (1 - p)).sum(dim=-1) / (log_total.exp() + 1)
    return error.mean(), variance.mean()


def fisher_log_det(log_alpha: Tensor) -> Tensor:
    """Log det of the Fisher information of Dir(α): of diag ψ1(α_c) − ψ1(α0)·11ᵀ.

    As printed it is Σ log ψ1(α_c) + log(1 − Σ ψ1(α0)/ψ1(α_c)), whose last argument, about (C −
    1)/2α0, is noise in float32 at α0 = 10⁶. With h(x) = 1/ψ1(x) − x and Σ α_c = α0 it is
    ψ1(α0)·(h(α0) − Σ h(α_c)), where the large parts have cancelled on paper.
    """
    alpha = log_alpha.exp()
    total = alpha.sum(dim=-1)
    own, joint = _trigamma(alpha), _trigamma(total)
    rest = _inverse_trigamma_gap(total, joint) - _inverse_trigamma_gap(alpha, own).sum(dim=-1)
    return (own.log().sum(dim=-1) + joint.log() + rest.log()).mean()


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
    if smoothing == 0:
        return modulated
    floor = modulated.new_full((), math.log(smoothing))
    return torch.logaddexp(modulated, floor) - math.log1p(fisher.shape[-1] * smoothing)


def energy_inside(energy: Tensor, clip: float | None = None) -> Tensor:
    """softplus(E) on ID features, pulling the energy down; `clip` is the paper's ±τ."""
    return functional.softplus(_clipped(energy, clip)).mean()


def energy_outside(energy: Tensor, margin: float = 0.0, clip: float | None = None) -> Tensor:
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


def _inverse_trigamma_gap(x: Tensor, trigamma: Tensor) -> Tensor:
    """h(x) = 1/ψ1(x) − x, between −1/2 and 0; beyond 20 by the series of ψ1, without its x."""
    r = 1 / x.clamp_min(_SERIES_FROM)
    series = _trigamma_series(r)
    return torch.where(x > _SERIES_FROM, -series / (1 + r * series), 1 / trigamma - x)


def _trigamma(x: Tensor) -> Tensor:
    """ψ1(x) by its recurrence and series; the gradient of `torch.polygamma` is far slower."""
    r = 1 / (x + _STEPS)
    steps = torch.arange(_STEPS, dtype=x.dtype, device=x.device)
    below = (x.unsqueeze(-1) + steps).square().reciprocal().sum(dim=-1)
    return below + r * (1 + r * _trigamma_series(r))


def _trigamma_series(r: Tensor) -> Tensor:
    """The s of ψ1(x) = r(1 + r·s) for r = 1/x: 1/2 + r/6 − r³/30 + r⁵/42 and so on."""
    r2 = r * r
    bernoulli = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
    tail = torch.zeros_like(r)
    for number in reversed(bernoulli):
        tail = number + r2 * tail
    return 0.5 + r * tail
