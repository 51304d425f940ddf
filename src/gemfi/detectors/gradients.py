"""Detectors that may go back through the model: ODIN, and Mahalanobis with noise or layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi import metrics
from gemfi._config import check_number
from gemfi.data import AnySplit, Role, require_role
from gemfi.density import ClassGaussians
from gemfi.detectors.base import (
    BATCH,
    Detector,
    DetectorInfo,
    Needs,
    Observed,
    joint_logits,
    perturbed,
)
from gemfi.detectors.single_pass import GaussianFit
from gemfi.devices import device_of, move
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.modes import evaluating

CANDIDATES = (0.0, 0.0005, 0.0014, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Steps that `choose_epsilon` tries."""


@dataclass(frozen=True)
class ODINConfig:
    """Choices of ODIN.

    Attributes:
        temperature: T.
        epsilon: the step, in the units of the inputs before the normalisation, bytes as [0, 1]; 0
            for none. The default is the paper's, of 32×32 photographs.
    """

    temperature: float = 1000.0
    epsilon: float = 0.0014

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, above=0)
        check_number("epsilon", self.epsilon, 0)


class ODIN(Detector):
    """1 − max_c softmax(f(x̃)/T)_c at x̃ = x − ε·sign(∇_x −log softmax(f(x)/T)_ŷ).

    ŷ is the predicted class. Two forward passes and one backward pass an input.
    """

    info = DetectorInfo(
        name="odin",
        summary="1 − the largest probability at T = 1000 after a step towards the predicted class",
        paper="Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks",
        venue="ICLR",
        year=2018,
        needs="inputs",
    )
    default = ODINConfig()

    def _score_batch(self, model: Model, x: Tensor) -> Tensor:
        temperature = self.config.temperature

        def loss(inputs: Tensor) -> Tensor:
            logits = joint_logits(model(inputs)) / temperature
            return functional.cross_entropy(logits, logits.argmax(dim=1), reduction="none")

        moved = perturbed(x, self.config.epsilon, loss)
        with torch.no_grad():
            # in float64: at T = 1000 all that tells inputs apart is in the last digits
            logits = joint_logits(model(moved).to(torch.float64)) / temperature
        p = torch.softmax(logits, dim=1)
        return p.scatter(1, p.argmax(dim=1, keepdim=True), 0.0).sum(dim=1)

    @classmethod
    def choose_epsilon(
        cls,
        model: Model,
        inside: AnySplit,
        outside: AnySplit | None = None,
        *,
        temperature: float = 1000.0,
        candidates: Sequence[float] = CANDIDATES,
    ) -> float:
        """The step for this model, without looking at test data; of equals, the smallest.

        It has the largest AUROC of ID and OOD validation data or, of ID data alone, the largest
        mean of max_c p (Generalised ODIN).

        Args:
            model: trained.
            inside: role validation.
            outside: role ood-validation, or None.
            temperature: T.
            candidates: steps to try.
        """
        require_role(inside, (Role.VALIDATION,), "the choice of ODIN's step as ID data")
        if outside is not None:
            use = "the choice of ODIN's step as OOD data"
            require_role(outside, (Role.OOD_VALIDATION,), use)
        if not candidates:
            raise InputError("choose_epsilon needs at least one candidate, got none")

        def worth(epsilon: float) -> float:
            detector = cls(ODINConfig(temperature, epsilon))
            base = detector.score(model, inside)
            if outside is None:
                return -float(base.mean())
            return metrics.auroc(base, detector.score(model, outside))

        return max(sorted(candidates), key=worth)


