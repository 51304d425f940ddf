"""What a run has done so far, and what it did in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gemfi.training.config import TrainConfig


@dataclass(frozen=True)
class FitResult:
    """What a run did.

    Attributes:
        steps: optimiser steps; of an ensemble those of a member that does not stop early.
        seconds: wall time of training, over all sessions of the run; with a frozen backbone that of
            its features too.
        history: a record an epoch: the mean of each loss term, the seconds of its steps, validation
            NLL and accuracy and, of a mixture, the mean weights of its heads on validation data.
        best_epoch: the epoch that was kept, with `select="best"`.
        notes: what the configuration leaves out, and what was done when statistics were fitted.
        resumed_at: the step from which the last session went on; None for a fresh run.
    """

    steps: int
    seconds: float
    history: list[dict[str, Any]]
    best_epoch: int | None
    notes: list[str]
    resumed_at: int | None


@dataclass
class RunState:
    """The counters that a checkpoint keeps."""

    step: int = 0
    seconds: float = 0.0
    best_nll: float | None = None
    best_epoch: int | None = None
    finished: bool = False
    notes: list[str] = field(default_factory=list)
    epoch_seconds: float = 0.0  # of the steps in this epoch
    sums: dict[str, float] = field(default_factory=dict)  # of the loss terms in this epoch

    def epochs_left(self, config: TrainConfig, batches: int) -> bool:
        """Whether to train on: some epochs are left, and so is patience.

        Args:
            config: how many epochs there are, and how many may pass without a better one.
            batches: steps of an epoch.
        """
        ended = self.step // batches
        patience, best = config.patience, self.best_epoch
        impatient = patience is not None and best is not None and ended - 1 - best >= patience
        return ended < config.epochs and not impatient

    def early_end(self, config: TrainConfig, batches: int) -> list[str]:
        """A note on a run that ended before its last epoch."""
        ended = self.step // batches
        if self.best_epoch is None or ended == config.epochs:
            return []
        note = (
            f"training stopped after {ended} of {config.epochs} epochs: validation NLL was best "
            f"after {self.best_epoch + 1}, and that epoch is kept"
        )
        return [note]

    def count_seconds(self, seconds: float) -> None:
        """Add the time of a step to that of its epoch and of the run."""
        self.seconds += seconds
        self.epoch_seconds += seconds
