"""The interface of a method: `Head`, and the small records that pass through it.

A head turns features into a `Belief`, and a batch into named loss terms; training knows nothing
else of a method. A new one is a file beside this with a `Head` in the order `info`, `__init__`,
`forward`, `objective`, listed in `METHODS`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from gemfi._config import check_int
from gemfi.belief import Belief
from gemfi.density import Fitted, Statistics
from gemfi.errors import InputError
from gemfi.outliers import NONE, OutlierConfig

T = TypeVar("T")
FeatureBatches = Iterable[tuple[Tensor, Tensor]]


class SharedBatches(ABC):
    """Batches of which several processes have a part each; a walk through it gives all of them."""

    @abstractmethod
    def own(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The part of this process."""

    @abstractmethod
    def in_turn(self, mine: Iterator[T]) -> Iterator[T]:
        """What each process makes of its part, in the order of all batches."""

    @abstractmethod
    def add_up(self, statistics: Statistics) -> None:
        """Turn the statistics of each process into those of all."""


def gather(
    statistics: Statistics, batches: FeatureBatches, view: Callable[[Tensor], Tensor]
) -> Statistics:
    """Add the `view` of all features, of which each process looks at its own."""
    for z, y in batches.own() if isinstance(batches, SharedBatches) else batches:
        statistics.update(view(z), y)
    if isinstance(batches, SharedBatches):
        batches.add_up(statistics)
    return statistics


def of_each(batches: FeatureBatches, function: Callable[[Tensor, Tensor], T]) -> Iterator[T]:
    """`function(z, y)` of each batch, in order, computed by the process that has it."""
    if isinstance(batches, SharedBatches):
        return batches.in_turn(itertools.starmap(function, batches.own()))
    return itertools.starmap(function, batches)


@dataclass(frozen=True)
class MethodInfo:
    """What a method is, read by the docs' table, `gemfi methods` and the tests.

    `aleatoric` and `epistemic` are the names in `SCORES` that stand for the two uncertainties;
    `passes` are forward passes at inference; `exportable` says whether `forward` survives
    `torch.export`.
    """

    name: str
    label: str
    summary: str
    paper: str
    venue: str
    year: int
    aleatoric: str = "max_prob"
    epistemic: str = "evidence"
    passes: int = 1
    exportable: bool = True


@dataclass(frozen=True)
class DataFacts:
    """What a head may know before training: samples of each class (C,), and steps of the run.

    The samples may be given by what counts them; None where nobody can.
    """

    samples: Tensor | Callable[[], Tensor] | None
    steps: int

    @property
    def class_counts(self) -> Tensor:
        """(C,) samples of each class, for a head that needs them."""
        if self.samples is None:
            raise InputError(
                "this method needs the number of samples of each class: give "
                "Objective(class_counts=...)"
            )
        return self.samples if isinstance(self.samples, Tensor) else self.samples()


@dataclass(frozen=True)
class Progress:
    """Optimiser steps done, and those of the run. Schedules read the fraction, never epochs."""

    step: int
    steps: int

    @property
    def fraction(self) -> float:
        """Share of training that is done, in [0, 1)."""
        return self.step / self.steps

    def ramp(self, start: float, length: float) -> float:
        """0 before `start`, rising linearly over `length` to 1 (both fractions of training)."""
        if self.fraction < start:
            return 0.0
        return 1.0 if length <= 0 else min(1.0, (self.fraction - start) / length)


@dataclass(frozen=True)
class Batch:
    """Features (B, D), labels (B,), and outliers (M, D) with the weight of every term on them."""

    z: Tensor
    y: Tensor
    outliers: Tensor | None = None
    outlier_weight: float = 1.0


class Head(nn.Module):
    """Base of every trained method; without a configuration it takes `default`."""

    info: ClassVar[MethodInfo]
    default: ClassVar[Any]

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__()
        check_int("num_features", num_features, 1)
        check_int("num_classes", num_classes, 2)
        if config is not None and type(config) is not type(self.default):
            raise InputError(
                f"{self.info.name} takes a {type(self.default).__name__}, got "
                f"{type(config).__name__}"
            )
        self.num_features, self.num_classes = num_features, num_classes
        self.config: Any = self.default if config is None else config

    @property
    def num_taps(self) -> int:
        """How many numbers of the layers below the head takes, in evaluation, after the features.

        `build_model` sets `taps` of a configuration that has it.
        """
        return getattr(self.config, "taps", 0)

    @classmethod
    def default_config(cls) -> Any:
        """The configuration that is used where none is given."""
        return cls.default

    @property
    def outliers(self) -> OutlierConfig:
        """The outliers that the objective wants."""
        return self.config.outliers if self.takes_outliers else NONE

    @property
    def takes_outliers(self) -> bool:
        """Whether the objective has a term on outliers at all; a configuration says so."""
        return getattr(self.config, "takes_outliers", False)

    @property
    def named_scores(self) -> dict[str, str]:
        """The scores that stand for `aleatoric` and `epistemic` under this configuration."""
        return {"aleatoric": self.info.aleatoric, "epistemic": self.info.epistemic}

    @classmethod
    def copies(cls, config: Any) -> int:  # noqa: ARG003
        """How many backbones the head stands on, side by side."""
        return 1

    @property
    def is_finished(self) -> bool:
        """Whether all that `fit_statistics` fits is there."""
        return all(part.fitted for part in self.modules() if isinstance(part, Fitted))

    def members(self, backbone: nn.Module) -> list[tuple[nn.Module, Head]]:
        """Backbones and heads that are trained one by one instead; none by default."""
        return []

    def notes(self) -> list[str]:
        """What the configuration leaves out, for the log of a run."""
        return []

    def prepare(self, facts: DataFacts) -> None:
        """Called before training, and before a resumed run is restored."""

    def embed(self, z: Tensor) -> Tensor:
        """Features as the head sees them; outliers are made in this space. Must be idempotent."""
        return z

    def forward(self, z: Tensor) -> Belief:
        """Features (B, D), in evaluation followed by `num_taps` taps, to a belief."""
        raise NotImplementedError

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Named, weighted loss terms; their sum is the loss."""
        raise NotImplementedError

    def fit_statistics(self, train: FeatureBatches, validation: FeatureBatches | None) -> list[str]:
        """Fit densities and the like after training; returns notes for the log."""
        return []
