"""The model as the server asks it, and the service: how a question gets its answer."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from gemfi.answers import Answers, Prediction, details
from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.errors import GemfiError, InputError, NoAnswerError
from gemfi.scores import MAIN, available
from gemfi.serve.batching import Batcher, QueueFullError, Served, StoppedError
from gemfi.serve.bodies import place
from gemfi.serve.connections import ConnectionLimit
from gemfi.serve.formats import InputFormat
from gemfi.serve.logs import log
from gemfi.serve.metrics import Metrics, Watch
from gemfi.serve.schemas import Limits, ProblemError, about_model, without_folders
from gemfi.serve.settings import Settings

ModelSource = Callable[[], tuple[Bundle, Policy | None]]
"""Reads a model and its policy from where they are kept."""

Reply = list[Prediction]
T = TypeVar("T")

_INLINE: Final = 1 << 16
"""Bodies of numbers up to this many bytes are read where they come; more would hold up others."""


@dataclass(frozen=True, eq=False)
class Question:
    """What one request asks of a model, the same from first to last."""

    predictor: Predictor
    inputs: npt.NDArray[Any]  # (N, ...) as the model takes them
    level: float | None = None  # false-alarm rate in place of the policy's
    detail: bool = False


class Predictor:
    """A model that is served, and everything that was made from it. One thread at a time."""

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
            images = inputs[rows] if self.form.kind == "image" else None
            if images is not None and images.dtype != np.uint8:  # in [0, 1]
                images = np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8)
            for row, detail in zip(rows, details(belief[rows.tolist()], images), strict=True):
                records[row].detail = detail
        if self.watch is not None:
            self.watch.update(belief)
        ends = np.cumsum(counts).tolist()
        return [records[end - count : end] for end, count in zip(ends, counts, strict=True)]


class Service:
    """Everything that the routes share; arguments as of `create_app`."""

    def __init__(
        self,
        bundle: Bundle,
        settings: Settings,
        policy: Policy | None,
        source: ModelSource | None = None,
    ) -> None:
        self.settings, self._source = settings, source
        self.metrics = Metrics(settings.max_queue)
        self.connections = ConnectionLimit.of(settings)
        self.tell_workers: Callable[[], None] = lambda: None
        self._put(Predictor(bundle, policy, settings))
        self.batcher: Batcher[Question, Reply] = Batcher(
            run_together,
            max_batch=settings.max_batch,
            max_wait=settings.max_wait,
            max_queue=settings.max_queue,
            on_batch=self.metrics.batches.observe,
        )
        self.is_stopping = False
        self.open = 0  # requests that are being read or answered
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="gemfi-decode")
        self._reloading = asyncio.Lock()

    def _put(self, predictor: Predictor) -> None:
        self.predictor, bundle = predictor, predictor.bundle
        decides = predictor.policy is not None
        self.metrics.name_model(bundle.name, bundle.info.method, decides=decides)

    async def reload(self) -> Bundle:
        """Read the model anew and serve it; requests that were begun keep the old one.

        If it cannot be served, that is a ProblemError, and the old one goes on.
        """
        source = self._source
        if source is None:
            raise ProblemError(409, "not_reloaded", "this server does not know its model's file")
        async with self._reloading:
            try:
                new = await asyncio.to_thread(lambda: Predictor(*source(), self.settings))
            except GemfiError as error:
                self.metrics.reloads.labels("failed").inc()
                log("not reloaded", level=logging.ERROR, reason=str(error))
                message = f"the old model is served on: {without_folders(str(error))}"
                raise ProblemError(409, "not_reloaded", message) from error
            if new.watch is not None and self.predictor.watch is not None:
                new.watch.follow(self.predictor.watch)
            self._put(new)
            self.metrics.reloads.labels("done").inc()
            log("reloaded", model=new.bundle.name, method=new.bundle.info.method)
            return new.bundle

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Count a request, or refuse it while the server stops or when too many are open."""
        if self.is_stopping:
            raise _stopping()
        if self.open >= self.settings.max_requests:
            raise self._later(429, "busy", "too many requests are open; try again later")
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def decode(self, size: int, function: Callable[[], T], *, heavy: bool) -> T:
        """Read a body of `size` bytes, in a thread if that takes long: if it may hold images."""
        if size <= _INLINE and not heavy:
            return function()
        try:
            async with asyncio.timeout(self.settings.answer_timeout):
                return await asyncio.get_running_loop().run_in_executor(self._decoder, function)
        except TimeoutError:
            raise self._slow() from None

    async def ask(self, question: Question, receive: Receive, field: str) -> Served[Reply]:
        """The reply to a question, unless the client goes, which `receive` tells, or time is up.

        `field` is what the request calls its inputs.
        """
        kind = (question.predictor, question.inputs.shape[1:])
        count = len(question.inputs)
        answer = asyncio.ensure_future(self.batcher.submit(question, count, kind))
        gone = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait(
                (answer, gone),
                timeout=self.settings.answer_timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not answer.done():
                raise ClientDisconnect if gone.done() else self._slow()
            return self._counted(answer.result())
        except QueueFullError:
            raise self._later(429, "busy", "too many inputs wait; try again later") from None
        except StoppedError:
            raise _stopping() from None
        except NoAnswerError as error:
            where = place(field, error.row)
            raise ProblemError(422, "not_finite", str(error), where) from None
        except InputError as error:
            raise ProblemError(422, "refused", str(error), field) from None
        finally:
            answer.cancel()
            gone.cancel()

    def _counted(self, served: Served[Reply]) -> Served[Reply]:
        self.metrics.inputs.inc(len(served.result))
        for verdict, count in Counter(row.decision for row in served.result).items():
            if verdict is not None:
                self.metrics.decisions.labels(verdict).inc(count)
        return served

    def metrics_text(self) -> str:
        """The text of /metrics."""
        return self.metrics.text(self.batcher.depth, self.predictor.watch)

    async def stop(self) -> None:
        """Finish what was accepted and end the threads."""
        self.is_stopping = True
        await self.batcher.stop()
        self._decoder.shutdown(wait=True)

    def _slow(self) -> ProblemError:
        message = f"there was no answer within {self.settings.answer_timeout:g} s"
        return self._later(504, "slow_answer", message)

    def _later(self, status: int, code: str, message: str) -> ProblemError:
        headers = {"Retry-After": str(self.batcher.retry_after())}
        return ProblemError(status, code, message, headers=headers)


def run_together(questions: Sequence[Question]) -> list[Reply]:
    """The replies to questions to one model."""
    return questions[0].predictor.run(questions)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _stopping() -> ProblemError:
    headers = {"Connection": "close"}
    return ProblemError(503, "stopping", "the server is stopping", headers=headers)
