"""The interface of a post-hoc detector: `Detector`, and what detectors share, `Observed`.

A detector looks at a trained model and says how unfamiliar an input is. Every score has one sign:
**higher is more out-of-distribution**. Data are read batch by batch: most detectors look at the
features and logits of a batch (`Observed`), those with `needs == "inputs"` go back through the
model. To add one, write a `Detector` in the order `info`, `default`, `_begin`, `_from_train` or
`_from_validation`, `_end`, `_score`, and list it in `DETECTORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from gemfi import dirichlet
from gemfi._config import check_int
from gemfi.belief import Belief
from gemfi.data.splits import ALONE, AnySplit, Role, Share, require_role
from gemfi.data.wrap import given_role
from gemfi.devices import device_of, move, place
from gemfi.errors import InputError
from gemfi.model import Inputs, Model, scaled
from gemfi.modes import evaluating
from gemfi.processes import shared_out

BATCH = 512
"""Inputs a forward pass."""

SplitLike = AnySplit | Dataset[Any] | DataLoader[Any]
"""A split, or a data set or a loader, which are taken for what they are given as."""

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
    """What a model makes of inputs, extracted once for all detectors.

    Features (N, D) as the head gets them, logits (N, C) as of `joint_logits`, the belief in
    float64, and labels (N,) where there are any.
    """

    features: Tensor
    logits: Tensor
    belief: Belief
    y: Tensor | None

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
    def labels(self) -> Tensor:
        """`y`, where it is needed."""
        if self.y is None:
            raise InputError("these inputs have no labels")
        return self.y

    @classmethod
    def cat(cls, parts: Sequence[Observed]) -> Observed:
        """One after the other."""
        labels = [part.y for part in parts if part.y is not None]
        return cls(
            torch.cat([part.features for part in parts]),
            torch.cat([part.logits for part in parts]),
            Belief.cat([part.belief for part in parts]),
            torch.cat(labels) if len(labels) == len(parts) else None,
        )


def looks(
    model: Model, x: Inputs, batch_size: int = BATCH, share: Share = ALONE
) -> Iterator[tuple[Tensor, Observed]]:
    """Inputs, and what the model makes of them, batch by batch; nothing is kept.

    Args:
        model: trained.
        x: as `model.predict` takes them.
        batch_size: how many at a time.
        share: of p processes each gets every p-th batch.
    """
    model = evaluating(model)
    for first, batch, y in model.batches(x, batch_size, share):
        with torch.no_grad():
            z, belief = model.ask(batch, first)
            seen = Observed(z, joint_logits(belief), belief, None if y is None else y.cpu())
        yield batch, seen


def observe(
    model: Model,
    x: Inputs,
    batch_size: int = BATCH,
    *,
    device: str | torch.device | None = None,
) -> Observed:
    """Features, logits and belief of all inputs (N, ...); the belief is `model.predict`'s.

    Args:
        model: trained.
        x: as `model.predict` takes them.
        batch_size: how many at a time.
        device: where to compute, and where the model is afterwards. Defaults to where it is.
    """
    place(model, device)
    return Observed.cat(list(_seen(model, x, batch_size)))


def _seen(model: Model, x: Inputs, batch_size: int = BATCH) -> Iterator[Observed]:
    """What the model makes of all inputs, also where several processes look together."""
    return shared_out(lambda share: (seen for _, seen in looks(model, x, batch_size, share)))


def joint_logits(belief: Belief) -> Tensor:
    """One row of logits (B, C) for a belief of any number of components.

    log p̂_c + log Σ_k π_k Σ_c' exp u_kc': their softmax is p̂ and their logsumexp is minus the
    energy of the logits, for one component, mixtures and ensembles alike. Of a plain softmax these
    are its logits (T2FNorm's have the norm of the features, and their softmax is not p̂); without
    logits they are log p̂, whose logsumexp says nothing.
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
        return type(self)._end is not Detector._end

    def missing(self, belief: Belief) -> str | None:
        """Why it cannot work with beliefs of this kind, or None if it can."""
        if self.info.unnormalised and belief.logits is None:
            return f"{self.info.name} needs logits, and the method of this model has none"
        return None

    def fit(self, model: Model, train: SplitLike, validation: SplitLike | None = None) -> None:
        """Fit on what a model makes of the data, which are read once, batch by batch.

        Kept is what the detector needs of them: `knn` keeps every training feature, `temperature`
        the probabilities of validation data, all others keep sums alone. `notes` says what came of
        it. A detector that learns nothing of some data does not read them.

        Args:
            model: trained.
            train: role train; a data set or a loader is taken for that.
            validation: likewise, role validation; `temperature` needs it.
        """
        fit_together([self], model, train, validation)

    def score(self, model: Model, x: Inputs, batch_size: int = BATCH) -> Tensor:
        """Scores (N,) in float64, higher is more OOD; nothing is learnt.

        Args:
            model: that it was fitted for; its parameters and their gradients stay as they are.
            x: (N, ...) inputs, as `model.predict` takes them, of any role.
            batch_size: how many at a time.
        """
        check_int("batch_size", batch_size, 1)
        self._check_ready()
        model = evaluating(model)

        def work(share: Share) -> Iterator[Tensor]:
            if self.needs == "inputs":
                for _, batch, _ in model.batches(x, batch_size, share):
                    yield self.score_batch(model, batch)
            else:
                for _, seen in looks(model, x, batch_size, share):
                    yield self.score_observed(seen)

        return self.checked(torch.cat(list(shared_out(work))))

    def score_batch(self, model: Model, x: Tensor) -> Tensor:
        """Scores (B,) of a checked batch by a detector that goes back through the model."""
        return self._score_batch(model, move(x, device_of(model))).detach().cpu().double()

    def score_observed(self, observed: Observed) -> Tensor:
        """`score`, where several detectors share one look at the data."""
        self._check_ready()
        if self.needs == "inputs":
            raise InputError(
                f"{self.info.name} needs gradients through the model: call score(model, x)"
            )
        if reason := self.missing(observed.belief):
            raise InputError(reason)
        return self._score(observed).detach().cpu().double()

    def _begin(self) -> None:
        """Forget what was learnt before."""

    def _from_train(self, seen: Observed) -> None:
        """Learn from a batch of training data."""

    def _from_validation(self, seen: Observed) -> None:
        """Learn from a batch of validation data."""

    def _end(self) -> None:
        """Make of it what scores need."""

    def _score(self, observed: Observed) -> Tensor:
        raise NotImplementedError

    def _score_batch(self, model: Model, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _check_ready(self) -> None:
        if not self.fitted:
            raise InputError(
                f"{self.info.name} is not fitted: call fit(model, train, validation) first"
            )

    def checked(self, scores: Tensor) -> Tensor:
        """Scores (N,) of all inputs, or an error that names the input whose score is NaN."""
        bad = scores.isnan()
        if bool(bad.any()):
            raise InputError(
                f"the {self.info.name} score of input {int(bad.nonzero()[0])} is NaN: look for NaN "
                "or infinite values in the input or in the weights"
            )
        return scores


def fit_together(
    detectors: Sequence[Detector], model: Model, train: SplitLike, validation: SplitLike | None
) -> None:
    """`Detector.fit` of several, which share one walk through the data.

    Args:
        detectors: to be fitted.
        model: trained.
        train: as `Detector.fit` takes it.
        validation: likewise.
    """
    names = ", ".join(detector.info.name for detector in detectors)
    purpose = f"fitting the detector{'s' if len(detectors) > 1 else ''} {names}"
    train = given_role(train, Role.TRAIN)
    require_role(train, (Role.TRAIN,), f"{purpose} as training data")
    from_train = _that_override(detectors, "_from_train")
    from_validation = _that_override(detectors, "_from_validation")
    if validation is not None:
        validation = given_role(validation, Role.VALIDATION)
        require_role(validation, (Role.VALIDATION,), f"{purpose} as validation data")
    elif from_validation:
        name = from_validation[0].info.name
        raise InputError(f"{name} learns from validation data: call fit(model, train, validation)")
    model.require_finished("a detector")
    for detector in detectors:
        detector.notes, detector.fitted = [], not detector.learns
        detector._begin()
    for seen in _seen(model, train) if from_train else ():
        for detector in from_train:
            detector._from_train(seen)
    for seen in _seen(model, validation) if from_validation and validation is not None else ():
        for detector in from_validation:
            detector._from_validation(seen)
    for detector in detectors:
        detector._end()
        detector.fitted = True


def _that_override(detectors: Sequence[Detector], name: str) -> list[Detector]:
    usual = getattr(Detector, name)
    return [detector for detector in detectors if getattr(type(detector), name) is not usual]


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
