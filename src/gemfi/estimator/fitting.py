"""The samples of a fit, part by part, and the training on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import _safe_indexing
from torch import Tensor

from gemfi.data import Role, Split
from gemfi.errors import InputError
from gemfi.estimator.budget import FEWEST, Budget, Parts
from gemfi.estimator.inputs import Array, Scaling
from gemfi.model import Model
from gemfi.training import FitResult, TrainConfig, fit

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples with labels 0..C-1 and, perhaps, weights.

    Attributes:
        x: (N, ...) as read: an array, or a data frame before it is encoded.
        labels: (N,) indices of classes.
        weight: (N,) or None where all count alike.
    """

    x: Any
    labels: Ints
    weight: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, chosen: npt.NDArray[np.bool_] | Ints) -> Self:
        """Some of them."""
        weight = None if self.weight is None else self.weight[chosen]
        return replace(
            self, x=_safe_indexing(self.x, chosen), labels=self.labels[chosen], weight=weight
        )

    @property
    def weights(self) -> Tensor | None:
        """The weights as a tensor."""
        return None if self.weight is None else torch.from_numpy(self.weight)

    def split(self, scaling: Scaling, role: Role, classes: int) -> Split | None:
        """Standardised, for training; None where there are none."""
        if len(self) == 0:
            return None
        return Split(scaling.apply(self.x), torch.from_numpy(self.labels), role, "X", classes)


def without_zeros(samples: Samples, classes: Array) -> tuple[Samples, Array]:
    """Leave samples of weight 0 out, and classes that have no others."""
    if samples.weight is None or samples.weight.all():
        return samples, classes
    kept = samples.rows(samples.weight > 0)
    present, labels = np.unique(kept.labels, return_inverse=True)
    if len(present) < 2:
        only = classes[present].tolist()[0]
        raise InputError(
            f"all samples of weight above 0 are of class {only!r}; a classifier needs at least two "
            "classes"
        )
    return replace(kept, labels=labels.astype(np.int64)), classes[present]


class Pace(NamedTuple):
    """How fast a network learns, and how fast it forgets."""

    learning_rate: float
    weight_decay: float


CALM: Final = Pace(3e-4, 10.0)
"""For tables in which there is little to learn: hardly more than a linear model."""
FREE: Final = Pace(1e-3, 0.5)
"""For tables in which there is much."""
USUAL: Final = Pace(2e-3, 1e-4)
"""For images, and where no validation part can judge."""


def choose_paces(
    learning_rate: float | None, weight_decay: float | None, dimensions: int, held_out: int
) -> list[Pace]:
    """The paces to try: both for rows where a validation part can judge them, or the user's own.

    Args:
        learning_rate: the user's, or None.
        weight_decay: likewise.
        dimensions: of X.
        held_out: samples of the validation part.
    """
    if learning_rate is None and weight_decay is None and dimensions == 2 and held_out:
        return [CALM, FREE]
    rate = USUAL.learning_rate if learning_rate is None else learning_rate
    return [Pace(rate, USUAL.weight_decay if weight_decay is None else weight_decay)]


@dataclass(frozen=True, eq=False)
class Trained:
    """A model that was trained at one pace.

    Attributes:
        model: of standardised inputs.
        pace: its own.
        result: of its training.
        log_probs: (V, C) of the validation part; None where there is none.
    """

    model: Model
    pace: Pace
    result: FitResult
    log_probs: Tensor | None


