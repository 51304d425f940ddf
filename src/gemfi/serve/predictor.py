"""The model as the server asks it: one pass for several requests, a decision, and the monitor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from gemfi.answers import Answers, Prediction, details
from gemfi.belief import Belief
from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.errors import InputError
from gemfi.monitor import Monitor
from gemfi.scores import MAIN, available, score_of
from gemfi.serve.formats import InputFormat
from gemfi.serve.schemas import Limits, about_model
from gemfi.serve.settings import Settings

_LARGEST: Final = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class Question:
    """What one request asks.

    Attributes:
        predictor: the model that is asked, from first to last.
        inputs: (N, ...) as the model takes them.
        level: false-alarm rate in place of the policy's.
        detail: whether the heads, the gate and the input are told as well.
    """

    predictor: Predictor
    inputs: npt.NDArray[Any]
    level: float | None = None
    detail: bool = False


class Predictor:
    """A model that is served, and everything that was made from it. One thread at a time.

    Args:
        bundle: the model with what it was calibrated on.
        policy: makes the decisions; None for none.
        settings: how many inputs a pass may have, and how the monitor runs.
    """

    def __init__(self, bundle: Bundle, policy: Policy | None, settings: Settings) -> None:
        self.bundle, self.policy = bundle, policy
        self.form = InputFormat.of(bundle, settings)
        self.max_bytes = settings.max_bytes or self.form.max_bytes(settings.max_inputs)
        self.watch = Watch.of(bundle, policy, settings)
        self._max_batch = settings.max_batch
        self._score_names = self._try()
        limits = Limits(batch=settings.max_inputs, bytes=self.max_bytes, pixels=settings.max_pixels)
        self.about = about_model(bundle, policy, self.form, limits).model_dump_json()

    def _try(self) -> tuple[str, ...]:
        """The names of the scores that are told, by a trial; what cannot be fails at the start."""
        tokens = self.form.tokens
        value = 1 if tokens is not None and tokens.pad == 0 else 0
        dtype = getattr(torch, self.form.dtype)
        trial = torch.full((1, *self.form.shape), value, dtype=dtype)
        try:
            belief = self.bundle.model.predict(trial)
        except RuntimeError as error:  # by torch, of sizes or numbers
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"the model cannot answer an input of the shape {self.form.shape} that it asks "
                f"for: {reason}"
            ) from error
        used = [] if self.policy is None else [self.policy.score, self.policy.doubt]
        used += [] if self.watch is None else [self.watch.score]
        has = {*available(belief), *belief.extra}
        wanted = dict.fromkeys((*MAIN, *used, *self.bundle.references))
        names = tuple(name for name in wanted if name in has)
        # The first time takes long, and a policy may read a score that the model lacks.
        Answers.of(belief, self.bundle.info.class_names, names, self.policy).records()
        return names

    def run(self, questions: Sequence[Question]) -> list[list[Prediction]]:
        """The answers to questions whose inputs have one shape, by one pass."""
        counts = [len(question.inputs) for question in questions]
        inputs = np.concatenate([question.inputs for question in questions])
        belief = self.bundle.model.predict(torch.from_numpy(inputs), self._max_batch)
        rates = [np.nan if question.level is None else question.level for question in questions]
        levels = np.repeat(np.array(rates, np.float64), counts)
        names = self.bundle.info.class_names
        records = Answers.of(belief, names, self._score_names, self.policy, levels).records()
        rows = np.flatnonzero(np.repeat([question.detail for question in questions], counts))
        if len(rows):
            images = _bytes(inputs[rows]) if self.form.kind == "image" else None
            for row, detail in zip(rows, details(belief[rows.tolist()], images), strict=True):
                records[row].detail = detail
        if self.watch is not None:
            self.watch.update(belief)
        ends = np.cumsum(counts).tolist()
        return [records[end - count : end] for end, count in zip(ends, counts, strict=True)]


def _bytes(images: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Images as the bytes that they were: those of floating point are in [0, 1]."""
    if images.dtype != np.uint8:
        images = np.rint(np.clip(images, 0, 1) * 255)
    return images.astype(np.uint8)


class Watch:
    """A monitor that begins a new stream after a number of inputs, since it remembers each.

    The promise of the monitor holds within a stream: of m streams without drift, the probability
    that any fires is at most m times its false-alarm rate.

    Args:
        monitor: fitted on calibration data.
        score: name of the score that it watches.
        length: inputs of a stream.
    """

    def __init__(self, monitor: Monitor, score: str, length: int) -> None:
        self.monitor, self.score, self.length = monitor, score, length
        self.streams = 1
        self._inputs = self._alarms = 0  # of the streams that ended

    @classmethod
    def of(cls, bundle: Bundle, policy: Policy | None, settings: Settings) -> Watch | None:
        """A monitor against the calibration data of a bundle or a policy; None without either."""
        if bundle.calibration is not None:
            score, reference = bundle.score, bundle.calibration.score
        elif policy is not None:
            score, reference = policy.score, np.concatenate(policy.reference.groups)
        else:
            return None
        monitor = Monitor(_finite(reference), settings.monitor_false_alarm, score=score)
        return cls(monitor, score, settings.monitor_length)

    @property
    def inputs(self) -> int:
        """How many there were in all streams."""
        return self._inputs + self.monitor.state.count

    @property
    def alarms(self) -> int:
        """How many streams fired."""
        return self._alarms + self.monitor.state.fired

    def update(self, belief: Belief) -> None:
        """Count the inputs of a belief."""
        scores = _finite(score_of(belief, self.score).numpy(force=True))
        while len(scores):
            if self.monitor.state.count == self.length:
                self.follow(self)
                self.monitor.reset()
            room = self.length - self.monitor.state.count
            self.monitor.update(scores[:room])
            scores = scores[room:]

    def follow(self, before: Watch) -> None:
        """Count on from a monitor whose stream ends here; the next is a new one."""
        self._inputs, self._alarms = before.inputs, before.alarms
        self.streams = before.streams + 1


def _finite(scores: Any) -> Any:
    """Scores within the finite numbers: an infinite one is ranked first all the same."""
    return np.clip(np.asarray(scores, np.float64), -_LARGEST, _LARGEST)
