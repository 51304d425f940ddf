"""The samples of a fit, part by part, and the training on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import _safe_indexing
from torch import Tensor

from gemfi.data import Role, Split
from gemfi.errors import InputError
from gemfi.estimator.budget import FEWEST, Budget, Parts, default_decay
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


def train(
    model: Model,
    samples: Samples,
    parts: Parts,
    scaling: Scaling,
    budget: Budget,
    *,
    patience: int | None,
    learning_rate: float,
    weight_decay: float | None,
    seed: int,
    progress: bool,
) -> FitResult:
    """Train a model on its part; the validation part, if there is one, says which epoch to keep.

    Args:
        model: of standardised inputs.
        samples: all of them.
        parts: which are for what.
        scaling: of the inputs.
        budget: how long to train, and in which batches.
        patience: epochs without a better one before training stops; None keeps the last epoch.
        learning_rate: the largest.
        weight_decay: of AdamW; None for `default_decay`.
        seed: of the run.
        progress: whether to show a bar.
    """
    classes = model.head.num_classes
    seen, held = samples.rows(parts.train), samples.rows(parts.validation)
    train_split, validation = (
        part.split(scaling, role, classes)
        for part, role in ((seen, Role.TRAIN), (held, Role.VALIDATION))
    )
    assert train_split is not None  # noqa: S101 - every class keeps a sample
    if validation is None:
        patience = None
    if weight_decay is None:
        weight_decay = default_decay(len(seen), samples.x.ndim)
    config = TrainConfig(
        epochs=budget.epochs,
        batch_size=budget.batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        seed=seed,
        select="last" if patience is None else "best",
        patience=patience,
    )
    return fit(
        model,
        train_split,
        validation,
        config,
        sample_weight=seen.weights,
        validation_weight=None if validation is None else held.weights,
        progress=progress,
    )


def early_stopping_note(patience: int | None, held_out: int) -> list[str]:
    """What to say where there was nothing to stop by."""
    if patience is None or held_out:
        return []
    note = (
        "training did not stop early: no samples were held out to see when it should, which takes "
        f"{FEWEST} samples and a validation_fraction above 0"
    )
    return [note]
