"""The classifier of a trained network as it is, with a density of the features that it sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from gemfi._config import check_choices, check_number
from gemfi.belief import Belief
from gemfi.density import ClassGaussians
from gemfi.methods.base import FeatureBatches, MethodInfo, gather, of_each
from gemfi.methods.gem_modules import Familiarity, in_space
from gemfi.methods.softmax import Softmax


@dataclass(frozen=True)
class KeepConfig:
    """Choices of the density.

    Attributes:
        space: the density sees directions (`unit`), or features as they are (`raw`).
        shrinkage: weight of the tied covariance in each class's.
    """

    space: Literal["unit", "raw"] = "unit"
    shrinkage: float = 0.3

    def __post_init__(self) -> None:
        check_choices(self)
        check_number("shrinkage", self.shrinkage, 0, 1)


class Keep(Softmax):
    """p = softmax(W z + b) as the network was trained; `Model.finish` fits the rest.

    Its unfamiliarity is −log of two memberships: of the evidence Σ_c exp(logit_c), and of log p(z).
    """

    info = MethodInfo(
        name="keep",
        label="Kept classifier",
        summary="the classifier of a trained network, with a density; for attach, without training",
        paper="Deep Deterministic Uncertainty: A New Simple Baseline",
        venue="CVPR",
        year=2023,
        epistemic="unfamiliarity",
    )
    default = KeepConfig()

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        self.density = ClassGaussians(
            num_classes, num_features, covariance="tied", shrinkage=self.config.shrinkage
        )
        self.familiarity = Familiarity()

    def forward(self, z: Tensor) -> Belief:
        """One component without evidence; once statistics are fitted, density and familiarity."""
        belief = super().forward(z)
        if not self.density.fitted:
            return belief
        log_density = self.density(in_space(z, self.config.space))
        familiarity = self.familiarity(torch.logsumexp(self.linear(z), dim=1), None, log_density)
        return replace(belief, log_density=log_density, log_familiarity=familiarity)

    def fit_statistics(self, train: FeatureBatches, validation: FeatureBatches | None) -> list[str]:
        """Fit the density on training features, the scales on those of validation data."""

        def view(z: Tensor) -> Tensor:
            return in_space(z, self.config.space)

        def measured(z: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
            return torch.logsumexp(self.linear(z), dim=1), self.density(view(z))

        self.density.fit(gather(self.density.statistics(), train, view))
        found = list(of_each(train if validation is None else validation, measured))
        evidence, density = map(torch.cat, zip(*found, strict=True))
        self.familiarity.fit(evidence, torch.empty(0), density)
        return [*self.density.notes]
