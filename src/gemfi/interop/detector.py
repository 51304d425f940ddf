"""A trained model as a detector in the manner of pytorch-ood."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from gemfi.belief import Belief
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.scores import score_of


class OutlierDetector:
    """Outlier scores of inputs, of features or of beliefs; higher is more OOD.

    It has the methods of pytorch-ood's `Detector` and goes where such a detector goes, for example
    into its metrics. Nothing is to be fitted: a trained model has its statistics already.

        >>> detector = OutlierDetector(model)
        >>> metrics.update(detector(x), y)

    Args:
        model: a trained model.
        score: a name in `SCORES`; None for the method's epistemic score.
    """

    requires_fit: ClassVar[bool] = False
    hyperparameter_space: ClassVar[dict[str, list[Any]]] = {}

    def __init__(self, model: Model, score: str | None = None) -> None:
        if not isinstance(model, Model):
            raise InputError(f"a detector needs a gemfi Model, got {type(model).__name__}")
        self.model = model.eval()
        self.score = score or model.head.named_scores["epistemic"]

    def fit(self, data_loader: object = None) -> Self:
        """Nothing: the model was fitted when it was trained."""
        del data_loader
        return self

    def fit_features(self, z: object = None, y: object = None) -> Self:
        """Nothing, likewise."""
        del z, y
        return self

    def predict(self, x: Tensor) -> Tensor:
        """Scores (B,) of inputs."""
        return self._scored(self.model.predict(x))

    @torch.no_grad()
    def predict_features(self, z: Tensor) -> Tensor:
        """Scores (B,) of features, as `model.embed` returns them."""
        self.model.eval()
        return self._scored(self.model.head(z).to(torch.float64))

    def __call__(self, x: Tensor) -> Tensor:
        """As `predict`."""
        return self.predict(x)

    def to(self, device: torch.device | str) -> Self:
        """Move the model."""
        self.model.to(device)
        return self

    def _scored(self, belief: Belief) -> Tensor:
        return score_of(belief, self.score)
