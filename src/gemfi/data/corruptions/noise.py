"""Noise: Gaussian, shot, impulse and speckle."""

from __future__ import annotations

import numpy as np

from gemfi.data.corruptions.record import Constants, Floats, Rngs, stacked


def gaussian_noise(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """X + σε, ε standard normal for each channel of each pixel."""
    (sd,) = constants
    return x + sd * stacked(rngs, lambda rng: rng.standard_normal(x.shape[1:]))


def shot_noise(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Poisson(λx) / λ: the noise of counting λ photons at full brightness."""
    (photons,) = constants
    counts = [rng.poisson(image * photons) for image, rng in zip(x, rngs, strict=True)]
    return np.stack(counts) / photons


def impulse_noise(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Salt and pepper: each channel of each pixel becomes 0 or 1, each with probability a/2."""
    (amount,) = constants
    u = stacked(rngs, lambda rng: rng.random(x.shape[1:]))
    return np.where(u < amount / 2, 0.0, np.where(u < amount, 1.0, x))


def speckle_noise(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """X + xσε: noise in proportion to the brightness."""
    (sd,) = constants
    return x + x * sd * stacked(rngs, lambda rng: rng.standard_normal(x.shape[1:]))