@dataclass(frozen=True)
class MahalanobisConfig:
    """Choices of the distance.

    Attributes:
        noise: step of the input towards the nearest class before it is measured, in the units of
            the inputs before the normalisation, bytes as [0, 1]. It costs a backward pass for each
            layer.
        layers: names of modules of the backbone, such as `blocks.3`, whose outputs are averaged
            over space and measured beside the features; `fit_layers` fits them.
        ridge: added to the diagonal of each covariance, in units of the mean variance.
    """

    noise: float = 0.0
    layers: tuple[str, ...] = ()
    ridge: float = 1e-4

    def __post_init__(self) -> None:
        check_number("noise", self.noise, 0)
        check_number("ridge", self.ridge, above=0)
        if not isinstance(self.layers, tuple) or len(set(self.layers)) < len(self.layers):
            raise InputError(f"layers must be a tuple of different names, got {self.layers!r}")


class Mahalanobis(Detector):
    """min_c (z − μ_c)ᵀ Σ⁻¹ (z − μ_c), with one covariance Σ for all classes, in float64.

    With layers the score is a weighted sum of the distances, each standardised; the weights are
    those of a logistic regression that tells ID validation from OOD validation data.
    """

    info = DetectorInfo(
        name="mahalanobis",
        summary="squared Mahalanobis distance to the nearest class mean, tied covariance",
        paper="A Simple Unified Framework for Detecting Out-of-Distribution Samples and "
        "Adversarial Attacks",
        venue="NeurIPS",
        year=2018,
        needs="features",
    )
    default = MahalanobisConfig()

    def __init__(self, config: MahalanobisConfig | None = None) -> None:
        super().__init__(config)
        self.gaussians: list[ClassGaussians] = []  # of each layer, the features last
        self.weight: Tensor | None = None  # (L + 1,) of the distances, and an intercept
        self.intercept = 0.0

    @property
    def needs(self) -> Needs:
        """Features alone, unless there is noise or there are layers."""
        return "inputs" if self.config.noise or self.config.layers else "features"

    def _begin(self) -> None:
        if self.config.layers:
            raise InputError(
                "a Mahalanobis detector of several layers needs the model and OOD validation data: "
                "call fit_layers(model, train, inside, outside)"
            )
        self.weight = None  # of an earlier fit_layers
        self._fit = self._new_fit()

    def _from_train(self, seen: Observed) -> None:
        self._fit.see(seen.features, seen.labels, seen.logits.shape[1])

    def _end(self) -> None:
        self.gaussians = [self._fit.gaussians()]
        self.notes = list(self.gaussians[0].notes)

    def _new_fit(self) -> GaussianFit:
        return GaussianFit(covariance="tied", ridge=self.config.ridge)

    def fit_layers(
        self, model: Model, train: AnySplit, inside: AnySplit, outside: AnySplit
    ) -> None:
        """Fit a Gaussian a class for each layer, and the weights of the layers.

        Means and covariances are those of training data, the weights of validation and
        OOD-validation data.
        """
        purpose = "fitting the layers of a Mahalanobis detector"
        require_role(train, (Role.TRAIN,), f"{purpose} as training data")
        require_role(inside, (Role.VALIDATION,), f"{purpose} as ID data")
        require_role(outside, (Role.OOD_VALIDATION,), f"{purpose} as OOD data")
        model = evaluating(model)
        self.gaussians = self._layer_gaussians(model, train)
        device = device_of(model)
        near, far = (
            torch.cat([self._distances(model, move(x, device)) for _, x, _ in model.batches(split)])
            for split in (inside, outside)
        )
        self.weight, self.intercept = _logistic(near, far)
        shares = (self.weight * torch.cat([near, far]).std(dim=0)).tolist()
        names = [*self.config.layers, "features"]
        listed = ", ".join(f"{name} {share:.3g}" for name, share in zip(names, shares, strict=True))
        self.notes = [f"weights of the standardised distances: {listed}"]
        self.fitted = True

    def _score(self, observed: Observed) -> Tensor:
        pieces = torch.split(observed.features, BATCH)
        return torch.cat([nearest(self.gaussians[0], piece) for piece in pieces])

    def _score_batch(self, model: Model, x: Tensor) -> Tensor:
        distances = self._distances(model, x)
        if self.weight is None:
            return distances.squeeze(1)
        return distances @ self.weight + self.intercept

    def _distances(self, model: Model, x: Tensor) -> Tensor:
        """Squared distances (B, L) of each layer, after the noise of each."""
        layers = self.config.layers

        def distance(index: int, inputs: Tensor) -> Tensor:
            return nearest(self.gaussians[index], layer_features(model, inputs, layers)[index])

        if self.config.noise == 0:
            with torch.no_grad():
                pairs = zip(self.gaussians, layer_features(model, x, layers), strict=True)
                return torch.stack([nearest(gaussians, z) for gaussians, z in pairs], dim=1)
        distances = []
        for index in range(len(self.gaussians)):
            moved = perturbed(x, self.config.noise, partial(distance, index))
            with torch.no_grad():
                distances.append(distance(index, moved))
        return torch.stack(distances, dim=1)

    @torch.no_grad()
    def _layer_gaussians(self, model: Model, train: AnySplit) -> list[ClassGaussians]:
        fits = [self._new_fit() for _ in range(len(self.config.layers) + 1)]
        for _, x, y in model.batches(train, BATCH):
            layers = layer_features(model, move(x, device_of(model)), self.config.layers)
            for fit, z in zip(fits, layers, strict=True):
                fit.see(z, y.to(z.device), model.head.num_classes)  # type: ignore[union-attr]
        return [fit.gaussians() for fit in fits]


