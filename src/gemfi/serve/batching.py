"""Micro-batches: requests that wait at the same time share one pass. Knows nothing of models."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

Payload = TypeVar("Payload")
Result = TypeVar("Result")

_MEMORY: Final = 0.8  # weight of the past in the mean of seconds an input


class QueueFullError(Exception):
    """There is no room for a request."""


class StoppedError(Exception):
    """Nothing is accepted any more."""


@dataclass(frozen=True)
class Served(Generic[Result]):
    """The result of one payload; `batch` is the number of inputs that ran with it."""

    result: Result
    batch: int


@dataclass(eq=False)
class _Waiting:
    payload: Any
    size: int
    kind: Hashable
    since: float
    answer: asyncio.Future[Any]


class Batcher(Generic[Payload, Result]):
    """Collects what waits, runs it together and gives each waiter its own result.

    While one batch runs, the next one gathers. If fewer inputs wait than the last batch had, it
    waits for others, `max_wait` milliseconds at most: a lone client never waits, a crowd is served
    in batches. An error in a batch of several is found by running each alone, so that nobody fails
    for a neighbour. A payload larger than `max_batch` is a batch of its own.

    Args:
        run: payloads of one kind -> their results, in order. Runs in the one worker thread.
        max_batch: inputs of a batch.
        max_wait: milliseconds.
        max_queue: inputs that may wait.
        on_batch: called with the number of inputs of each batch.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Payload]], Sequence[Result]],
        *,
        max_batch: int = 64,
        max_wait: float = 2.0,
        max_queue: int = 1024,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._run, self._on_batch = run, on_batch
        self.max_batch, self.max_wait, self.max_queue = max_batch, max_wait / 1000, max_queue
        self.depth = 0  # inputs that wait
        self._waiting: deque[_Waiting] = deque()
        self._last = 1  # inputs of the last batch
        self._seconds = 0.0  # an input, of late
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="gemfi-model")

    async def submit(
        self, payload: Payload, size: int = 1, kind: Hashable = None
    ) -> Served[Result]:
        """Wait for the result of a payload of `size` inputs; to stop waiting, cancel this.

        Payloads of different kinds are never in one batch.
        """
        if self._stopped:
            raise StoppedError
        if self.depth + size > self.max_queue:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        waiting = _Waiting(payload, size, kind, loop.time(), loop.create_future())
        self._waiting.append(waiting)
        self.depth += size
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._serve())
        self._changed.set()
        try:
            served: Served[Result] = await waiting.answer
            return served
        finally:
            if waiting in self._waiting:  # cancelled before its turn
                self._waiting.remove(waiting)
                self.depth -= size

    def retry_after(self) -> int:
        """Whole seconds that the waiting inputs will take, 1 to 60."""
        return min(60, max(1, math.ceil(self.depth * self._seconds)))

    async def stop(self) -> None:
        """Accept nothing more, finish what was accepted, end the thread."""
        self._stopped = True
        self._changed.set()
        if self._task is not None:
            await self._task
        self._worker.shutdown(wait=True)

    async def _serve(self) -> None:
        while self._waiting:
            # As many inputs as the last batch had, unless the first has waited enough.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._waiting[0].since + self.max_wait):
                    while self.depth < min(self.max_batch, self._last) and not self._stopped:
                        self._changed.clear()
                        await self._changed.wait()
            if batch := self._take():
                await self._run_batch(batch)

    def _take(self) -> list[_Waiting]:
        """The first that waits, and those of its kind behind it up to one that does not fit."""
        batch: list[_Waiting] = []
        size = 0
        for waiter in self._waiting:
            if batch and waiter.kind != batch[0].kind:
                continue
            if batch and size + waiter.size > self.max_batch:
                break
            batch.append(waiter)
            size += waiter.size
        for waiter in batch:
            self._waiting.remove(waiter)
        self.depth -= size
        return batch

    async def _run_batch(self, batch: list[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        size, start = sum(waiter.size for waiter in batch), loop.time()
        outcomes = await self._outcomes([waiter.payload for waiter in batch])
        self._last = size
        self._on_batch(size)
        spent = (loop.time() - start) / size
        self._seconds += (1 - _MEMORY if self._seconds else 1) * (spent - self._seconds)
        for waiter, outcome in zip(batch, outcomes, strict=True):
            if waiter.answer.done():  # nobody waits any more
                continue
            if isinstance(outcome, Exception):
                waiter.answer.set_exception(outcome)
            else:
                waiter.answer.set_result(Served(outcome, size))

    async def _outcomes(self, payloads: list[Payload]) -> Sequence[Any]:
        """A result or an exception for each payload."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._worker, self._run, payloads)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to whoever waits
            if len(payloads) == 1:
                return [error]
        return [(await self._outcomes([payload]))[0] for payload in payloads]
