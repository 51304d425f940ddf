"""What a run has done so far, and what it did in the end."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import torch

from gemfi._config import from_plain
from gemfi.errors import InputError
from gemfi.training.config import TrainConfig

_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE: Final = 60  # of them, however many epochs there were
_WIDTH: Final = 100  # characters of a line


@dataclass(frozen=True, repr=False)
class FitResult:
    """What a run did; `print` shows it on a screen, however long the run was.

    Attributes:
        steps: optimiser steps; of an ensemble those of a member that does not stop early.
        seconds: wall time of training, over all sessions of the run; with a frozen backbone that of
            its features too.
        history: a record an epoch: the mean of each loss term, the seconds of its steps, validation
            NLL and accuracy (in percent) and, of a mixture, the mean weights of its heads on
            validation data.
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

    def __repr__(self) -> str:
        """Length, the first, best and last epoch, the curve, and the notes."""
        lines = [_length(self)]
        if self.history:
            lines += [*_epochs_table(self), _curve(self.history)]
        for note in self.notes:
            lines += textwrap.wrap(f"note: {note}", _WIDTH, subsequent_indent="  ")
        return "\n".join(lines)


def _length(result: FitResult) -> str:
    epochs = len(result.history)
    words = f"{result.steps:,} steps, {epochs:,} epoch{'' if epochs == 1 else 's'}, "
    words += f"{result.seconds:.1f} s"
    if result.resumed_at is not None:
        words += f"; resumed at step {result.resumed_at:,}"
    if result.best_epoch is not None:
        words += f"; the weights of epoch {result.best_epoch + 1} were kept"
    return words


def _epochs_table(result: FitResult) -> list[str]:
    """A line for each number, a column each for the first, the best and the last epoch."""
    history = result.history
    columns = {"first": history[0], "best": _best(result), "last": history[-1]}
    shown = {title: record for title, record in columns.items() if record is not None}
    rows = [("epoch", [f"{record['epoch'] + 1}" for record in shown.values()])]
    for title, key, digits in (
        ("validation NLL", "validation_nll", 3),
        ("validation accuracy, %", "validation_accuracy", 2),
        ("loss", "loss", 3),
    ):
        if key in history[-1]:
            rows.append((title, [f"{record[key]:.{digits}f}" for record in shown.values()]))
    terms = [record["terms"] for record in shown.values()]
    rows += [  # a term on outliers may come after the first epoch
        (f"  {name}", [f"{each[name]:.3g}" if name in each else "-" for each in terms])
        for name in dict.fromkeys(itertools.chain(*terms))
    ]
    wide = max(len(title) for title, _ in rows)
    return [
        " " * wide + "".join(f"{title:>10}" for title in shown),
        *(title.ljust(wide) + "".join(f"{cell:>10}" for cell in cells) for title, cells in rows),
    ]


def _best(result: FitResult) -> Mapping[str, Any] | None:
    """The epoch that was kept or, where the last was, the one with the lowest validation NLL."""
    kept = (record for record in result.history if record["epoch"] == result.best_epoch)
    judged = (record for record in result.history if "validation_nll" in record)
    lowest = min(judged, key=lambda record: record["validation_nll"], default=None)
    return next(kept, lowest)


def _curve(history: Sequence[Mapping[str, Any]]) -> str:
    """Validation NLL, or the loss without validation data, as a line of bars."""
    key = "validation_nll" if "validation_nll" in history[-1] else "loss"
    values = [record[key] for record in history]
    count = min(len(values), _CURVE)
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    finite = [value for value in means if math.isfinite(value)] or [math.inf]
    low, high = min(finite), max(finite)
    step = (high - low) / (len(_BARS) - 1) or 1.0
    bars = "".join(
        _BARS[round((value - low) / step) if math.isfinite(value) else -1] for value in means
    )
    return f"{key.replace('_nll', ' NLL')}, {low:.3g} to {high:.3g}: {bars}"


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
    epoch_seconds: float = 0.0  # of the steps in this epoch
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
            (0 <= self.epoch_seconds <= self.seconds, f"{self.epoch_seconds} seconds of an epoch"),
            (self.threads >= 1, f"{self.threads} threads"),
            ((kept is None) == (nll is None), f"best epoch {kept} with NLL {nll}"),
            (kept is None or 0 <= kept < ended, f"best epoch {kept} of {ended} that have ended"),
            (ends or not self.finished, f"the end at step {self.step} of {steps}"),
            (bool(sums) == bool(within), f"{len(sums)} sums after {within} steps of an epoch"),
            (all(map(math.isfinite, sums)), f"sums {sums}"),
        ):
            if not possible:
                raise InputError(f"counters: {counted} cannot be")

    def epochs_left(self, config: TrainConfig, batches: int) -> bool:
        """Whether to train on: some epochs are left, and so is patience.

        Args:
            config: how many epochs there are, and how many may pass without a better one.
            batches: steps of an epoch.
        """
        ended = self.step // batches
        patience, best = config.patience, self.best_epoch
        impatient = patience is not None and best is not None and ended - 1 - best >= patience
        return ended < config.last_epoch and not impatient

    def early_end(self, config: TrainConfig, batches: int) -> list[str]:
        """A note on a run that ended before its last epoch."""
        ended = self.step // batches
        if self.best_epoch is None or ended == config.last_epoch:
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
