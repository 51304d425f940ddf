"""The token, the headers of every answer, and the log."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from gemfi.bundle import Bundle
from gemfi.serve.logs import JsonLines
from support.served import Open

TOKEN = b"correct-horse-battery"
GOOD = {"Authorization": f"Bearer {TOKEN.decode()}"}
ROW = {"input": [1, 2, 3, 4]}


@pytest.fixture
def guarded(rows: Bundle, open_client: Open) -> TestClient:
    return open_client(rows, token=TOKEN)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong-wrong-wrong",
        "Bearer correct-horse-batter",
        "Bearer correct-horse-battery-and-more",
        "Basic correct-horse-battery",
        "correct-horse-battery",
        "Bearer \xe9\xff",
    ],
)
def test_without_the_token(guarded: TestClient, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for method, path in (
        ("POST", "/v1/predict"), ("GET", "/v1/model"), ("GET", "/metrics"), ("GET", "/v1/nothing"),
    ):  # fmt: skip
        answer = guarded.request(method, path, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "unauthorised"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN.decode() not in answer.text


def test_with_the_token(guarded: TestClient) -> None:
    assert guarded.post("/v1/predict", json=ROW, headers=GOOD).status_code == 200
    lower = {"Authorization": f"bearer {TOKEN.decode()}"}
    assert guarded.get("/v1/model", headers=lower).status_code == 200
    assert guarded.get("/metrics", headers=GOOD).status_code == 200


def test_what_needs_no_token(guarded: TestClient) -> None:
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/openapi.json").status_code == 200
    assert guarded.get("/").status_code in {200, 404}
    assert guarded.get("/static/nothing.js").status_code == 404


def test_headers_of_every_answer(guarded: TestClient) -> None:
    for path in ("/", "/static/x", "/healthz", "/v1/model", "/nothing", "/openapi.json"):
        headers = guarded.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert re.fullmatch("[0-9a-f]{16}", headers["x-request-id"])
        assert headers["cache-control"] == ("no-store" if path == "/v1/model" else "no-cache")
        assert "server" not in headers


def test_a_sane_id_is_kept_and_another_is_not(row_client: TestClient) -> None:
    sent = row_client.get("/healthz", headers={"X-Request-ID": "abc-1.2_3"})
    assert sent.headers["x-request-id"] == "abc-1.2_3"
    for bad in ("x" * 65, "a b", 'a"b', "a\tb"):
        answer = row_client.get("/healthz", headers={"X-Request-ID": bad})
        assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    formatter = JsonLines()
    texts = [formatter.format(each) for each in caplog.records if each.name == "gemfi.serve"]
    assert all("\n" not in text for text in texts)
    return [json.loads(text) for text in texts]


def test_a_line_a_request(row_client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gemfi.serve")
    row_client.post("/v1/predict", json={"inputs": [ROW["input"]] * 3})
    row_client.get("/no%0Athing", headers={"X-Request-ID": "mine"})
    row_client.request("BREW", "/healthz")
    first, second, third = lines(caplog)
    expected = {
        "level": "info", "event": "request", "method": "POST", "route": "/v1/predict",
        "status": 200, "inputs": 3, "batch": 3,
    }  # fmt: skip
    assert expected.items() <= first.items()
    assert first["ms"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
    assert {"route": "other", "status": 404, "id": "mine"}.items() <= second.items()
    assert third["method"] == "other"


def test_the_traceback_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    from gemfi.serve.logs import log  # noqa: PLC0415

    try:
        {}["x"]
    except KeyError:
        log("unexpected error", level=logging.ERROR, error=True, id="1", value=float("nan"))
    (line,) = lines(caplog)
    assert "KeyError: 'x'" in line["traceback"]
    assert line["value"] is None
