"""The monitor of everything that is served, in a bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gemfi.belief import Belief
from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.monitor import Monitor, MonitorState
from gemfi.scores import score_of
from gemfi.serve.settings import Settings

_LARGEST: Final = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class WatchState:
    """What is known of the inputs so far.

    Attributes:
        now: of the stream that runs.
        inputs: how many there were in all streams.
        streams: how many streams were begun.
        alarms: how many of them fired.
    """

    now: MonitorState
    inputs: int
    streams: int
    alarms: int


class Watch:
    """A monitor that begins a new stream after a number of inputs, since it remembers each.

    The promise of the monitor holds within a stream: of m streams without drift, the probability
    that any fires is at most m times its false-alarm rate.

    Args:
        monitor: fitted on calibration data; it knows its score.
        score: its name.
        length: inputs of a stream.
    """

    def __init__(self, monitor: Monitor, score: str, length: int) -> None:
        self.monitor, self.score, self.length = monitor, score, length
        self._before = self._alarms = 0  # of the streams that ended
        self._streams = 1

    @classmethod
    def of(cls, bundle: Bundle, policy: Policy | None, settings: Settings) -> Watch | None:
        """A monitor against the calibration data of a bundle or a policy; None without either."""
        if bundle.calibration is not None:
            score, reference = bundle.score, bundle.calibration.score
        elif policy is not None:
            score, reference = policy.score, np.concatenate(policy.reference.groups)
        else:
            return None
        monitor = Monitor(_held(reference), settings.monitor_false_alarm, score=score)
        return cls(monitor, score, settings.monitor_length)

    def update(self, belief: Belief) -> WatchState:
        """Count the inputs of a belief."""
        scores = _held(score_of(belief, self.score).numpy(force=True))
        while len(scores):
            if self.monitor.state.count == self.length:
                self._begin_anew()
            room = self.length - self.monitor.state.count
            self.monitor.update(scores[:room])
            scores = scores[room:]
        return self.state()

    def state(self) -> WatchState:
        """What is known so far."""
        now = self.monitor.state
        return WatchState(
            now, self._before + now.count, self._streams, self._alarms + int(now.fired)
        )

    def follow(self, before: WatchState) -> None:
        """Count on from a monitor that ended; the stream that runs is a new one."""
        self._before, self._alarms = before.inputs, before.alarms
        self._streams = before.streams + 1

    def _begin_anew(self) -> None:
        self._before += self.monitor.state.count
        self._alarms += int(self.monitor.state.fired)
        self._streams += 1
        self.monitor.reset()


def _held(scores: Any) -> Any:
    """Scores within the finite numbers: an infinite one is ranked first all the same."""
    return np.clip(np.asarray(scores, np.float64), -_LARGEST, _LARGEST)
