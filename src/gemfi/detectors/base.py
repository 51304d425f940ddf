"""The interface of a post-hoc detector: `Detector`, and what detectors share, `Observed`.

A detector looks at a trained model and says how unfamiliar an input is. Every score has one sign:
**higher is more out-of-distribution**. Most need features and logits alone, which `observe`
extracts once for all; those with `needs == "inputs"` need gradients through the model and take
`score_inputs(model, x)`. To add one, write a `Detector` in the order `info`, `default`, `_fit`,
`_score`, and list it in `DETECTORS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gemfi import dirichlet
from gemfi._config import check_int
from gemfi.belief import Belief
from gemfi.data.splits import AnySplit, Role, require_role
from gemfi.devices import device_of, move
from gemfi.errors import InputError
from gemfi.model import Inputs, Model, scaled
from gemfi.modes import evaluating

BATCH = 512
"""Inputs a forward pass."""

Needs = Literal["logits", "features", "inputs"]


@dataclass(frozen=True)
class DetectorInfo:
    """What a detector is, read by the docs, `gemfi evaluate` and the tests.

    It needs `logits` or `features` of one pass, or `inputs`: the model itself and a backward pass
    through it. `unnormalised`: the scale of the logits matters, and not their softmax alone.
    """

    name: str
    summary: str
    paper: str
    venue: str
    year: int
    needs: Needs
    unnormalised: bool = False


@dataclass(frozen=True, eq=False)
class Observed:
    """What a model makes of a split, extracted once for all detectors.

    Features (N, D) as the head gets them, logits (N, C) as of `joint_logits`, the belief in
    float64, and the split with its role and labels; None of inputs without a role.
    """

    features: Tensor
    logits: Tensor
    belief: Belief
    split: AnySplit | None

    def __post_init__(self) -> None:
        features, logits = tuple(self.features.shape), tuple(self.logits.shape)
        if len(features) != 2 or len(logits) != 2:
            raise InputError(
                f"expected features (N, D) and logits (N, C), got {features} and {logits}"
            )
        if not features[0] == logits[0] == len(self.belief):
            raise InputError(
                f"{features[0]} features, {logits[0]} logits and a belief on {len(self.belief)} "
                "inputs are not of the same inputs"
            )

    def __len__(self) -> int:
        return len(self.features)

    @property
    def required_split(self) -> AnySplit:
        """The split, where one is needed."""
        if self.split is None:
            raise InputError(
                "these are inputs without a role: observe(model, as_split(x, y, role=...))"
            )
        return self.split


@torch.no_grad()
def observe(model: Model, x: Inputs, batch_size: int = BATCH) -> Observed:
    """Features, logits and belief of inputs (N, ...) in one pass; the belief is `model.predict`'s.

    Detectors learn from splits alone, and score tensors and arrays too.
    """
    passes = list(evaluating(model).passes(x, batch_size))
    belief = Belief.cat([belief for _, belief in passes])
    features = torch.cat([z for z, _ in passes])
    return Observed(features, joint_logits(belief), belief, x if isinstance(x, AnySplit) else None)


def joint_logits(belief: Belief) -> Tensor:
    """One row of logits (B, C) for a belief of any number of components.

    log p̂_c + log Σ_k π_k Σ_c' exp u_kc': their softmax is p̂ and their logsumexp is minus the
    energy of the logits, for one component, mixtures and ensembles alike. Of a plain softmax these
    are its logits; without logits they are log p̂, whose logsumexp says nothing.
    """
    if belief.logits is None:
        return belief.log_probs()
    bare = (belief.log_evidence, belief.log_gate, belief.log_temperature)
    if belief.logits.shape[1] == 1 and all(part is None for part in bare):
        return belief.logits.squeeze(1)
    energy = dirichlet.logit_energy(belief.logits, belief.log_weight)
    return belief.log_probs() - energy.unsqueeze(1)


class Detector:
    """Base of every detector; without a configuration it takes `default`."""

    info: ClassVar[DetectorInfo]
    default: ClassVar[Any] = None

    def __init__(self, config: Any = None) -> None:
        if config is not None and type(config) is not type(self.default):
            raise InputError(
                f"{self.info.name} takes a {type(self.default).__name__}, got "
                f"{type(config).__name__}"
            )
        self.config: Any = self.default if config is None else config
        self.notes: list[str] = []
        self.fitted = not self.learns

    @property
    def needs(self) -> Needs:
        """What it needs under this configuration."""
        return self.info.needs

    @property
    def learns(self) -> bool:
        """Whether it has to be fitted before it can score."""
        return type(self)._fit is not Detector._fit

    def missing(self, belief: Belief) -> str | None:
        """Why it cannot work with beliefs of this kind, or None if it can."""
        if self.info.unnormalised and belief.logits is None:
            return f"{self.info.name} needs logits, and the method of this model has none"
        return None

    def fit(self, model: Model, train: AnySplit, validation: AnySplit) -> None:
        """Fit on what a model makes of data of role train and validation.

        `notes` says what came of it. Streams are read batch by batch; what is kept are features.
        """
        purpose = f"fitting the detector {self.info.name}"
        require_role(train, (Role.TRAIN,), f"{purpose} as training data")
        require_role(validation, (Role.VALIDATION,), f"{purpose} as validation data")
        self.fit_observed(observe(model, train), observe(model, validation))

    def score(self, model: Model, x: Inputs, batch_size: int = BATCH) -> Tensor:
        """Scores (N,) in float64, higher is more OOD; nothing is learnt.

        Args:
            model: that it was fitted for; its parameters and their gradients stay as they are.
            x: (N, ...) inputs, as `model.predict` takes them, of any role.
            batch_size: how many at a time.
        """
        if self.needs != "inputs":
            return self.score_observed(observe(model, x, batch_size))
        check_int("batch_size", batch_size, 1)
        self._check_ready()
        model = evaluating(model)
        device = device_of(model)
        batches = (move(batch, device) for _, batch in model._batches(x, batch_size))
        return self._checked(torch.cat([self._score_batch(model, batch) for batch in batches]))

    def fit_observed(self, train: Observed, validation: Observed) -> None:
        """`fit`, where several detectors share one look at the data."""
        purpose = f"fitting the detector {self.info.name}"
        require_role(train.required_split, (Role.TRAIN,), f"{purpose} as training data")
        require_role(validation.required_split, (Role.VALIDATION,), f"{purpose} as validation data")
        self.notes = []
        self._fit(train, validation)
        self.fitted = True

    def score_observed(self, observed: Observed) -> Tensor:
        """`score`, where several detectors share one look at the data."""
        self._check_ready()
        if self.needs == "inputs":
            raise InputError(
                f"{self.info.name} needs gradients through the model: call score(model, x)"
            )
        if reason := self.missing(observed.belief):
            raise InputError(reason)
        return self._checked(self._score(observed))

    def _fit(self, train: Observed, validation: Observed) -> None:
        """What `fit` does once the roles are checked."""

    def _score(self, observed: Observed) -> Tensor:
        raise NotImplementedError

    def _score_batch(self, model: Model, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _check_ready(self) -> None:
        if not self.fitted:
            raise InputError(
                f"{self.info.name} is not fitted: call fit(model, train, validation) first"
            )

    def _checked(self, scores: Tensor) -> Tensor:
        bad = scores.isnan()
        if bool(bad.any()):
            raise InputError(
                f"the {self.info.name} score of input {int(bad.nonzero()[0])} is NaN: look for NaN "
                "or infinite values in the input or in the weights"
            )
        return scores.detach().cpu().to(torch.float64)


def perturbed(x: Tensor, magnitude: float, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """Inputs x − magnitude·sign(∇_x loss), in the units of the inputs before the normalisation.

    Bytes are taken as [0, 1]. Since a normalisation divides by its spread, the step in normalised
    inputs is magnitude/std, as in ODIN's code. The loss (B,) of an input depends on it alone.
    """
    x = scaled(x).detach()
    if magnitude == 0:
        return x
    with torch.enable_grad():
        start = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(start).sum(), start)
    return x - magnitude * gradient.sign()
