"""What a run did in the end, and how it is printed."""

from __future__ import annotations

import itertools
import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE: Final = 60  # bars of a curve, however many epochs there were
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
    text = f"{result.steps:,} steps, {epochs:,} epoch{'' if epochs == 1 else 's'}, "
    text += f"{result.seconds:.1f} s"
    if result.resumed_at is not None:
        text += f"; resumed at step {result.resumed_at:,}"
    if result.best_epoch is not None:
        text += f"; the weights of epoch {result.best_epoch + 1} were kept"
    return text


def _epochs_table(result: FitResult) -> list[str]:
    """A line for each number, and columns for the first, the best and the last epoch.

    The best is the epoch that was kept or, where the last was, the one of lowest validation NLL.
    """
    history = result.history
    columns = {"first": history[0]}
    judged = [record for record in history if "validation_nll" in record]
    if result.best_epoch is not None:
        columns["best"] = next(r for r in history if r["epoch"] == result.best_epoch)
    elif judged:
        columns["best"] = min(judged, key=lambda record: record["validation_nll"])
    columns["last"] = history[-1]
    rows = [("epoch", [f"{record['epoch'] + 1}" for record in columns.values()])]
    for title, key, digits in (
        ("validation NLL", "validation_nll", 3),
        ("validation accuracy, %", "validation_accuracy", 2),
        ("loss", "loss", 3),
    ):
        if key in history[-1]:
            rows.append((title, [f"{record[key]:.{digits}f}" for record in columns.values()]))
    terms = [record["terms"] for record in columns.values()]
    rows += [  # a term on outliers may come after the first epoch
        (f"  {name}", [f"{of_epoch[name]:.3g}" if name in of_epoch else "-" for of_epoch in terms])
        for name in dict.fromkeys(itertools.chain(*terms))
    ]
    width = max(len(title) for title, _ in rows)
    return [
        title.ljust(width) + "".join(f"{cell:>10}" for cell in cells)
        for title, cells in [("", list(columns)), *rows]
    ]


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


def mean_history(histories: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The records of an epoch, averaged over the members that reached it; seconds are added up."""
    merged = []
    for reached in itertools.zip_longest(*histories):
        records = [record for record in reached if record is not None]
        first = records[0]
        means = {
            name: statistics.fmean(record[name] for record in records)
            for name in ("loss", "validation_nll", "validation_accuracy")
            if name in first
        }
        terms = {
            name: statistics.fmean(record["terms"][name] for record in records)
            for name in first["terms"]
        }
        seconds = round(sum(record["seconds"] for record in records), 3)
        merged.append({**first, **means, "terms": terms, "seconds": seconds})
    return merged
