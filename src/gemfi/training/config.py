"""TrainConfig: how a run is trained, whatever the method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from gemfi._config import LATER, check_choice, check_int, check_number, check_seed
from gemfi.data.augmentation import Augmentation
from gemfi.devices import Precision
from gemfi.errors import InputError

Optimizer = Literal["adamw", "adam", "sgd"]
Schedule = Literal["cosine", "one-cycle", "constant", "step", "exponential"]
Select = Literal["last", "best"]
_RISE = 0.3  # share of a one-cycle run before its peak
_FIRST = 1 / 25  # share of the peak at its start


@dataclass(frozen=True)
class TrainConfig:
    """Optimiser, learning rate and budget; by default AdamW, with a rate that ends at zero.

    Attributes:
        epochs: passes over the training data.
        batch_size: samples a step; None for that of the `DataLoader`, or 128 where there is none.
        learning_rate: the largest.
        optimizer: `adamw`, `adam` (weight decay is part of the gradient) or `sgd` (the same, with
            momentum 0.9).
        schedule: `cosine` falls from the largest rate to zero along half a cosine; `one-cycle`
            first rises to it along a cosine, over three tenths of training, from a twenty-fifth
            of it; `constant` stays; `step` multiplies by `decay` at each of the `milestones`;
            `exponential` falls smoothly to `decay` times the largest rate.
        milestones: fractions of training in rising order, for `step`.
        decay: the factor at each milestone for `step`, and the one at the end for `exponential`.
        weight_decay: on weight matrices; never on biases, norms or the temperature.
        clip_norm: largest norm of the gradient.
        seed: of shuffling, dropout, outliers and augmentation.
        select: keep the `last` epoch, or the one with the `best` NLL on validation data. The
            default is the last, so that `fit` does the same with and without validation data; set
            `best` for many epochs and noisy labels (docs/methods.md).
        patience: with `best`, stop after so many epochs without a better one; None runs them all.
        precision: of the backbone; heads, losses and statistics stay in float32 and float64. `bf16`
            saves time where the hardware has instructions for it, and can take ten times as long
            where it has not; `auto` asks the hardware; `fp16` is for CUDA.
        compile: let `torch.compile` translate the backbone.
        channels_last: keep images with their channels last, which many convolutions prefer.
        accumulate: parts into which a batch is cut, so that it takes less memory.
        checkpoint_steps: save every so many steps; None saves at the end of each epoch.
        augmentation: of training images, auxiliary ones included; nothing by default. Validation,
            statistics and prediction see the images as they are.
    """

    epochs: int = 20
    batch_size: int | None = None
    learning_rate: float = 1e-3
    optimizer: Optimizer = "adamw"
    schedule: Schedule = "cosine"
    milestones: tuple[float, ...] = (0.5, 0.75)
    decay: float = 0.1
    weight_decay: float = 1e-4
    clip_norm: float = 1.0
    seed: int = 0
    select: Select = "last"
    patience: int | None = field(default=None, metadata=LATER)
    precision: Precision = field(default="fp32", metadata=LATER)
    compile: bool = field(default=False, metadata=LATER)
    channels_last: bool = field(default=False, metadata=LATER)
    accumulate: int = field(default=1, metadata=LATER)
    checkpoint_steps: int | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        for name in ("epochs", "accumulate", "batch_size", "checkpoint_steps", "patience"):
            if getattr(self, name) is not None or name in ("epochs", "accumulate"):
                check_int(name, getattr(self, name), 1)
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("clip_norm", self.clip_norm, above=0)
        check_number("weight_decay", self.weight_decay, 0)
        check_seed("seed", self.seed)
        check_choice("optimizer", self.optimizer, get_args(Optimizer))
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_number("decay", self.decay, most=1, above=0)
        _check_milestones(self.milestones)
        check_choice("precision", self.precision, get_args(Precision))
        check_choice("select", self.select, get_args(Select))
        if self.patience is not None and self.select != "best":
            raise InputError('patience counts epochs since the best: set select="best" too')
        if not isinstance(self.augmentation, Augmentation):
            raise InputError(
                "augmentation must be an Augmentation, such as AUGMENTATIONS['standard'], got "
                f"{self.augmentation!r}"
            )

    @property
    def samples_a_step(self) -> int:
        """`batch_size`, or 128 where none was chosen."""
        return 128 if self.batch_size is None else self.batch_size

    def rate(self, fraction: float) -> float:
        """The learning rate after a fraction of training."""
        match self.schedule:
            case "cosine":
                share = _fall(fraction)
            case "one-cycle" if fraction < _RISE:
                share = 1 - (1 - _FIRST) * _fall(fraction / _RISE)
            case "one-cycle":
                share = _fall((fraction - _RISE) / (1 - _RISE))
            case "step":
                share = float(self.decay ** sum(fraction >= m for m in self.milestones))
            case "exponential":
                share = float(self.decay**fraction)
            case "constant":
                share = 1.0
        return self.learning_rate * share


def upgraded_training(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Plain settings of any age in today's fields: `bf16` has become a precision."""
    settings = dict(plain)
    if settings.pop("bf16", False):
        settings["precision"] = "bf16"
    return settings


def _check_milestones(milestones: object) -> None:
    if not isinstance(milestones, tuple) or not milestones:
        raise InputError(
            f"milestones must be a tuple of fractions, such as (0.5, 0.75), got {milestones!r}"
        )
    for milestone in milestones:
        check_number("milestones", milestone, above=0, below=1)
    if list(milestones) != sorted(set(milestones)):
        raise InputError(f"milestones must rise, got {milestones}")


def _fall(fraction: float) -> float:
    """From 1 to 0 along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * fraction))
