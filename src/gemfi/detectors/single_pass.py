"""Detectors that read logits or features of one pass: MaxP, temperature, energy, LTS, KNN, DDU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gemfi import calibration, scores
from gemfi._config import check_int, check_number
from gemfi.density import ClassGaussians, Statistics
from gemfi.detectors.base import BATCH, Detector, DetectorInfo, Observed
from gemfi.errors import InputError

_BLOCK = 1 << 24  # distances held at a time


class MaxP(Detector):
    """1 − max_c p̂_c."""

    info = DetectorInfo(
        name="maxp",
        summary="1 − the largest probability",
        paper="A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural "
        "Networks",
        venue="ICLR",
        year=2017,
        needs="logits",
    )

    def _score(self, observed: Observed) -> Tensor:
        return scores.max_prob(observed.belief)


class TemperatureScaling(Detector):
    """1 − max_c p̂_c at the temperature of the smallest NLL on ID validation data."""

    info = DetectorInfo(
        name="temperature",
        summary="1 − the largest probability at the temperature of the best validation NLL",
        paper="On Calibration of Modern Neural Networks",
        venue="ICML",
        year=2017,
        needs="logits",
    )
    log_temperature: Tensor

    def _begin(self) -> None:
        self._held: list[tuple[Tensor, Tensor]] = []

    def _from_validation(self, seen: Observed) -> None:
        self._held.append((seen.belief.log_probs(), seen.labels))

    def _end(self) -> None:
        log_probs, labels = map(torch.cat, zip(*self._held, strict=True))
        self._held = []
        self.log_temperature = calibration.fit_temperature(log_probs, labels)
        value = math.exp(float(self.log_temperature))
        note = f"T = {value:.4g}, fitted on {len(labels):,} validation samples"
        if calibration.at_bound(self.log_temperature):
            note += ": a bound, since no T has the smallest NLL"
        self.notes = [note]

    def _score(self, observed: Observed) -> Tensor:
        return scores.max_prob(calibration.calibrated(observed.belief, self.log_temperature))


@dataclass(frozen=True)
class EnergyConfig:
    """T, the temperature."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, above=0)


class Energy(Detector):
    """−T·log Σ_c exp(f_c/T)."""

    info = DetectorInfo(
        name="energy",
        summary="minus the logsumexp of the logits",
        paper="Energy-based Out-of-distribution Detection",
        venue="NeurIPS",
        year=2020,
        needs="logits",
        unnormalised=True,
    )
    default = EnergyConfig()

    def _score(self, observed: Observed) -> Tensor:
        temperature = self.config.temperature
        energy: Tensor = -temperature * torch.logsumexp(observed.logits / temperature, dim=1)
        return energy


@dataclass(frozen=True)
class LTSConfig:
    """p: the strongest of n features are the n − round(n·p/100) largest, and at least one."""

    percentile: float = 95.0

    def __post_init__(self) -> None:
        check_number("percentile", self.percentile, 0, 100)


class LTS(Detector):
    """−log Σ_c exp(S·f_c), S = (Σ relu(h) / Σ of the k largest relu(h))².

    Features without any activation leave the logits as they are (S = 1).
    """

    info = DetectorInfo(
        name="lts",
        summary="energy of logits scaled by the share of the strongest features",
        paper="Logit Scaling for Out-of-Distribution Detection",
        venue="Machine Vision and Applications",
        year=2025,
        needs="features",
        unnormalised=True,
    )
    default = LTSConfig()

    def _score(self, observed: Observed) -> Tensor:
        scale = activation_scale(observed.features, self.config.percentile)
        return -torch.logsumexp(scale.unsqueeze(1) * observed.logits, dim=1)


def activation_scale(features: Tensor, percentile: float) -> Tensor:
    """S (N,) of features (N, n), in float64."""
    active = functional.relu(features.to(torch.float64))
    count = active.shape[1]
    strongest = max(1, count - round(count * percentile / 100))
    top = active.topk(strongest, dim=1).values.sum(dim=1)
    return torch.where(top > 0, active.sum(dim=1) / top, 1.0).square()


@dataclass(frozen=True)
class KNNConfig:
    """k: which neighbour; with fewer training samples than that, the farthest of them."""

    k: int = 50

    def __post_init__(self) -> None:
        check_int("k", self.k, 1)