def nearest(gaussians: ClassGaussians, z: Tensor) -> Tensor:
    """Squared distance (B,) of features (B, D) to the nearest class mean, in float64.

    A class without samples takes no part. The class is sought by an expanded square, and measured
    by an exact one.
    """
    white = gaussians.whitened(z.to(torch.float64))
    means = gaussians.means[gaussians.log_norm.isfinite()]
    near = (means.square().sum(dim=1) - 2 * white.detach() @ means.T).argmin(dim=1)
    return (white - means[near]).square().sum(dim=1)


def layer_features(model: Model, x: Tensor, layers: Sequence[str]) -> list[Tensor]:
    """Outputs (B, ·) of modules of the backbone, averaged over space, and the features last."""
    known = dict(model.backbone.named_modules())
    outputs: dict[str, Tensor] = {}
    hooks = []
    for name in layers:
        if name not in known or not name:
            raise InputError(
                f"the backbone has no module {name!r}; it has {', '.join(filter(None, known))}"
            )

        def keep(_module: nn.Module, _inputs: Any, output: Any, name: str = name) -> None:
            if not isinstance(output, Tensor) or output.ndim < 2:
                raise InputError(f"module {name!r} of the backbone does not return (B, ...)")
            outputs[name] = output.flatten(2).mean(dim=2) if output.ndim > 2 else output

        hooks.append(known[name].register_forward_hook(keep))
    try:
        z = model.features(x)
    finally:
        for hook in hooks:
            hook.remove()
    absent = [name for name in layers if name not in outputs]
    if absent:
        raise InputError(f"module {absent[0]!r} of the backbone takes no part in a forward pass")
    return [*(outputs[name] for name in layers), z[:, : model.head.num_features]]


def _logistic(near: Tensor, far: Tensor) -> tuple[Tensor, float]:
    """Weights (L,) of raw distances and an intercept, fitted on standardised ones."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - seconds to import

    both = torch.cat([near, far])
    centre, spread = both.mean(dim=0), both.std(dim=0)
    spread = torch.where(spread > 0, spread, 1.0)
    target = torch.cat([torch.zeros(len(near)), torch.ones(len(far))])
    fit = LogisticRegression(max_iter=1000)
    fit.fit(((both - centre) / spread).cpu().numpy(), target.numpy())
    weight = torch.from_numpy(fit.coef_[0]).to(both) / spread
    return weight, float(fit.intercept_[0]) - float(centre @ weight)
