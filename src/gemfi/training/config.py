"""TrainConfig: how a run is trained, whatever the method."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from gemfi.data.augmentation import Augmentation
from gemfi.errors import InputError


@dataclass(frozen=True)
class TrainConfig:
    """AdamW with one cosine decay over all steps.

    Attributes:
        epochs: passes over the training data.
        batch_size: samples a step.
        learning_rate: at the start; it falls to zero by half a cosine.
        weight_decay: on weight matrices; never on biases, norms or the temperature.
        clip_norm: largest norm of the gradient.
        seed: of shuffling, dropout, outliers and augmentation.
        select: keep the `last` epoch, or the one with the `best` NLL on validation data.
        bf16: run the backbone, and it alone, under bfloat16 autocast.
        checkpoint_steps: save every so many steps; None saves at the end of each epoch.
        augmentation: of training images, auxiliary ones included; nothing by default. Validation,
            statistics and prediction see the images as they are.
    """

    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    clip_norm: float = 1.0
    seed: int = 0
    select: Literal["last", "best"] = "last"
    bf16: bool = False
    checkpoint_steps: int | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "clip_norm"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**63 - 1:
            raise InputError(f"seed must lie in 0 to 2**63 - 2, got {self.seed}")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise InputError(f"weight_decay must be at least 0, got {self.weight_decay}")
        if self.select not in ("last", "best"):
            raise InputError(f"select must be last or best, got {self.select!r}")
        if self.checkpoint_steps is not None and self.checkpoint_steps < 1:
            raise InputError(f"checkpoint_steps must be at least 1, got {self.checkpoint_steps}")
        if not isinstance(self.augmentation, Augmentation):
            raise InputError(
                "augmentation must be an Augmentation, such as AUGMENTATIONS['standard'], got "
                f"{self.augmentation!r}"
            )

    def rate(self, fraction: float) -> float:
        """The learning rate after a fraction of training."""
        return 0.5 * self.learning_rate * (1 + math.cos(math.pi * fraction))
