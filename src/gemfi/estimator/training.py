"""How `GEMClassifier` trains: what it holds out, for how long, how fast, and on how many threads.

`Training.best` is the plan from top to bottom: train at each pace on the training part, keep the
one that the validation part prefers, and train at that pace again on both parts.
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import _safe_indexing
from torch import Tensor, nn

from gemfi.backbones import input_options
from gemfi.calibration import fit_temperature
from gemfi.data import Role, Split
from gemfi.data.sampling import stratified_indices
from gemfi.errors import InputError
from gemfi.estimator.inputs import Array, Floats, Ints, Scaling
from gemfi.methods import GEMConfig
from gemfi.methods import method as method_named
from gemfi.model import Model, build_model
from gemfi.randomness import forked_generator
from gemfi.training import FitResult, TrainConfig, fit
from gemfi.training.run_data import batches_per_epoch

FEWEST: Final = 100
"""With fewer samples nothing is held out."""
LEAST_PART: Final = 20
"""Samples of a part that is held out: with 19, a p-value can be as small as 0.05."""
SMALL: Final = 1 << 28
"""Up to so many products a step, samples times weights, rows are trained with one thread."""
PRIOR: Final = 0.15
"""Standard deviation of log T before any sample is seen: forty validation samples chose the epoch
too, and are easily luckier than the rest."""

_FEWEST_STEPS, _MOST_STEPS = 60, 3_000
_THREADS_LOCK = threading.RLock()  # the number of threads belongs to the process


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
    """The user's pace; or both, for rows (X of two dimensions) that `held_out` others judge."""
    if learning_rate is None and weight_decay is None and dimensions == 2 and held_out:
        return [CALM, FREE]
    rate = USUAL.learning_rate if learning_rate is None else learning_rate
    return [Pace(rate, USUAL.weight_decay if weight_decay is None else weight_decay)]


