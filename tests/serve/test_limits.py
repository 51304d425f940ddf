"""How much a body may be, how many connections there may be, and how much is logged."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from gemfi.bundle import Bundle
from gemfi.errors import GemfiError, InputError
from gemfi.serve import logs
from gemfi.serve.app import create_app
from gemfi.serve.bodies import check_size
from gemfi.serve.connections import ConnectionLimit
from gemfi.serve.formats import InputFormat
from gemfi.serve.metrics import Metrics
from gemfi.serve.schemas import ProblemError
from gemfi.serve.settings import Settings
from support.served import Open, error, make_rows, post


@pytest.mark.parametrize(
    ("form", "one"),
    [
        (InputFormat("row", (4,), "float32"), [-1.7976931348623157e308] * 4),
        (
            InputFormat("array", (3, 20, 20), "float64"),
            [[[-1.2345678901234567e-300] * 20] * 20] * 3,
        ),
        (InputFormat("array", (2, 8, 8), "uint8"), [[[255] * 8] * 8] * 2),
    ],
)
def test_the_largest_request_fits_and_not_much_more(form: InputFormat, one: list[Any]) -> None:
    limit = form.max_bytes(256)
    body = json.dumps({"inputs": [one] * 256}).encode()
    assert len(body) <= limit + len('{"inputs": []}')
    assert limit <= max(2**16, 1.2 * len(body))
    check_size(body, form, 256)


def test_limits_of_bytes() -> None:
    assert InputFormat("image", (1, 8, 8), "uint8").max_bytes(256) == 2**24  # files are larger
    assert InputFormat("array", (3, 224, 224), "uint8").max_bytes(256) == 2**24
    assert InputFormat("array", (3, 2000, 2000), "float32").max_bytes(256) > 12_000_000 * 26


@pytest.mark.parametrize(("sign", "words"), [(b"[", "arrays"), (b",", "values")])
def test_more_than_any_request_has(sign: bytes, words: str) -> None:
    form = InputFormat("image", (1, 28, 28), "uint8")
    check_size(sign * 65_536, form, 256)
    with pytest.raises(ProblemError, match=f"300,000 {words}"):
        check_size(sign * 300_000, form, 256)


def test_the_limit_can_be_chosen(rows: Bundle, open_client: Open) -> None:
    client = open_client(rows, max_bytes=200_000)
    assert client.get("/v1/model").json()["limits"]["bytes"] == 200_000
    assert post(client, b'{"input": [1,2,3,4]}' + b" " * 100_000).status_code == 200


def test_too_much_detail(
    images: Bundle, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemfi.serve.app._MOST_SHOWN", 64)
    client = open_client(images)
    one = [[[0] * 8] * 8]
    for count, status in ((1, 200), (2, 413)):
        body = json.dumps({"inputs": [one] * count})
        assert post(client, body, "?detail=true").status_code == status
        assert post(client, body).status_code == 200


# -- connections ----------------------------------------------------------------------------------


def test_the_limit_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource  # noqa: PLC0415

    for files, limit in ((256, 176), (100_000, 1024), (resource.RLIM_INFINITY, 1024)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert ConnectionLimit.of(Settings()).limit == limit
    monkeypatch.setattr(resource, "getrlimit", lambda _: (80, 80))
    with pytest.raises(InputError, match=r"may open 80 files.*ulimit -n"):
        ConnectionLimit.of(Settings())


def test_a_crowd_is_told(row_client: TestClient) -> None:
    limit = row_client.app.state.service.connections  # type: ignore[attr-defined]
    limit.open = limit.limit
    assert row_client.get("/healthz").status_code == 200
    limit.open += 1
    answer = row_client.get("/healthz")
    error(answer, 503, "busy")
    assert (answer.headers["connection"], answer.headers["retry-after"]) == ("close", "1")
    assert not limit.is_full


# -- the log --------------------------------------------------------------------------------------


def test_a_log_that_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: now)
    text = io.StringIO()
    handler = logs.SteadyHandler(text)
    handler.setFormatter(logs.JsonLines())
    logger = logging.Logger("x")  # noqa: LOG001 - not one that others hear
    logger.addHandler(handler)
    for step in range(2500):  # a thousand a second
        now = step / 1000
        logger.warning("no room\nfor %s", step)
        logger.info("a request")
    logger.error("no room")
    handler.close()
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    assert sum(each["event"] == "a request" for each in lines) == 2500
    told = [(each["level"], each.get("repeated")) for each in lines if each["level"] != "info"]
    assert told == [
        ("warning", None), ("warning", 999), ("warning", 999), ("error", None), ("warning", 499),
    ]  # fmt: skip


def test_a_log_of_many_kinds_forgets_the_old(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    handler = logs.SteadyHandler(text)
    logger = logging.Logger("x")  # noqa: LOG001 - not one that others hear
    logger.addHandler(handler)
    for kind in range(1000):
        logger.warning(f"kind {kind}")  # noqa: G004
        logger.warning(f"kind {kind}")  # noqa: G004
    handler.close()
    assert len(handler._kinds) == 0
    assert text.getvalue().count("kind 7\n") == 2  # itself, and what was left out


# -- workers and reload ---------------------------------------------------------------------------


def test_metrics_of_workers(tmp_path: Any) -> None:
    for worker, inputs in ((10, 1), (2, 5)):
        metrics = Metrics(7)
        metrics.share(tmp_path, worker)
        metrics.name_model('y "z\\', "edl", decides=False)
        metrics.inputs.inc(inputs)
        text = metrics.text(0, None)
    assert re.findall("^(gemfi_inputs.*)$", text, re.MULTILINE) == [
        'gemfi_inputs_total{worker="2"} 5.0', 'gemfi_inputs_total{worker="10"} 1.0',
    ]  # fmt: skip
    assert text.count("# TYPE gemfi_inputs_total counter") == 1
    info = r'gemfi_info\{method="edl",model="y \\"z\\\\",version="[^"]*",worker="(\d+)"\} 1.0'
    assert re.findall(info, text) == ["2", "10"]


def test_only_who_has_the_token_reloads(rows: Bundle, open_client: Open) -> None:
    error(open_client(rows).post("/v1/reload"), 403, "forbidden")
    guarded = open_client(rows, token=b"12345678")
    error(guarded.post("/v1/reload"), 401, "unauthorised")
    answer = guarded.post("/v1/reload", headers={"Authorization": "Bearer 12345678"})
    error(answer, 409, "not_reloaded")  # this app knows no file


def test_the_description_follows_the_model(rows: Bundle, images: Bundle) -> None:
    """Another model may take other inputs; one that cannot be served changes nothing."""
    found: list[Bundle | None] = [images, None]

    def source() -> tuple[Bundle, Any]:
        bundle = found.pop(0)
        if bundle is None:
            raise GemfiError("it is broken: /" + "some/where/model.safetensors")
        return bundle, bundle.policy

    app = create_app(rows, source=source)
    client = TestClient(app, "http://localhost")
    service = app.state.service
    with client:
        body = json.dumps({"input": [[[0] * 8] * 8]})
        assert post(client, body).status_code == 422
        before = service.predictor
        asyncio.run(service.reload())
        assert service.predictor is not before
        assert post(client, body).json()["method"] == "edl"
        assert client.get("/v1/model").json()["name"] == "images"
        assert "images: labels" in client.get("/openapi.json").json()["info"]["description"]
        document = client.get("/openapi.json").json()["paths"]["/v1/predict"]["post"]
        assert "multipart/form-data" in document["requestBody"]["content"]
        with pytest.raises(ProblemError, match=r"served on: it is broken: model\.safetensors"):
            asyncio.run(service.reload())
        assert service.predictor.bundle is images
        text = client.get("/metrics").text
        assert 'gemfi_reloads_total{outcome="failed"} 1.0' in text
        assert 'gemfi_info{method="edl",model="images"' in text
        assert 'model="rows"' not in text


def test_models_of_one_shape_share_no_pass(rows: Bundle) -> None:
    """A request that was begun is answered by the model that it began with."""
    other = make_rows(1)

    async def scenario() -> None:
        import httpx2  # noqa: PLC0415

        app = create_app(rows, source=lambda: (other, other.policy))
        service = app.state.service
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:

            async def ask() -> Any:
                answer = await client.post("/v1/predict", json={"input": [1, 2, 3, 4]})
                return answer.json()["predictions"][0]["probs"]

            alone = await ask()
            tasks = [asyncio.ensure_future(ask()) for _ in range(20)]
            await service.reload()
            tasks += [asyncio.ensure_future(ask()) for _ in range(20)]
            answers = await asyncio.gather(*tasks)
            new = await ask()
        assert max(abs(a - b) for a, b in zip(alone, new, strict=True)) > 1e-3
        for each in answers:
            assert any(
                max(abs(a - b) for a, b in zip(each, one, strict=True)) < 1e-6
                for one in (alone, new)
            )
        assert answers[-1] != answers[0]
        await service.stop()

    asyncio.run(scenario())
