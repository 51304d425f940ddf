"""Requests at the same time: full queues, timeouts, clients that go, the end, bad neighbours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import numpy as np
import pytest
from starlette.testclient import TestClient

from gemfi.bundle import Bundle
from gemfi.serve.app import create_app
from gemfi.serve.service import Question, Reply, Service, run_together
from gemfi.serve.settings import Settings
from support.served import JSON, Open, error, post


def test_slow_bodies(rows: Bundle) -> None:
    async def drip() -> AsyncIterator[bytes]:
        yield b'{"input": '
        await asyncio.sleep(5)
        yield b"[1,2,3,4]}"

    async def scenario() -> None:
        app = create_app(rows, Settings(body_timeout=0.05))
        async with client_of(app) as client:
            answer = await client.post("/v1/predict", content=drip(), headers=JSON)
            assert "0.05 s" in error(answer, 408, "slow_body")[0]
            await app.state.service.stop()

    asyncio.run(scenario())


def client_of(app: Any) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


class Held:
    """Holds the model up until it is let go."""

    def __init__(self, service: Service) -> None:
        self.open = threading.Event()
        service.batcher._run = self

    def __call__(self, questions: Sequence[Question]) -> list[Reply]:
        assert self.open.wait(10)
        return run_together(questions)


def test_slow_answers(rows: Bundle) -> None:
    async def scenario() -> None:
        app = create_app(rows, Settings(answer_timeout=0.05))
        held = Held(app.state.service)
        async with client_of(app) as client:
            first, second = await asyncio.gather(
                *(client.post("/v1/predict", json={"input": [1, 2, 3, 4]}) for _ in range(2))
            )
            for answer in (first, second):
                assert "0.05 s" in error(answer, 504, "slow_answer")[0]
                assert int(answer.headers["retry-after"]) >= 1
            assert app.state.service.batcher.depth == 0  # the second left the queue
            held.open.set()
            await app.state.service.stop()

    asyncio.run(scenario())


def test_a_full_queue(rows: Bundle) -> None:
    async def scenario() -> None:
        app = create_app(rows, Settings(max_queue=4, max_inputs=4))
        service = app.state.service
        held = Held(service)
        body = {"inputs": [[0, 0, 0, 0]] * 4}
        async with client_of(app) as client:
            running = asyncio.ensure_future(client.post("/v1/predict", json=body))
            while service.batcher.depth or not service.open:
                await asyncio.sleep(0.001)
            waiting = asyncio.ensure_future(client.post("/v1/predict", json=body))
            while not service.batcher.depth:
                await asyncio.sleep(0.001)
            assert "gemfi_queue_inputs 4.0\n" in (await client.get("/metrics")).text
            answer = await client.post("/v1/predict", json={"input": [0, 0, 0, 0]})
            error(answer, 429, "busy")
            assert int(answer.headers["retry-after"]) >= 1
            held.open.set()
            assert [(await each).status_code for each in (running, waiting)] == [200, 200]
            await service.stop()

    asyncio.run(scenario())


def test_too_many_open_requests(rows: Bundle) -> None:
    async def scenario() -> None:
        app = create_app(rows, Settings(max_requests=1))
        service = app.state.service
        held = Held(service)
        async with client_of(app) as client:
            first = asyncio.ensure_future(client.post("/v1/predict", json={"input": [0, 0, 0, 0]}))
            while not service.open:
                await asyncio.sleep(0.001)
            error(await client.post("/v1/predict", json={"input": [0, 0, 0, 0]}), 429, "busy")
            held.open.set()
            assert (await first).status_code == 200
            assert service.open == 0
            await service.stop()

    asyncio.run(scenario())


def test_stopping(row_client: TestClient) -> None:
    service: Service = row_client.app.state.service  # type: ignore[attr-defined]
    service.is_stopping = True
    answer = post(row_client, '{"input": [1,2,3,4]}')
    error(answer, 503, "stopping")
    assert answer.headers["connection"] == "close"
    health = row_client.get("/healthz")
    assert (health.status_code, health.json()) == (503, {"status": "stopping"})


def test_a_bad_neighbour_harms_nobody(rows: Bundle) -> None:
    """A row that overflows inside the network, in the middle of others that are in its batch."""

    async def scenario() -> None:
        app = create_app(rows, Settings())
        service = app.state.service
        held = Held(service)
        good, bad = {"input": [0.5, 1, 2, 3]}, {"input": [1e38, -1e38, 1e38, -1e38]}
        async with client_of(app) as client:
            first = asyncio.ensure_future(client.post("/v1/predict", json=good))
            while service.batcher.depth or not service.open:
                await asyncio.sleep(0.001)
            rest = [
                asyncio.ensure_future(client.post("/v1/predict", json=each))
                for each in (good, bad, good)
            ]
            while service.batcher.depth < 3:
                await asyncio.sleep(0.001)
            held.open.set()
            answers = [await each for each in (first, *rest)]
            assert [each.status_code for each in answers] == [200, 200, 422, 200]
            told = [each.json()["predictions"][0]["probs"] for each in answers if each.is_success]
            assert np.allclose(told[0], told, rtol=0, atol=1e-6)
            assert "gemfi_monitor_inputs 3.0\n" in (await client.get("/metrics")).text
            await service.stop()

    asyncio.run(scenario())


def test_an_unexpected_error_tells_nothing(
    rows: Bundle, open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    client = open_client(rows)
    service: Service = client.app.state.service  # type: ignore[attr-defined]

    def broken(_: object) -> list[Reply]:
        raise RuntimeError("secret in /" + "root/x")

    service.batcher._run = broken
    answer = post(client, '{"input": [1,2,3,4]}')
    assert error(answer, 500, "internal") == ("the server failed; its log knows why", None)
    assert "secret" not in answer.text
    assert "secret" in caplog.text
    service.batcher._run = run_together
    assert post(client, '{"input": [1,2,3,4]}').status_code == 200


def test_nobody_is_answered_who_has_gone(rows: Bundle) -> None:
    """The client's end of the connection closes while its request waits."""

    async def scenario() -> None:
        app = create_app(rows, Settings())
        service = app.state.service
        held = Held(service)
        body = b'{"input": [1, 2, 3, 4]}'
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        gone, sent = asyncio.Event(), []

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/v1/predict", "raw_path": b"/v1/predict",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
            "http_version": "1.1", "scheme": "http", "root_path": "", "client": None,
            "server": ("test", 80), "asgi": {"version": "3.0"},
        }  # fmt: skip
        async with client_of(app) as client:
            first = asyncio.ensure_future(client.post("/v1/predict", json={"input": [0, 0, 0, 0]}))
            while service.batcher.depth or not service.open:
                await asyncio.sleep(0.001)
            second = asyncio.ensure_future(app(scope, receive, send))
            while not service.batcher.depth:
                await asyncio.sleep(0.001)
            gone.set()
            await second
            assert service.batcher.depth == 0
            assert sent == []
            held.open.set()
            assert (await first).status_code == 200
            assert 'code="499"' in (await client.get("/metrics")).text
            await service.stop()

    asyncio.run(scenario())


def test_slow_decoding(images: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that takes too long to read, and one behind it that is not begun."""
    held = threading.Event()

    def slow(*_: object) -> Any:
        assert held.wait(10)

    monkeypatch.setattr("gemfi.serve.bodies.decode_images", slow)

    async def scenario() -> None:
        app = create_app(images, Settings(answer_timeout=0.05))
        async with client_of(app) as client:
            body = {"image": "aaaa"}
            requests = [client.post("/v1/predict", json=body) for _ in range(2)]
            for answer in await asyncio.gather(*requests):
                error(answer, 504, "slow_answer")
            held.set()
            await app.state.service.stop()

    asyncio.run(scenario())
