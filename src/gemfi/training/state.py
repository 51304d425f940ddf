"""What a run has done so far, and what it did in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class FitResult:
    """What a run did.

    Attributes:
        steps: optimiser steps.
        seconds: wall time of training, over all sessions of the run; with a frozen backbone that of
            its features too.
        history: a record an epoch: the mean of each loss term, validation NLL and accuracy and, of
            a mixture, the mean weights of its heads on validation data.
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
    sums: dict[str, float] = field(default_factory=dict)  # of the loss terms in this epoch
