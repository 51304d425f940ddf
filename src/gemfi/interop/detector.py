"""A trained model as a detector in the manner of pytorch-ood."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from gemfi.belief import Belief
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.modes import evaluating
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
    info: ClassVar[None] = None  # what pytorch-ood knows of its own detectors: papers and tasks

    def __init__(self, model: Model, score: str | None = None) -> None:
        if not isinstance(model, Model):
            raise InputError(f"a detector needs a gemfi Model, got {type(model).__name__}")
        self.model = model
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
        width = self.model.head.num_features
        if not isinstance(z, Tensor) or z.ndim != 2 or z.shape[1] != width:
            shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise InputError(
                f"expected features (B, {width}) as model.embed returns them, got {shape}; "
                "predict takes inputs"
            )
        return self._scored(evaluating(self.model.head)(z).to(torch.float64))

    def __call__(self, x: Tensor) -> Tensor:
        """As `predict`."""
        return self.predict(x)

    def to(self, device: torch.device | str) -> Self:
        """Move the model."""
        self.model.to(device)
        return self

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def get_hyperparameters(self) -> dict[str, Any]:
        """None of them: there is nothing to search for."""
        return {}

    def set_hyperparameters(self, **values: Any) -> Self:
        """Refuse any: there is nothing to search for."""
        if values:
            raise InputError(f"this detector has no hyperparameters, got {', '.join(values)}")
        return self

    def _scored(self, belief: Belief) -> Tensor:
        return score_of(belief, self.score)
