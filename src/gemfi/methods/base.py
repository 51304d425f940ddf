"""The interface of a method: `Head`, and the small records that pass through it.

A head turns features into a `Belief`, and a batch into named loss terms. The training loop knows
nothing else of a method. To add one, write a file beside this with a `Head` in the order `info`,
`__init__`, `forward`, `objective` (and `config_class`, if it has choices), and list it in
`METHODS` (`methods/__init__.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from gemfi.belief import Belief
from gemfi.errors import InputError
from gemfi.outliers import NONE, OutlierConfig

FeatureBatches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class MethodInfo:
    """What a method is, read by the docs' table, `gemfi methods` and the tests.

    Attributes:
        name: its name on the command line and in `METHODS`.
        label: its name as its paper writes it, for tables and figures.
        summary: one line.
        paper: title of the paper.
        venue: where it appeared.
        year: when.
        aleatoric: the score (in `SCORES`) that stands for aleatoric uncertainty.
        epistemic: the score that stands for epistemic uncertainty.
        passes: forward passes at inference.
        exportable: whether `forward` survives `torch.export`.
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
    """What a head may know of the training data before training.

    Attributes:
        samples: (C,) of each class, or what counts them; None where nobody can.
        steps: optimiser steps of the whole run.
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
    """Where training stands. Schedules read fractions of it, never epoch numbers.

    Attributes:
        step: optimiser steps done before this one.
        steps: optimiser steps of the whole run.
    """

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

    def crossed(self, every: float) -> bool:
        """Whether a multiple of the fraction `every` was passed with the last step."""
        if self.step == 0:
            return False
        return int(self.fraction / every) > int((self.step - 1) / self.steps / every)


@dataclass(frozen=True)
class Batch:
    """One training batch in feature space.

    Attributes:
        z: (B, D) features.
        y: (B,) labels.
        outliers: (M, D) features off the support, or None.
        outlier_weight: weight of every term on them, which rises from 0 to 1.
    """

    z: Tensor
    y: Tensor
    outliers: Tensor | None = None
    outlier_weight: float = 1.0


class Head(nn.Module):
    """Base of every trained method.

    Args:
        num_features: D, at least 1.
        num_classes: C, at least 2.
        config: the method's frozen configuration; None takes its default.
    """

    info: ClassVar[MethodInfo]
    config_class: ClassVar[type | None] = None
    """A frozen dataclass whose defaults are those of the method; None for one without choices."""

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__()
        if num_features < 1:
            raise InputError(f"num_features must be at least 1, got {num_features}")
        if num_classes < 2:
            raise InputError(f"num_classes must be at least 2, got {num_classes}")
        expected = type(self).default_config()
        if config is not None and type(config) is not type(expected):
            raise InputError(
                f"{self.info.name} takes a {type(expected).__name__}, got {type(config).__name__}"
            )
        self.num_features, self.num_classes = num_features, num_classes
        self.config = expected if config is None else config

    @classmethod
    def default_config(cls) -> Any:
        """The configuration used where none is given; None for a method without choices."""
        return None if cls.config_class is None else cls.config_class()

    @property
    def outliers(self) -> OutlierConfig:
        """The outliers that the objective wants; none by default."""
        return NONE

    @property
    def takes_outliers(self) -> bool:
        """Whether the objective has a term on outliers at all."""
        return False

    @property
    def named_scores(self) -> dict[str, str]:
        """The scores that stand for `aleatoric` and `epistemic` under this configuration."""
        return {"aleatoric": self.info.aleatoric, "epistemic": self.info.epistemic}

    @classmethod
    def copies(cls, config: Any) -> int:
        """How many backbones the head stands on, side by side."""
        del config
        return 1

    def members(self, backbone: nn.Module) -> list[tuple[nn.Module, Head]]:
        """Backbones and heads to train one by one, in place of the whole; none by default."""
        del backbone
        return []

    def notes(self) -> list[str]:
        """What the configuration leaves out, in plain words, for the log of a run."""
        return []

    def prepare(self, facts: DataFacts) -> None:
        """Called before training, and before a resumed run is restored."""

    def embed(self, z: Tensor) -> Tensor:
        """Features as the head sees them; outliers are made in this space. Must be idempotent."""
        return z

    def forward(self, z: Tensor) -> Belief:
        """Features (B, D) to a belief."""
        raise NotImplementedError

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Named, weighted loss terms; their sum is the loss."""
        raise NotImplementedError

    def fit_statistics(self, train: FeatureBatches, validation: FeatureBatches | None) -> list[str]:
        """Fit densities and the like after training; returns notes for the log."""
        del train, validation
        return []
