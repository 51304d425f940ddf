"""Monitor: a sequential test of drift whose false alarms are controlled over the whole stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from gemfi._config import check_number, check_seed
from gemfi._drawing import require_matplotlib, write_figure
from gemfi.belief import Belief
from gemfi.data import USES, AnySplit, require_role
from gemfi.errors import InputError
from gemfi.metrics import Floats, Values
from gemfi.model import Model
from gemfi.monitor.martingale import draws
from gemfi.monitor.stream import FORMAT, MonitorState, Stream, checked_record, mean_p
from gemfi.scores import score_label, score_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PART = 1 << 14  # inputs whose bets are held at a time
_DEVIATIONS = 3  # from one half, beyond which a median is called different


class Monitor:
    """Is a stream drifting from calibration data?

    While the stream is exchangeable with the calibration data, the probability that it **ever**
    fires is at most `false_alarm`, however long it runs and however often one looks.

        >>> monitor = Monitor.fit(model, task.calibration, false_alarm=0.01)
        >>> for images in stream:
        ...     if monitor.update(model.predict(images)).fired:
        ...         print(monitor.summary())

    Each input is ranked among the calibration data **and** the stream before it, and a martingale
    bets against these ranks (`docs/monitor.md`). It grows by 8 bytes an input. One thread at a
    time.

    Args:
        reference: (n,) finite scores of calibration data, higher is less familiar; their order
            does not matter.
        false_alarm: probability of ever firing on a stream without drift, in (0, 1).
        seed: of the numbers that break ties.
        score: how to score beliefs: a name in `SCORES`, or of a detector in their `extra`; None if
            the stream comes as scores.
    """

    def __init__(
        self,
        reference: Values,
        false_alarm: float = 0.01,
        seed: int = 0,
        *,
        score: str | None = None,
    ) -> None:
        check_number("false_alarm", false_alarm, above=0, below=1)
        check_seed("seed", seed)
        self.reference: Floats = np.sort(_finite(reference, "reference"))
        if len(self.reference) == 0:
            raise InputError("reference is empty: give the scores of calibration data")
        self.reference.flags.writeable = False
        self.false_alarm, self.seed, self.score = float(false_alarm), int(seed), score
        self._number = 0  # of the stream
        self._stream = Stream()

    @classmethod
    def fit(
        cls,
        model: Model,
        calibration: AnySplit,
        false_alarm: float = 0.01,
        seed: int = 0,
        *,
        score: str | None = None,
        batch_size: int = 512,
    ) -> Self:
        """A monitor of the inputs of a trained model.

        Args:
            model: a trained model.
            calibration: a split of role calibration, which training has not seen.
            false_alarm: probability of ever firing on a stream without drift.
            seed: of the numbers that break ties.
            score: a name in `SCORES`. Defaults to the method's epistemic score.
            batch_size: how many inputs at a time.
        """
        require_role(calibration, USES["policy"], "a monitor")
        model.require_finished("a monitor")
        name = model.head.named_scores["epistemic"] if score is None else score
        beliefs = model.beliefs(calibration, batch_size)
        scores = torch.cat([score_of(belief, name) for belief, _ in beliefs])
        return cls(scores, false_alarm, seed, score=name)

    def __repr__(self) -> str:
        return (
            f"Monitor({len(self.reference)} reference scores, false_alarm={self.false_alarm:g}, "
            f"{len(self._stream)} inputs, fired_at={self.fired_at})"
        )

    # -- the stream ------------------------------------------------------------------------------

    def update(self, inputs: Values | Belief) -> MonitorState:
        """Count the next inputs, in the order in which they came.

        They are (m,) finite scores, one score, or a belief as `model.predict` returns it. How they
        are cut into batches changes nothing. On an error nothing is counted.
        """
        stream = self._stream
        if isinstance(inputs, Belief):
            if self.score is None:
                raise InputError(
                    "this monitor was made from scores and does not know how to score a belief: "
                    "give scores, or make it with Monitor.fit or score="
                )
            inputs = score_of(inputs, self.score)
        scores = _finite(inputs, "scores", len(stream))
        for start in range(0, len(scores), _PART):
            part = scores[start : start + _PART]
            uniform = draws(self.seed, self._number, len(stream), len(part))
            stream = stream.extended(part, uniform, self.reference, self.false_alarm)
        self._stream = stream  # all at once
        return self.state

    def reset(self) -> None:
        """Begin a new stream against the same calibration data, with a false-alarm rate anew."""
        self._number += 1
        self._stream = Stream()

    # -- what is known ---------------------------------------------------------------------------

    @property
    def state(self) -> MonitorState:
        """What is known of the stream so far."""
        return self._stream.state(self.false_alarm)

    @property
    def fired_at(self) -> int | None:
        """The input, counted from 0, at which it fired; it stays until `reset`. None if not."""
        return self.state.fired_at

    def summary(self) -> str:
        """What is known, in a few lines."""
        state, size = self.state, len(self.reference)
        of = "" if self.score is None else f" by {score_label(self.score)}"
        largest = "never above its beginning"
        if state.largest_at is not None:
            largest = f"at most {_power(state.log10_largest)} at input {state.largest_at:,}"
        lines = [
            f"Monitor of {state.count:,} inputs against {size:,} calibration scores{of}",
            f"wealth  {_power(state.log10_wealth)} now, {largest}; fires at "
            + _power(state.log10_limit),
            f"alarm   {_alarm(state, self.false_alarm)}",
        ]
        recent = mean_p(self._stream.recent, size)
        if len(recent):
            median = float(np.median(recent))
            lines.append(
                f"recent  median p {median:.2f} in the last {len(recent)} inputs (0.50 is "
                f"expected): {_meaning(median, len(recent), size)}"
            )
        return "\n".join(lines)

    def plot(self, path: Path | str | None = None) -> Figure:
        """The wealth against its limit, and p-values along the stream; also written to a path."""
        require_matplotlib()
        from gemfi.monitor.figure import draw  # noqa: PLC0415 - matplotlib is optional

        figure = draw(self.state, self._stream, len(self.reference))
        if path is not None:
            write_figure(figure, Path(path))
        return figure

    # -- to go on later --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything, as numbers, words and arrays: `numpy.savez(file, **monitor.state_dict())`."""
        return {
            "format": FORMAT,
            "false_alarm": self.false_alarm,
            "seed": self.seed,
            "score": self.score or "",
            "reference": self.reference.copy(),
            "stream": self._number,
            **self._stream.record(),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The monitor whose `state_dict` this is, which goes on as it would have, bit for bit.

        `state` may also be what `numpy.load` reads from a file.
        """
        record = checked_record(state)
        monitor = cls(
            record["reference"], record["false_alarm"], record["seed"],
            score=record["score"] or None,
        )  # fmt: skip
        monitor._number, monitor._stream = record["stream"], Stream.of(record)
        return monitor


def _power(log10: float) -> str:
    return f"10^{log10:.2f}".removesuffix("0").removesuffix(".0")


def _alarm(state: MonitorState, false_alarm: float) -> str:
    chance = f"{100 * false_alarm:g} %"
    if state.fired_at is None:
        return f"none (a stream like the calibration data ever fires with at most {chance})"
    word, change = ("rose", "less") if state.direction == "rise" else ("fell", "more")
    return (
        f"FIRED at input {state.fired_at:,}: scores {word}, inputs look {change} familiar "
        f"(by chance: at most {chance})"
    )


def _meaning(median: float, recent: int, reference: int) -> str:
    """What a median of p says, beyond what chance does to this many inputs and scores."""
    chance = 0.5 * math.sqrt(1 / recent + 1 / reference)
    if abs(median - 0.5) <= _DEVIATIONS * chance:
        return "as the calibration data"
    return f"{'less' if median < 0.5 else 'more'} familiar than the calibration data"


def _finite(values: Values, name: str, first: int | None = None) -> Floats:
    """Scores (m,) in float64, a copy; refused by their place if they are not finite.

    One number is an array of one. In a stream, `first` is the number of the first of them.
    """
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().numpy()
    try:
        array = np.atleast_1d(np.array(values))
    except ValueError as error:
        raise InputError(f"{name} cannot be read as one array: {error}") from error
    if array.ndim != 1:
        raise InputError(f"{name} must have shape (m,), got {array.shape}")
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must hold real numbers, got dtype {array.dtype}")
    scores = array.astype(np.float64)
    bad = ~np.isfinite(scores)
    if bad.any():
        at = int(bad.argmax())
        where = "" if first is None else f" (input {first + at} of the stream; none was counted)"
        raise InputError(f"{name}[{at}] is {scores[at]}, but a score must be finite{where}")
    return scores
