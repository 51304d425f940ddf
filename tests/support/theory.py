"""The paper's two propositions as numbers that a test can check (`docs/mathematics.md`).

Proposition 1: with spectrally bounded modules and a gate in [s_min, s_max], p̂ is locally Lipschitz.
`lipschitz_bound` is the constant that the proof gives, with every step made explicit.

Proposition 2: away from the support the evidence weakly falls, because ρ does. `evidence_on_ray`
shows whether it did.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gemfi import scores
from gemfi.backbones import MLP
from gemfi.errors import InputError
from gemfi.methods.gem import GEM
from gemfi.methods.gem_modules import Perceptron
from gemfi.model import Model
from gemfi.spectral import SpectralLayer

_SOFTMAX = 1 / math.sqrt(2)  # ‖softmax(u) − softmax(u')‖₁ ≤ ‖u − u'‖₂ / √2
_SIGMOID = 1 / 4


def perceptron_bound(perceptron: Perceptron) -> float:
    """Product of the layers' spectral norms (leaky ReLU does not stretch); the largest of a stack.

    Batch norm rescales freely in evaluation, so that no bound of this kind exists with it.
    """
    if len(perceptron.norms):
        raise InputError("no Lipschitz bound with batch norm in a module: use sizes='paper'")
    bound = torch.ones(())
    for layer in perceptron.layers:
        if isinstance(layer, SpectralLayer):
            bound = bound * layer.norms()
    return float(bound.max())


def lipschitz_bound(head: GEM, radius: float = 1.0) -> float:
    """L with ‖p̂(z) − p̂(z')‖₁ ≤ L·‖z − z'‖₂ for features of norm at least `radius`.

    With L_u, L_π, L_s the constants of logits, router and gate in the features that they see,

        ‖p_mix − p_mix'‖₁ ≤ L_u/√2 + L_π/√2
        ‖p̂ − p̂'‖₁ ≤ (2/s_min)·(s_max·‖p_mix − p_mix'‖₁ + ‖s − s'‖_∞)

    and unit-norm features are 1/radius-Lipschitz outside the ball of that radius. For the
    probability gate and for none; the other two gates have no bound that is uniform in the logits.

    Args:
        head: a GEM head in evaluation mode.
        radius: smallest feature norm considered; only matters for unit-norm features.
    """
    config = head.config
    if radius <= 0:
        raise InputError(f"radius must be positive, got {radius}")
    if config.core and config.gate != "prob":
        raise InputError(f"the bound is for the probability gate, got gate={config.gate!r}")
    scale = 1 / radius if config.feature_space == "unit" else 1.0
    signal = 1.0  # of z -> [z, σ(E(z))]
    if head.energy is not None:
        energy = perceptron_bound(head.energy)
        signal = math.hypot(1.0, _SIGMOID * energy)
    heads = perceptron_bound(head.heads) * math.exp(-head.log_temperature.item())
    mixture = _SOFTMAX * heads
    if head.router is not None:
        mixture += _SOFTMAX * perceptron_bound(head.router) * signal
    if head.gate is None:
        return scale * mixture
    low, high = config.gate_low, config.gate_high
    slope = (high - low if config.gate_bound == "sigmoid" else 1.0) * _SIGMOID
    gate = slope * perceptron_bound(head.gate) * signal
    return scale * 2 / low * (high * mixture + gate)


@torch.no_grad()
def evidence_on_ray(model: Model, start: Tensor, direction: Tensor, distances: Tensor) -> Tensor:
    """Log evidence log Σ π_k α0_k + log ρ along a ray in input space (N,).

    Args:
        model: a trained model with evidence.
        start: (d,) a point of the support.
        direction: (d,) where to go; made a unit vector.
        distances: (N,) how far.
    """
    unit = direction / direction.norm()
    return -scores.evidence(model.predict(start + distances[:, None] * unit))


def rises(values: Tensor, tolerance: float = 0.0) -> Tensor:
    """By how much each value passes the smallest before it, where that is more than `tolerance`.

    Zero everywhere means that the sequence weakly falls.
    """
    lowest = torch.cummin(values, dim=0).values
    rise = values[1:] - lowest[:-1]
    return torch.where(rise > tolerance, rise, torch.zeros_like(rise))


@torch.no_grad()
def mlp_bound(network: MLP) -> float:
    """A bound on ‖z(x) − z(x')‖ / ‖x − x'‖: σ(W₀)·Π(1 + σ(W_i))."""
    first, *blocks = (float(layer.norms().max()) for layer in (network.first, *network.blocks))
    return first * math.prod(1 + norm for norm in blocks)
