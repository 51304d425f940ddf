"""What the tests of corruptions share."""

from __future__ import annotations

import itertools

import numpy as np
from torch import Tensor

from gemfi_bench.corruptions import CORRUPTIONS_CIFAR, CORRUPTIONS_MNIST, SEVERITIES, corrupt

ALL = [
    *(("cifar10", name, severity) for name in CORRUPTIONS_CIFAR for severity in (1, 3, 5)),
    *(("mnist", name, None) for name in CORRUPTIONS_MNIST),
]
# Types that, with the published constants, do not raise the distance from the clean image at each
# step; each has a test of its own that says what rises instead.
NOT_BY_DISTANCE = {
    "glass_blur",
    "motion_blur",
    "frost",
    "elastic_transform",
    "spatter",
    "saturate",
}


def rngs(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, i]) for i in range(count)]


def pick(family: str, colour: Tensor, digits: Tensor, count: int = 12) -> Tensor:
    return (colour if family == "cifar10" else digits)[:count]


def distance(a: Tensor, b: Tensor) -> float:
    return (a.float() - b.float()).abs().mean().item()


def unlikeness(a: Tensor, b: Tensor) -> float:
    """1 − correlation, mean over images: blind to brightness and contrast."""
    a, b = a.flatten(1).double(), b.flatten(1).double()
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    return (1 - (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))).mean().item()


def by_severity(name: str, images: Tensor) -> list[float]:
    return [distance(corrupt(images, name, severity), images) for severity in SEVERITIES]


def rises(values: list[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise(values))