# -- samples and their parts -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples with labels 0..C-1 and, perhaps, weights.

    Attributes:
        x: (N, ...) an array, or a data frame before it is encoded.
        labels: (N,) indices of classes.
        weight: (N,) or None where all count alike.
    """

    x: Any
    labels: Ints
    weight: Floats | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def weights(self) -> Tensor | None:
        """The weights as a tensor."""
        return None if self.weight is None else torch.from_numpy(self.weight)

    def rows(self, chosen: npt.NDArray[np.bool_] | Ints) -> Self:
        """Some of them."""
        weight = None if self.weight is None else self.weight[chosen]
        return replace(
            self, x=_safe_indexing(self.x, chosen), labels=self.labels[chosen], weight=weight
        )

    def without_zeros(self, classes: Array) -> tuple[Self, Array]:
        """Leave samples of weight 0 out, and classes that have no others."""
        if self.weight is None or self.weight.all():
            return self, classes
        kept = self.rows(self.weight > 0)
        present, labels = np.unique(kept.labels, return_inverse=True)
        if len(present) < 2:
            only = classes[present].tolist()[0]
            raise InputError(
                f"all samples of weight above 0 are of class {only!r}; a classifier needs at least "
                "two classes"
            )
        return replace(kept, labels=labels.astype(np.int64)), classes[present]


class Parts(NamedTuple):
    """Indices of the samples for weights, for temperature and scales, and for decisions."""

    train: Ints
    validation: Ints
    calibration: Ints


def split_parts(
    labels: Ints, validation: float | None, calibration: float | None, seed: int
) -> Parts:
    """Disjoint parts, each in proportion to the classes; every class keeps a training sample.

    Args:
        labels: (N,) of all samples.
        validation: share that is held out for temperature and scales; None chooses it.
        calibration: share that is held out for decisions; None chooses it.
        seed: of the draws.
    """
    first = _held_out(labels, _part_size(validation, len(labels)), seed)
    rest = np.setdiff1d(np.arange(len(labels)), first)
    second = rest[_held_out(labels[rest], _part_size(calibration, len(labels)), seed + 1)]
    return Parts(np.setdiff1d(rest, second), first, second)


def _part_size(share: float | None, samples: int) -> int:
    """How many to hold out: a tenth of few samples, and of many no more than scales need."""
    if share == 0 or samples < FEWEST:
        return 0
    wanted = min(samples / 10, 4 * math.sqrt(samples)) if share is None else share * samples
    return max(LEAST_PART, round(wanted))


def _held_out(labels: Ints, count: int, seed: int) -> Ints:
    """At most half of what the classes can spare, and nothing where that is too few."""
    spare = (len(labels) - len(np.unique(labels))) // 2
    count = min(count, spare)
    return stratified_indices(labels, count, seed) if count >= LEAST_PART else labels[:0]


# -- the budget ------------------------------------------------------------------------------------


class Budget(NamedTuple):
    """Samples a step, and passes over the training data."""

    batch_size: int
    epochs: int


def choose_budget(
    samples: int,
    *,
    batch_size: int | None = None,
    epochs: int | None = None,
    max_steps: int | None = None,
) -> Budget:
    """The budget for a number of training samples, with what the user has fixed.

    It is one of steps and not of epochs: ten thousand samples need more steps than a hundred, but
    not a hundred times as many.

    Args:
        samples: to train on.
        batch_size: None for a power of two that grows with the samples.
        epochs: None for as many as the steps allow.
        max_steps: None for `default_steps`. An epoch is always finished, so that there may be as
            many steps as one has.
    """
    size = 1 << int(math.log2(max(1, samples / 16)))
    size = min(256, max(16, size)) if batch_size is None else min(batch_size, samples)
    batches = batches_per_epoch(samples, size)
    if max_steps is None:
        return Budget(size, epochs or max(1, round(default_steps(samples) / batches)))
    allowed = max(1, max_steps // batches)
    return Budget(size, allowed if epochs is None else min(epochs, allowed))


def default_steps(samples: int) -> int:
    """Steps for a number of training samples: 5·N^0.7 within bounds."""
    return round(min(_MOST_STEPS, max(_FEWEST_STEPS, 5 * math.pow(samples, 0.7))))


# -- the model -------------------------------------------------------------------------------------


def build(
    method: str,
    backbone: str | nn.Module,
    options: Mapping[str, Any] | None,
    num_classes: int,
    *,
    config: Any,
    example: Tensor,
    seed: int,
) -> Model:
    """A model whose weights come from the seed alone; torch's generator is as before afterwards.

    Without a `config` it has the method's default, but for rows the density of the GEM family is
    one of the features as they are, and not of their directions. A perceptron maps a row and ten
    times that row to almost the same direction, so that on unit-norm features distance from the
    data cannot be seen.

    Args:
        method: a name in `METHODS`.
        backbone: a name in `BACKBONES`, or a module, which is copied.
        options: of a backbone given by name.
        num_classes: C.
        config: the method's configuration, or None.
        example: a few inputs.
        seed: of the weights.
    """
    given = dict(options or {})
    if config is None:
        config = method_named(method).default_config()
        if isinstance(config, GEMConfig) and example.ndim == 2:
            config = replace(config, density_space="raw")
    if isinstance(backbone, nn.Module):
        backbone = copy.deepcopy(backbone)
    else:
        given = input_options(backbone, tuple(example.shape[1:])) | given
    with forked_generator(seed):
        return build_model(method, backbone, num_classes, config=config, example=example, **given)


# -- training --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trained:
    """A model that was trained at one pace.

    Attributes:
        model: of standardised inputs.
        pace: its own.
        result: of its training on the training part.
        losses: (V,) −log p(y) of the validation part; None where there is none.
        log_temperature: log T by the validation part; 0 where there is none.
    """

    model: Model
    pace: Pace
    result: FitResult
    losses: Tensor | None = None
    log_temperature: float = 0.0


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
        device: where to train, as of `fit`.
    """

    build: Callable[[], Model]
    samples: Samples
    parts: Parts
    scaling: Scaling
    budget: Budget
    patience: int | None
    seed: int
    progress: bool
    device: str | None = None

    def best(self, paces: Sequence[Pace]) -> tuple[Trained, list[str]]:
        """Train at one pace, or at two, calm and free, and keep one; with notes on what was done.

        Where the validation part said which epoch is best, the kept pace is trained again on the
        training and the validation part, as long as `annealed` says; its temperature is the
        first one's.
        """
        held = self.samples.rows(self.parts.validation)
        tried = [self._first(pace, held) for pace in paces]
        kept = tried[0] if len(tried) == 1 else better(tried[0], tried[1], held.weights)
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
        if kept.result.best_epoch is not None:
            epochs = annealed(kept.result.best_epoch + 1, self.budget.epochs)
            kept = replace(kept, model=self._again(kept.pace, epochs))
        return kept, notes

    def _first(self, pace: Pace, held: Samples) -> Trained:
        """Train on the training part; the validation part, if there is one, says how long."""
        model = self.build()
        seen, validation = self.samples.rows(self.parts.train), None
        if len(held):
            validation = self._split(held, Role.VALIDATION, model)
        stops = validation is not None and self.patience is not None
        config = self._config(pace, select="best" if stops else "last")
        result = fit(
            model,
            self._split(seen, Role.TRAIN, model),
            validation,
            replace(config, patience=self.patience if stops else None),
            sample_weight=seen.weights,
            validation_weight=None if validation is None else held.weights,
            progress=self.progress,
            device=self.device,
        )
        if validation is None:
            return Trained(model, pace, result)
        log_p, labels = model.predict(validation.x).log_probs().double(), validation.labels
        losses = -log_p.gather(1, labels.unsqueeze(1))[:, 0]
        log_p = log_p.clamp_min(-1e3)  # a label of probability 0 counts for no more
        log_temperature = fit_temperature(log_p, labels, weight=held.weights, prior=PRIOR)
        return Trained(model, pace, result, losses, float(log_temperature))

    def _again(self, pace: Pace, epochs: int) -> Model:
        """Train on the training and the validation part."""
        model = self.build()
        rows = self.samples.rows(np.sort(np.concatenate(self.parts[:2])))
        fit(
            model,
            self._split(rows, Role.TRAIN, model),
            None,
            replace(self._config(pace), epochs=epochs),
            sample_weight=rows.weights,
            progress=self.progress,
            device=self.device,
        )
        return model

    def _split(self, samples: Samples, role: Role, model: Model) -> Split:
        """Standardised samples."""
        labels = torch.from_numpy(samples.labels)
        return Split(self.scaling.apply(samples.x), labels, role, "X", model.head.num_classes)

    def _config(self, pace: Pace, **more: Any) -> TrainConfig:
        return TrainConfig(
            epochs=self.budget.epochs,
            batch_size=self.budget.batch_size,
            learning_rate=pace.learning_rate,
            weight_decay=pace.weight_decay,
            seed=self.seed,
            **more,
        )


