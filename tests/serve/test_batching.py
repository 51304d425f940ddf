from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Any

import pytest

from gemfi.serve.batching import Batcher, QueueFullError, Served, StoppedError

Payloads = Sequence[Any]


def doubled(payloads: Payloads) -> list[int]:
    return [2 * each for each in payloads]


class Recorder:
    """Doubles, remembers its batches, and can be held up."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.threads: set[int] = set()
        self.began = 0
        self.open = threading.Event()
        self.open.set()

    def __call__(self, payloads: Payloads) -> list[Any]:
        self.threads.add(threading.get_ident())
        self.began += 1
        assert self.open.wait(10)
        self.batches.append(list(payloads))
        if any(each == "bad" for each in payloads):
            raise ValueError("bad is refused")
        return doubled(payloads)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_everyone_gets_their_own_result() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_batch=16)
        served = await asyncio.gather(*(batcher.submit(each) for each in range(200)))
        assert [each.result for each in served] == [2 * each for each in range(200)]
        await batcher.stop()

    run(scenario)
    assert sorted([*chain(*record.batches)]) == list(range(200))
    assert all(len(batch) <= 16 for batch in record.batches)
    assert len(record.threads) == 1


def test_what_waits_together_runs_together_in_order() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_batch=8, max_wait=0)
        record.open.clear()
        first = asyncio.ensure_future(batcher.submit(100))
        await until(lambda: record.began == 1)
        rest = [asyncio.ensure_future(batcher.submit(each)) for each in range(20)]
        await until(lambda: batcher.depth == 20)
        record.open.set()
        assert (await first).batch == 1
        assert [(await each).batch for each in rest] == [8] * 8 + [8] * 8 + [4] * 4
        await batcher.stop()

    run(scenario)
    assert record.batches == [[100], [*range(8)], [*range(8, 16)], [*range(16, 20)]]


def test_sizes_fill_a_batch_and_a_large_payload_is_alone() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_batch=8, max_wait=0, max_queue=100)
        record.open.clear()
        sizes = [1, 3, 5, 4, 30, 1, 1]
        tasks = [asyncio.ensure_future(batcher.submit(i, s)) for i, s in enumerate(sizes)]
        await until(lambda: record.began == 1)
        record.open.set()
        served = [await each for each in tasks]
        assert [each.result for each in served] == [2 * i for i in range(len(sizes))]
        assert [each.batch for each in served] == [4, 4, 5, 4, 30, 2, 2]
        await batcher.stop()

    run(scenario)
    assert record.batches == [[0, 1], [2], [3], [4], [5, 6]]


def test_kinds_are_never_mixed() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_batch=8, max_wait=5)
        record.open.clear()
        tasks = [asyncio.ensure_future(batcher.submit(i, kind=i % 2)) for i in range(6)]
        await asyncio.sleep(0)
        record.open.set()
        assert [(await each).result for each in tasks] == [0, 2, 4, 6, 8, 10]
        await batcher.stop()

    run(scenario)
    assert all(len({each % 2 for each in batch}) == 1 for batch in record.batches)


def test_an_error_belongs_to_its_own_request() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_wait=0)
        record.open.clear()
        first = asyncio.ensure_future(batcher.submit(0))
        await until(lambda: record.began == 1)
        tasks = [asyncio.ensure_future(batcher.submit(each)) for each in (1, "bad", 3)]
        await until(lambda: batcher.depth == 3)
        record.open.set()
        await first
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], Served)
        assert isinstance(found[2], Served)
        assert (found[0].result, found[2].result) == (2, 6)
        assert isinstance(found[1], ValueError)
        assert str(found[1]) == "bad is refused"
        await batcher.stop()

    run(scenario)
    assert record.batches == [[0], [1, "bad", 3], [1], ["bad"], [3]]


def test_the_queue_is_bounded_by_inputs() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_batch=4, max_wait=0, max_queue=10)
        record.open.clear()
        first = asyncio.ensure_future(batcher.submit(0))
        await until(lambda: record.began == 1)
        tasks = [asyncio.ensure_future(batcher.submit(each, 5)) for each in (1, 2)]
        await until(lambda: batcher.depth == 10)
        with pytest.raises(QueueFullError):
            await batcher.submit(3)
        assert batcher.retry_after() >= 1
        record.open.set()
        await asyncio.gather(first, *tasks)
        assert (await batcher.submit(4)).result == 8
        assert batcher.depth == 0
        await batcher.stop()

    run(scenario)


def test_a_cancelled_request_leaves_the_queue() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_wait=0, max_queue=4)
        record.open.clear()
        first = asyncio.ensure_future(batcher.submit(0))
        await until(lambda: record.began == 1)
        gone = asyncio.ensure_future(batcher.submit(1, 3))
        kept = asyncio.ensure_future(batcher.submit(2))
        await until(lambda: batcher.depth == 4)
        gone.cancel()
        await until(lambda: batcher.depth == 1)
        record.open.set()
        await first
        assert (await kept).result == 4
        await batcher.stop()

    run(scenario)
    assert record.batches == [[0], [2]]


def test_who_goes_while_it_runs_harms_nobody() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_wait=0)
        record.open.clear()
        gone = asyncio.ensure_future(batcher.submit(1))
        await until(lambda: record.began == 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gone, 0.01)
        record.open.set()
        assert (await batcher.submit(2)).result == 4
        await batcher.stop()

    run(scenario)
    assert record.batches == [[1], [2]]


def test_all_gone_while_it_gathers() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_wait=20)
        await asyncio.gather(*(batcher.submit(each) for each in range(4)))
        task = asyncio.ensure_future(batcher.submit(5))  # waits for others now
        await until(lambda: batcher.depth == 1)
        task.cancel()
        await asyncio.sleep(0.03)
        assert (await batcher.submit(6)).result == 12
        await batcher.stop()

    run(scenario)
    assert [5] not in record.batches


def test_one_alone_does_not_wait_and_a_crowd_does() -> None:
    async def scenario() -> None:
        batcher = Batcher(doubled, max_wait=10_000)
        start = time.monotonic()
        for each in range(5):
            await batcher.submit(each)
        assert time.monotonic() - start < 5
        await asyncio.gather(*(batcher.submit(each) for each in range(3)))  # one, then two
        first = asyncio.ensure_future(batcher.submit(0))
        await asyncio.sleep(0.05)
        assert batcher.depth == 1  # waits for another
        second = await batcher.submit(1)
        assert ((await first).batch, second.batch) == (2, 2)
        await batcher.stop()

    run(scenario)


def test_nobody_waits_longer_than_the_limit() -> None:
    async def scenario() -> None:
        batcher = Batcher(doubled, max_wait=30)
        await asyncio.gather(*(batcher.submit(each) for each in range(9)))
        assert (await batcher.submit(1)).batch == 1
        await batcher.stop()

    run(scenario)


def test_stop_finishes_what_was_accepted() -> None:
    record = Recorder()

    async def scenario() -> None:
        batcher = Batcher(record, max_batch=2, max_wait=1000)
        record.open.clear()
        tasks = [asyncio.ensure_future(batcher.submit(each)) for each in range(7)]
        await asyncio.sleep(0.01)
        stop = asyncio.ensure_future(batcher.stop())
        await asyncio.sleep(0)
        with pytest.raises(StoppedError):
            await batcher.submit(8)
        record.open.set()
        assert [(await each).result for each in tasks] == [2 * each for each in range(7)]
        await stop

    run(scenario)
    assert [*chain(*record.batches)] == [*range(7)]


def test_batches_are_told() -> None:
    sizes: list[int] = []

    async def scenario() -> None:
        batcher = Batcher(doubled, on_batch=sizes.append)
        await asyncio.gather(*(batcher.submit(each, 2) for each in range(9)))
        await batcher.stop()

    run(scenario)
    assert sum(sizes) == 18
