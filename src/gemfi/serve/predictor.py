"""The model as the server asks it: one pass for several requests, a decision, and the monitor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gemfi.belief import Belief
from gemfi.bundle import Bundle
from gemfi.decisions import Decisions, Policy, Readings, read_belief
from gemfi.errors import InputError
from gemfi.scores import MAIN, available
from gemfi.serve.answers import Plain, details, predictions
from gemfi.serve.formats import InputFormat
from gemfi.serve.settings import Settings
from gemfi.serve.watch import Watch


@dataclass(frozen=True, eq=False)
class Question:
    """What one request asks.

    Attributes:
        inputs: (N, ...) as the model takes them.
        level: false-alarm rate in place of the policy's.
        detail: whether the heads, the gate and the input are told as well.
    """

    inputs: npt.NDArray[Any]
    level: float | None = None
    detail: bool = False


@dataclass(frozen=True, eq=False)
class Reply:
    """What one request is told.

    Attributes:
        predictions: one for each input.
        verdicts: how many inputs have each verdict.
    """

    predictions: list[Plain]
    verdicts: dict[str, int]


class Predictor:
    """Asks the model of a bundle. One thread at a time.

    Args:
        bundle: the model with what it was calibrated on.
        policy: that decides; None for none.
        settings: how many inputs a pass may have, and how the monitor runs.
    """

    def __init__(self, bundle: Bundle, policy: Policy | None, settings: Settings) -> None:
        self.model, self.policy = bundle.model, policy
        self.class_names = tuple(bundle.info.class_names)
        self.form = InputFormat.of(bundle, settings)
        self._max_batch = settings.max_batch
        self.watch = Watch.of(bundle, policy, settings)
        self.scores = self._told(tuple(bundle.references))

    def _told(self, referenced: tuple[str, ...]) -> tuple[str, ...]:
        """The scores that are told, found by a trial."""
        belief = self._tried()
        has = {*available(belief), *belief.extra}
        used = () if self.policy is None else (self.policy.score, self.policy.doubt)
        watched = () if self.watch is None else (self.watch.score,)
        wanted = dict.fromkeys((*MAIN, *used, *watched, *referenced))
        found = tuple(name for name in wanted if name in has)
        predictions(belief, self.class_names, found)  # whose first time takes long
        return found

    def _tried(self) -> Belief:
        """The belief on a trial, which is decided on, too: what cannot be fails at the start."""
        try:
            belief = self.model.predict(self._trial())
        except RuntimeError as error:  # by torch, of sizes or numbers
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"the model cannot answer an input of the shape {self.form.shape} that it asks "
                f"for: {reason}"
            ) from error
        if self.policy is not None:
            self.policy(belief)
        return belief

    def _trial(self) -> torch.Tensor:
        """One input of zeros, or a text of the greatest length."""
        dtype = getattr(torch, self.form.dtype)
        pad = None if self.form.tokens is None else self.form.tokens.pad
        return torch.full((1, *self.form.shape), 1 if pad == 0 else 0, dtype=dtype)

    def run(self, questions: Sequence[Question]) -> list[Reply]:
        """The replies to questions whose inputs have one shape, by one pass."""
        inputs = (
            questions[0].inputs
            if len(questions) == 1
            else np.concatenate([each.inputs for each in questions])
        )
        belief = self.model.predict(torch.from_numpy(inputs), self._max_batch)
        policy = self.policy
        readings = None if policy is None else read_belief(belief, policy.score, policy.doubt)
        decisions = None
        if policy is not None and readings is not None:
            decisions = policy.decide(readings)
            decisions = _at_own_levels(policy, readings, decisions, questions)
        doubt = None if readings is None else readings.doubt
        told = predictions(belief, self.class_names, self.scores, decisions, doubt)
        self._add_details(told, belief, inputs, questions)
        if self.watch is not None:
            self.watch.update(belief)
        return _split(questions, told)

    def _add_details(
        self,
        told: list[Plain],
        belief: Belief,
        inputs: npt.NDArray[Any],
        questions: Sequence[Question],
    ) -> None:
        asked = np.repeat(
            [each.detail for each in questions], [len(each.inputs) for each in questions]
        )
        rows = np.flatnonzero(asked)
        if not len(rows):
            return
        seen = _bytes(inputs[rows]) if self.form.kind == "image" else None
        for row, detail in zip(rows, details(belief[rows.tolist()], seen), strict=True):
            told[row]["detail"] = detail


def _at_own_levels(
    policy: Policy, readings: Readings, decisions: Decisions, questions: Sequence[Question]
) -> Decisions:
    """The decisions with those replaced that were asked for at another false-alarm rate."""
    verdict, start = decisions.verdict.copy(), 0
    for each in questions:
        rows = np.arange(start, start + len(each.inputs))
        if each.level is not None:
            verdict[rows] = replace(policy, level=each.level).decide(readings[rows]).verdict
        start += len(rows)
    return replace(decisions, verdict=verdict)


def _bytes(images: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Images as the bytes that they were: those of floating point are in [0, 1]."""
    if images.dtype == np.uint8:
        return images
    found: npt.NDArray[np.uint8] = np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)
    return found


def _split(questions: Sequence[Question], told: list[Plain]) -> list[Reply]:
    replies, start = [], 0
    for each in questions:
        own = told[start : start + len(each.inputs)]
        verdicts: dict[str, int] = {}
        for prediction in own:
            if prediction["decision"] is not None:
                name = prediction["decision"]
                verdicts[name] = verdicts.get(name, 0) + 1
        replies.append(Reply(own, verdicts))
        start += len(own)
    return replies
