"""The service: the model, the batcher and the gauges, and how a question gets its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.errors import GemfiError, InputError, NoAnswerError
from gemfi.serve.about import without_folders
from gemfi.serve.batching import Batcher, QueueFullError, Served, StoppedError
from gemfi.serve.board import Board
from gemfi.serve.bodies import DisconnectedError, Receive
from gemfi.serve.connections import Gate
from gemfi.serve.gauges import Gauges
from gemfi.serve.images import place
from gemfi.serve.loaded import Loaded
from gemfi.serve.logs import log
from gemfi.serve.predictor import Predictor, Question, Reply
from gemfi.serve.problems import ProblemError, unusable
from gemfi.serve.settings import Settings

ModelSource = Callable[[], tuple[Bundle, Policy | None]]
"""Reads a model and its policy from where they are kept."""

Asked = tuple[Predictor, Question]
T = TypeVar("T")

_INLINE: Final = 1 << 16
"""Bodies of numbers up to this many bytes are read where they come; more would hold up others."""


class Service:
    """Everything that the routes share.

    Args:
        bundle: the model.
        settings: of the server.
        policy: that decides; None for none.
        source: where to read the model anew; None if it cannot be.
    """

    def __init__(
        self,
        bundle: Bundle,
        settings: Settings,
        policy: Policy | None,
        source: ModelSource | None = None,
    ) -> None:
        self.settings, self._source = settings, source
        self.gauges = Gauges(settings.max_queue)
        self.gate = Gate.of(settings)
        self.board: Board | None = None
        self.tell_workers: Callable[[], None] = lambda: None
        self._put(Loaded(bundle, policy, settings))
        self.batcher: Batcher[Asked, Reply] = Batcher(
            run_together,
            max_batch=settings.max_batch,
            max_wait=settings.max_wait,
            max_queue=settings.max_queue,
            on_batch=self.gauges.batches.observe,
        )
        self.is_stopping = False
        self.open = 0  # requests that are being read or answered
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="gemfi-decode")
        self._reloading = asyncio.Lock()

    def _put(self, loaded: Loaded) -> None:
        self.loaded = loaded
        info = loaded.bundle.info
        self.gauges.serve(loaded.bundle.name, info.method, decides=loaded.policy is not None)

    async def reload(self) -> Loaded:
        """Read the model anew and serve it; requests that were begun keep the old one.

        Raises:
            ProblemError: if it cannot be served. The old one goes on.
        """
        if self._source is None:
            raise ProblemError(409, "not_reloaded", "this server does not know its model's file")
        async with self._reloading:
            try:
                loaded = await asyncio.to_thread(self._read, self._source)
            except GemfiError as error:
                self.gauges.reloads.add("failed")
                log("not reloaded", level=logging.ERROR, reason=str(error))
                message = f"the old model is served on: {without_folders(str(error))}"
                raise ProblemError(409, "not_reloaded", message) from error
            loaded.follow(self.loaded)
            self._put(loaded)
            self.gauges.reloads.add("done")
            log("reloaded", model=loaded.bundle.name, method=loaded.bundle.info.method)
            return loaded

    def _read(self, source: ModelSource) -> Loaded:
        return Loaded(*source(), self.settings)

    def check_open(self) -> None:
        """Refuse a request that comes while the server stops, or when too many are open."""
        if self.is_stopping:
            raise stopping()
        if self.open >= self.settings.max_requests:
            raise full(self.batcher.retry_after())

    async def decode(self, size: int, heavy: bool, function: Callable[[], T]) -> T:
        """Read a body, in a thread of its own if that takes long.

        Args:
            size: its bytes.
            heavy: whether it holds images.
            function: that reads it.
        """
        if size <= _INLINE and not heavy:
            return function()
        try:
            async with asyncio.timeout(self.settings.answer_timeout):
                return await asyncio.get_running_loop().run_in_executor(self._decoder, function)
        except TimeoutError:
            raise self._slow() from None

    async def ask(
        self, loaded: Loaded, question: Question, receive: Receive, field: str
    ) -> Served[Reply]:
        """The reply to a question, unless the client goes or time is up.

        Args:
            loaded: the model that is asked.
            question: what is asked.
            receive: of the request, which tells when the client goes.
            field: what the request calls its inputs.
        """
        kind = (loaded.predictor, question.inputs.shape[1:])
        asked = (loaded.predictor, question)
        answer = asyncio.ensure_future(self.batcher.submit(asked, len(question.inputs), kind))
        try:
            return await self._first(answer, receive)
        except QueueFullError as error:
            raise full(error.retry_after) from None
        except StoppedError:
            raise stopping() from None
        except NoAnswerError as error:
            raise unusable("not_finite", str(error), place(field, error.row)) from None
        except InputError as error:
            raise unusable("refused", str(error), field) from None
        finally:
            answer.cancel()

    async def _first(
        self, answer: asyncio.Future[Served[Reply]], receive: Receive
    ) -> Served[Reply]:
        gone = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait(
                (answer, gone),
                timeout=self.settings.answer_timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if answer.done():
                return answer.result()
            if gone.done():
                raise DisconnectedError
            raise self._slow()
        finally:
            gone.cancel()

    def _slow(self) -> ProblemError:
        """504: it takes too long."""
        return ProblemError(
            504,
            "slow_answer",
            f"there was no answer within {self.settings.answer_timeout:g} s",
            headers={"Retry-After": str(self.batcher.retry_after())},
        )

    def tell(self, served: Served[Reply]) -> None:
        """Count a reply."""
        self.gauges.inputs.add(by=len(served.result.predictions))
        for verdict, count in served.result.verdicts.items():
            self.gauges.decisions.add(verdict, by=count)

    def metrics(self) -> str:
        """The text of /metrics."""
        watch = self.loaded.predictor.watch
        text = self.gauges.text(self.batcher.depth, None if watch is None else watch.state())
        return text if self.board is None else self.board.shown(text)

    async def stop(self) -> None:
        """Finish what was accepted and end the threads."""
        self.is_stopping = True
        await self.batcher.stop()
        self._decoder.shutdown(wait=True)


def run_together(asked: Sequence[Asked]) -> list[Reply]:
    """The replies to questions to one model."""
    return asked[0][0].run([question for _, question in asked])


async def _disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def full(retry_after: int) -> ProblemError:
    """429: too many wait."""
    return ProblemError(
        429,
        "busy",
        f"too many inputs wait; try again in {retry_after} s",
        headers={"Retry-After": str(retry_after)},
    )


def stopping() -> ProblemError:
    """503: the server is on its way out."""
    return ProblemError(503, "stopping", "the server is stopping", headers={"Connection": "close"})