def annealed(best: int, epochs: int) -> int:
    """Epochs of a training whose rate ends at zero, and that learns as much as the first one had.

    The first one was at its best while its rate was still high. Of a cosine over E epochs, the
    fraction f has the sum (f + sin(πf)/π)·E/2 of rates, and a whole one over n epochs n/2.

    Args:
        best: epochs after which the first one was at its best.
        epochs: E, over which its rate would have fallen to zero.
    """
    fraction = best / epochs
    return max(1, round(epochs * (fraction + math.sin(math.pi * fraction) / math.pi)))


def better(calm: Trained, free: Trained, weight: Tensor | None) -> Trained:
    """The free one where its validation NLL is lower by 1 + 20/V standard errors.

    That is one for many samples, and two for twenty, whose standard error is itself uncertain.
    Where they cannot be told apart the calm one has learnt less from noise.

    Args:
        calm: trained slowly, with much weight decay.
        free: trained fast, with little.
        weight: (V,) of the validation part; None where all count alike.
    """
    assert calm.losses is not None  # noqa: S101 - both are trained where they can be judged
    assert free.losses is not None  # noqa: S101
    gain = calm.losses - free.losses
    share = torch.ones_like(gain) if weight is None else weight
    share = share / share.sum()
    mean = share @ gain
    error = (share.square() @ (gain - mean).square()).sqrt()
    return free if bool(mean > (1 + 20 / len(gain)) * error) else calm


# -- threads ---------------------------------------------------------------------------------------


def choose_threads(model: Model, batch_size: int, dimensions: int) -> int | None:
    """One thread for a small network of rows; None for as many as torch is set to.

    A step of a small network is shorter than what it takes to wake threads and wait for them, most
    of all on a busy machine. One thread also gives the same numbers on machines of two and of fifty
    cores. Rows are X of two dimensions; a layer of images uses its weights many times for a sample.
    """
    weights = sum(parameter.numel() for parameter in model.parameters())
    return 1 if dimensions == 2 and weights * batch_size <= SMALL else None


@contextlib.contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads for a while; other fits that limit them wait."""
    if count is None:
        yield
        return
    with _THREADS_LOCK:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)
