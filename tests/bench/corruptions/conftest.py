"""Images to corrupt."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor


@pytest.fixture(scope="session")
def colour() -> Tensor:
    """(48, 3, 32, 32): smooth waves with a coloured box, no two alike."""
    rng = np.random.default_rng(0)
    grid = np.arange(32) / 32
    images = np.zeros((48, 3, 32, 32))
    for image in images:
        for c in range(3):
            for _ in range(4):
                a, b = rng.uniform(-4, 4, 2)
                wave = np.cos(2 * np.pi * (a * grid[:, None] + b * grid + rng.random()))
                image[c] += 0.1 * wave
            image[c] += rng.uniform(0.35, 0.6)
        top, left = rng.integers(4, 18, 2)
        image[:, top : top + 9, left : left + 9] = rng.random((3, 1, 1))
    return torch.from_numpy((np.clip(images, 0, 1) * 255).astype(np.uint8))


@pytest.fixture(scope="session")
def digits() -> Tensor:
    """(48, 1, 28, 28): scikit-learn's digits, enlarged to 20×20 in a black frame."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    small = load_digits().images[:48] / 16
    large = np.clip(ndimage.zoom(small, (1, 2.5, 2.5), order=1), 0, 1)
    framed = np.pad(large, ((0, 0), (4, 4), (4, 4)))[:, None]
    return torch.from_numpy((framed * 255).astype(np.uint8))