@dataclass(frozen=True, eq=False)
class Training:
    """All of a training but its pace.

    Attributes:
        build: a fresh model of standardised inputs, the same each time.
        samples: all of them.
        parts: which are for what.
        scaling: of the inputs.
        budget: how long to train, and in which batches.
        patience: epochs without a better one before training stops; None keeps the last epoch.
        seed: of the run.
        progress: whether to show a bar.
    """

    build: Callable[[], Model]
    samples: Samples
    parts: Parts
    scaling: Scaling
    budget: Budget
    patience: int | None
    seed: int
    progress: bool

    def best(self, paces: Sequence[Pace]) -> tuple[Trained, list[str]]:
        """Train at one pace, or at two, calm and free, and keep one; with notes on what was done.

        Args:
            paces: as `choose_paces` has them.
        """
        tried = [self._run(pace) for pace in paces]
        held = self.samples.rows(self.parts.validation)
        kept = tried[0] if len(tried) == 1 else better(tried[0], tried[1], held)
        if kept.result.best_epoch is not None:
            kept = self._on_all(kept, kept.result.best_epoch)
        notes = list(kept.result.notes)
        if len(tried) > 1:
            rates = " and ".join(f"{pace.learning_rate:g}" for pace in paces)
            notes.append(
                f"trained with learning rates {rates}; {kept.pace.learning_rate:g} is kept"
            )
        if self.patience is not None and not len(held):
            notes.append(
                "training did not stop early: no samples were held out to see when to, which "
                f"takes {FEWEST} samples and a validation_fraction above 0"
            )
        return kept, notes

    def _on_all(self, first: Trained, best_epoch: int) -> Trained:
        """Train again, on the training and the validation part, for as many epochs as were best.

        Args:
            first: trained on the training part; its temperature is that of the second, too.
            best_epoch: of it.
        """
        model = self.build()
        rows = self.samples.rows(np.sort(np.concatenate(self.parts[:2])))
        train = rows.split(self.scaling, Role.TRAIN, model.head.num_classes)
        assert train is not None  # noqa: S101 - there is a training part
        config = replace(
            self._config(first.pace), select="last", patience=None, stop_after=best_epoch + 1
        )
        fit(model, train, None, config, sample_weight=rows.weights, progress=self.progress)
        return replace(first, model=model)

    def _run(self, pace: Pace) -> Trained:
        """Train on the training part; the validation part, if there is one, says how long."""
        model = self.build()
        classes = model.head.num_classes
        seen, held = (self.samples.rows(each) for each in self.parts[:2])
        train, validation = (
            part.split(self.scaling, role, classes)
            for part, role in ((seen, Role.TRAIN), (held, Role.VALIDATION))
        )
        assert train is not None  # noqa: S101 - every class keeps a sample
        config = self._config(pace)
        if validation is None:
            config = replace(config, select="last", patience=None)
        result = fit(
            model,
            train,
            validation,
            config,
            sample_weight=seen.weights,
            validation_weight=None if validation is None else held.weights,
            progress=self.progress,
        )
        known = None if validation is None else model.predict(validation.x).log_probs().double()
        return Trained(model, pace, result, known)

    def _config(self, pace: Pace) -> TrainConfig:
        return TrainConfig(
            epochs=self.budget.epochs,
            batch_size=self.budget.batch_size,
            learning_rate=pace.learning_rate,
            weight_decay=pace.weight_decay,
            seed=self.seed,
            select="last" if self.patience is None else "best",
            patience=self.patience,
        )


def better(calm: Trained, free: Trained, held: Samples) -> Trained:
    """The free one where its validation NLL is lower by 1 + 20/V standard errors.

    That is one for many samples, and two for twenty, whose standard error is itself uncertain.
    Where they cannot be told apart the calm one has learnt less from noise.

    Args:
        calm: trained slowly, with much weight decay.
        free: trained fast, with little.
        held: the validation part.
    """
    assert calm.log_probs is not None  # noqa: S101 - both are trained where they can be judged
    assert free.log_probs is not None  # noqa: S101
    labels = torch.from_numpy(held.labels).unsqueeze(1)
    gain = (free.log_probs - calm.log_probs).gather(1, labels)[:, 0]
    share = torch.ones_like(gain) if held.weights is None else held.weights
    share = share / share.sum()
    mean = share @ gain
    error = (share.square() @ (gain - mean).square()).sqrt()
    return free if bool(mean > (1 + 20 / len(gain)) * error) else calm