class KNN(Detector):
    """‖z/‖z‖ − z_(k)/‖z_(k)‖‖ to the k-th nearest training feature z_(k), in float64."""

    info = DetectorInfo(
        name="knn",
        summary="distance to the k-th nearest training feature, on unit-norm features",
        paper="Out-of-Distribution Detection with Deep Nearest Neighbors",
        venue="ICML",
        year=2022,
        needs="features",
    )
    default = KNNConfig()
    reference: Tensor
    k: int

    def _begin(self) -> None:
        self._parts: list[Tensor] = []

    def _from_train(self, seen: Observed) -> None:
        self._parts.append(seen.features.to(torch.float64))

    def _end(self) -> None:
        self.reference, self._parts = torch.cat(self._parts), []
        self.k = min(self.config.k, len(self.reference))
        if self.k < self.config.k:
            self.notes = [
                f"k = {self.k} and not {self.config.k}: there are no more training samples"
            ]

    def _score(self, observed: Observed) -> Tensor:
        return knn_distance(observed.features.to(torch.float64), self.reference, self.k)


def knn_distance(z: Tensor, reference: Tensor, k: int = 10, *, unit: bool = True) -> Tensor:
    """Distance (B,) of features (B, D) to their k-th nearest of `reference` (N, D)."""
    if len(z) == 0:
        raise InputError("no features were given")
    if not 1 <= k <= len(reference):
        raise InputError(f"k must lie in 1 to {len(reference)} (the reference features), got {k}")
    if unit:
        z, reference = functional.normalize(z, dim=-1), functional.normalize(reference, dim=-1)
    nearest = [
        torch.cdist(rows, reference).topk(k, dim=1, largest=False).values[:, -1]
        for rows in torch.split(z, max(1, _BLOCK // len(reference)))
    ]
    return torch.cat(nearest)


@dataclass(frozen=True)
class DDUConfig:
    """Shrinkage of each covariance towards the tied one (the paper has none), and a ridge.

    The ridge is in units of the mean variance; it alone gives full rank to the covariance of a
    class with no more samples than features.
    """

    shrinkage: float = 0.0
    ridge: float = 1e-4

    def __post_init__(self) -> None:
        check_number("shrinkage", self.shrinkage, 0, 1)
        check_number("ridge", self.ridge, above=0)


class DDU(Detector):
    """−log Σ_c π_c N(z; μ_c, Σ_c) on raw features, in float64."""

    info = DetectorInfo(
        name="ddu",
        summary="minus the log density of the features, one Gaussian a class",
        paper="Deep Deterministic Uncertainty: A New Simple Baseline",
        venue="CVPR",
        year=2023,
        needs="features",
    )
    default = DDUConfig()
    gaussians: ClassGaussians

    def _begin(self) -> None:
        self._fit = GaussianFit(shrinkage=self.config.shrinkage, ridge=self.config.ridge)

    def _from_train(self, seen: Observed) -> None:
        self._fit.see(seen.features, seen.labels, seen.logits.shape[1])

    def _end(self) -> None:
        self.gaussians = self._fit.gaussians()
        self.notes = list(self.gaussians.notes)

    def _score(self, observed: Observed) -> Tensor:
        # in pieces: whitened features are (B, C·D)
        pieces = torch.split(observed.features.to(torch.float64), BATCH)
        return -torch.cat([self.gaussians(piece) for piece in pieces])


class GaussianFit:
    """Gaussians in float64 on features that come batch by batch.

    Args:
        options: of `ClassGaussians`.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self._fit: tuple[ClassGaussians, Statistics] | None = None

    def see(self, z: Tensor, y: Tensor, num_classes: int) -> None:
        """Count features (B, D) of classes (B,)."""
        if self._fit is None:
            empty = ClassGaussians(num_classes, z.shape[1], **self.options)
            empty = empty.to(z.device, torch.float64)
            self._fit = empty, empty.statistics()
        self._fit[1].update(z, y)

    def gaussians(self) -> ClassGaussians:
        """Fitted on all that was seen."""
        if self._fit is None:
            raise InputError("no features were given")
        gaussians, statistics = self._fit
        gaussians.fit(statistics)
        return gaussians
