"""Monitor: a sequential test of drift whose false alarms are controlled over the whole stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import Tensor

from gemfi._config import check_number, check_seed
from gemfi._drawing import write_figure
from gemfi.belief import Belief
from gemfi.data import USES, Split, require_role
from gemfi.errors import InputError
from gemfi.metrics import Floats, Values
from gemfi.model import Model
from gemfi.monitor.describe import describe
from gemfi.monitor.ranks import Draws
from gemfi.monitor.record import FORMAT, checked, stream_of, stream_record
from gemfi.monitor.state import MonitorState
from gemfi.monitor.stream import Stream, mean_p
from gemfi.scores import score_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PART = 1 << 14  # inputs whose bets are held at a time


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
        self._draws = Draws(self.seed)
        self._number = 0  # of the stream
        self._stream = Stream()

    @classmethod
    def fit(
        cls,
        model: Model,
        calibration: Split,
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
            score: a name in `SCORES`; None for the method's epistemic score.
            batch_size: how many inputs at a time.
        """
        require_role(calibration, USES["policy"], "a monitor")
        name = model.head.named_scores["epistemic"] if score is None else score
        scores = score_of(model.predict(calibration, batch_size), name)
        return cls(scores, false_alarm, seed, score=name)

    def __repr__(self) -> str:
        return (
            f"Monitor({len(self.reference)} reference scores, false_alarm={self.false_alarm:g}, "
            f"{len(self._stream)} inputs, fired_at={self.fired_at})"
        )

    # -- the stream ------------------------------------------------------------------------------

    def update(self, inputs: Values | Belief) -> MonitorState:
        """Count the next inputs, in the order in which they came.

        How they are cut into batches changes nothing. On an error nothing is counted.

        Args:
            inputs: (m,) finite scores, one score, or a belief on m inputs as `model.predict`
                returns it.
        """
        stream = self._stream
        scores = self._scores(inputs, len(stream))
        for start in range(0, len(scores), _PART):
            part = scores[start : start + _PART]
            uniform = self._draws.take(self._number, len(stream), len(part))
            stream = stream.extended(part, uniform, self.reference, self.false_alarm)
        self._stream = stream  # all at once
        return self.state

    def reset(self) -> None:
        """Begin a new stream against the same calibration data, with a false-alarm rate anew."""
        self._number += 1
        self._stream = Stream()

    def _scores(self, inputs: Values | Belief, count: int) -> Floats:
        if not isinstance(inputs, Belief):
            return _finite(inputs, "scores", count)
        if self.score is None:
            raise InputError(
                "this monitor was made from scores and does not know how to score a belief: give "
                "scores, or make it with Monitor.fit or score="
            )
        return _finite(score_of(inputs, self.score), "scores", count)

    # -- what is known ---------------------------------------------------------------------------

    @property
    def state(self) -> MonitorState:
        """What is known of the stream so far."""
        evidence = self._stream.evidence
        return MonitorState(
            count=len(self._stream),
            log10_wealth=evidence.log_wealth / math.log(10),
            log10_limit=-math.log10(self.false_alarm),
            log10_largest=evidence.log_largest / math.log(10),
            largest_at=evidence.largest_at,
            fired_at=evidence.fired_at,
            direction=evidence.direction,
        )

    @property
    def fired_at(self) -> int | None:
        """The input, counted from 0, at which it fired; it stays until `reset`. None if not."""
        return self._stream.evidence.fired_at

    def summary(self) -> str:
        """What is known, in a few lines."""
        recent = mean_p(self._stream.recent, len(self.reference))
        return describe(self.state, recent, len(self.reference), self.false_alarm, self.score)

    def plot(self, path: Path | str | None = None) -> Figure:
        """The wealth against its limit, and the p-values along the stream; needs matplotlib.

        Args:
            path: also write it there, in the format of its ending.
        """
        from gemfi.monitor.figure import draw  # noqa: PLC0415 - matplotlib is optional

        figure = draw(self.state, self._stream.history, len(self.reference))
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
            **stream_record(self._stream),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the monitor whose `state_dict` this is, and go on as it would have, bit for bit.

        Args:
            state: as `state_dict` returned it, or as `numpy.load` reads it from a file.
        """
        record = checked(state)
        other = type(self)(
            record["reference"], record["false_alarm"], record["seed"],
            score=record["score"] or None,
        )  # fmt: skip
        other._number, other._stream = record["stream"], stream_of(record)
        self.__dict__.update(other.__dict__)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """A monitor from its `state_dict`, see `load_state_dict`."""
        monitor = cls([0.0])
        monitor.load_state_dict(state)
        return monitor


def _finite(values: Values, name: str, first: int | None = None) -> Floats:
    """Scores (m,) in float64, a copy; refused by their place if they are not finite.

    Args:
        values: numbers, in an array, a tensor or a list; one number is an array of one.
        name: of the argument.
        first: number of the first of them in the stream, for the message.
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
