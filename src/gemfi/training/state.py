"""What a run has done so far, and what it did in the end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from gemfi.errors import InputError
from gemfi.plain import from_plain


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
    threads: int = field(default_factory=torch.get_num_threads)  # of torch; sums depend on it
    notes: list[str] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)  # of the loss terms in this epoch

    @classmethod
    def read(cls, counters: Any) -> RunState:
        """The inverse of `asdict`; an InputError names a field that is missing or of another type.

        Args:
            counters: JSON values.
        """
        state = from_plain(cls, counters, "counters")
        for each in fields(cls):
            if each.name not in counters:
                raise InputError(f"counters.{each.name} is missing")
        return state

    def check(self, epochs: int, batches: int) -> None:
        """Raise an InputError that says what no such run can have counted.

        Args:
            epochs: of the whole run.
            batches: steps of an epoch.
        """
        steps = epochs * batches
        ended, within = divmod(self.step, batches)
        kept, nll = self.best_epoch, self.best_nll
        # one that keeps its best epoch may end early, after a whole epoch
        ends = self.step == steps or (kept is not None and within == 0)
        sums = list(self.sums.values())
        for possible, counted in (
            (0 <= self.step <= steps, f"step {self.step} of {steps}"),
            (math.isfinite(self.seconds) and self.seconds >= 0, f"{self.seconds} seconds"),
            (self.threads >= 1, f"{self.threads} threads"),
            ((kept is None) == (nll is None), f"best epoch {kept} with NLL {nll}"),
            (kept is None or 0 <= kept < ended, f"best epoch {kept} of {ended} that have ended"),
            (ends or not self.finished, f"the end at step {self.step} of {steps}"),
            (bool(sums) == bool(within), f"{len(sums)} sums after {within} steps of an epoch"),
            (all(map(math.isfinite, sums)), f"sums {sums}"),
        ):
            if not possible:
                raise InputError(f"counters: {counted} cannot be")
