"""Every error, by its code, its message and its place; and that nothing else is told."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from gemfi.bundle import Bundle
from support.served import JSON, Open, error, png, post


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{", "not UTF-8"),
        ('{"input": [1,2,3,4]}'.encode("utf-16"), "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"[]", "must be an object"),
        (b"7", "must be an object"),
        (b"null", "must be an object"),
        (b"{}", "exactly one of"),
        (b'{"inputs": [[1,2,3,4]], "input": [1,2,3,4]}', "exactly one of"),
        (b'{"rows": [[1,2,3,4]]}', "exactly one of"),
        (b'{"input": [1,2,3,4], "extra": 1}', "exactly one of"),
        (b"[" * 60_000, "nested too deeply"),
        (b'{"input": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", "nested too deeply"),
        (b'{"input": [' + b"9" * 5_000 + b",2,3,4]}", "too many digits"),
    ],
)
def test_malformed(row_client: TestClient, body: bytes, words: str) -> None:
    message, where = error(post(row_client, body), 400, "malformed")
    assert words in message
    assert where is None


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ('{"inputs": []}', "wrong_shape", "inputs"),
        ('{"inputs": 3}', "wrong_shape", "inputs"),
        ('{"inputs": {"a": 1}}', "wrong_shape", "inputs"),
        ('{"inputs": [1,2,3,4]}', "wrong_shape", "inputs[0]"),
        ('{"inputs": [[1,2,3,4],[1,2,3]]}', "wrong_shape", "inputs[1]"),
        ('{"inputs": [[1,2,3],[1,2,3]]}', "wrong_shape", "inputs[0]"),
        ('{"inputs": [[1,2,3,4],[1,2,3,[4]]]}', "wrong_shape", "inputs[1][3]"),
        ('{"inputs": [[[1],[2],[3],[4]]]}', "wrong_shape", "inputs[0][0]"),
        ('{"input": 5}', "wrong_shape", "input"),
        ('{"input": []}', "wrong_shape", "input"),
        ('{"input": [1,2,3,4,5]}', "wrong_shape", "input"),
        ('{"input": ' + "[" * 500 + "]" * 500 + "}", "wrong_shape", "input[0]"),
        ('{"input": [1,2,3,"4"]}', "not_a_number", "input[3]"),
        ('{"input": ["1","2","3","4"]}', "not_a_number", "input[0]"),
        ('{"input": [1,2,true,4]}', "not_a_number", "input[2]"),
        ('{"inputs": [[1,2,3,4],[1,false,3,4]]}', "not_a_number", "inputs[1][1]"),
        ('{"input": [1,2,3,null]}', "not_a_number", "input[3]"),
        ('{"input": [1,2,3,{}]}', "not_a_number", "input[3]"),
        ('{"input": [1,2,3,NaN]}', "not_finite", None),
        ('{"input": [1,2,3,Infinity]}', "not_finite", None),
        ('{"input": [1,2,3,-Infinity]}', "not_finite", None),
        ('{"input": [1,2,3,1e999]}', "not_finite", "input[3]"),
        ('{"inputs": [[1,2,3,4],[1,-1e39,3,4]]}', "not_finite", "inputs[1][1]"),
        ('{"input": [1,2,3,1' + "0" * 400 + "]}", "not_finite", "input[3]"),
        ('{"input": [1.5,2,3,1' + "0" * 400 + "]}", "not_finite", "input[3]"),
        ('{"image": "aaaa"}', "wrong_kind", "image"),
    ],
)
def test_rows_that_cannot_be_answered(
    row_client: TestClient, text: str, code: str, place: str | None
) -> None:
    _, where = error(post(row_client, text), 422, code)
    assert where == place


def test_an_input_without_a_finite_answer(row_client: TestClient) -> None:
    _, where = error(post(row_client, '{"inputs": [[1e38,-1e38,1e38,-1e38]]}'), 422, "not_finite")
    assert where == "inputs[0]"


@pytest.mark.parametrize(
    ("body", "place"), [('{"inputs": [[1,2,3,4]]}', "inputs[0]"), ('{"input": [1,2,3,4]}', "input")]
)
def test_a_belief_that_is_not_finite(
    rows: Bundle, open_client: Open, monkeypatch: pytest.MonkeyPatch, body: str, place: str
) -> None:
    client = open_client(rows)
    belief = rows.model.predict(torch.zeros(1, 4))
    broken = replace(belief, log_weight=torch.full_like(belief.log_weight, torch.nan))
    monkeypatch.setattr(rows.model.head, "forward", lambda _: broken)
    assert error(post(client, body), 422, "not_finite")[1] == place


def bytes_body(value: object) -> str:
    x: list[Any] = np.zeros((1, 8, 8), int).tolist()
    x[0][2][5] = value
    return json.dumps({"input": x})


@pytest.mark.parametrize("value", [256, -1, 0.5, 1e300, 10**30])
def test_bytes_are_whole_numbers_to_255(image_client: TestClient, value: float) -> None:
    message, where = error(post(image_client, bytes_body(value)), 422, "out_of_range")
    assert where == "input[0][2][5]"
    assert "whole numbers from 0 to 255" in message


@pytest.mark.parametrize(
    ("value", "code", "place"),
    [
        ({"image": "****"}, "unreadable_image", "image"),
        ({"image": "aGVsbG8gd29ybGQ="}, "unreadable_image", "image"),
        ({"image": ""}, "unreadable_image", "image"),
        ({"image": "é"}, "unreadable_image", "image"),
        ({"image": 3}, "unreadable_image", "image"),
        ({"images": "aaaa"}, "wrong_shape", "images"),
        ({"images": []}, "wrong_shape", "images"),
        ({"images": [None]}, "unreadable_image", "images[0]"),
    ],
)
def test_images_that_cannot_be_read(
    image_client: TestClient, value: Any, code: str, place: str
) -> None:
    message, where = error(post(image_client, json.dumps(value)), 422, code)
    assert where == place
    assert "object at 0x" not in message


def test_the_second_image_is_blamed(image_client: TestClient) -> None:
    good = png(np.zeros((8, 8), np.uint8))
    texts = [base64.b64encode(each).decode() for each in (good, good[:-30], good)]
    _, where = error(post(image_client, json.dumps({"images": texts})), 422, "unreadable_image")
    assert where == "images[1]"
    answer = image_client.post("/v1/predict", files=[("file", good), ("file", good[:40])])
    assert error(answer, 422, "unreadable_image")[1] == "file[1]"


def header_only(width: int, height: int) -> bytes:
    """A PNG whose header claims a size, with hardly any data."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(5000, 5000), (12_000, 12_000), (60_000, 60_000)])
def test_bombs(image_client: TestClient, size: tuple[int, int]) -> None:
    body = json.dumps({"image": base64.b64encode(header_only(*size)).decode()})
    message, where = error(post(image_client, body), 413, "too_large")
    assert "16,000,000" in message
    assert where == "image"


def test_pixels_of_all_images_together(images: Bundle, open_client: Open) -> None:
    client = open_client(images, max_pixels=100)
    good = base64.b64encode(png(np.zeros((10, 10), np.uint8))).decode()
    assert post(client, json.dumps({"images": [good] * 4})).status_code == 200
    message, where = error(post(client, json.dumps({"images": [good] * 5})), 413, "too_large")
    assert "together" in message
    assert where == "images"


def test_too_many_inputs(rows: Bundle, images: Bundle, open_client: Open) -> None:
    client = open_client(rows, max_inputs=2)
    body = {"inputs": [[0, 0, 0, 0]] * 3}
    assert error(post(client, json.dumps(body)), 413, "too_large")[1] == "inputs"
    client = open_client(images, max_inputs=2)
    data = png(np.zeros((8, 8), np.uint8))
    body = {"images": [base64.b64encode(data).decode()] * 3}
    assert error(post(client, json.dumps(body)), 413, "too_large")[1] == "images"
    answer = client.post("/v1/predict", files=[("file", data)] * 3)
    assert error(answer, 413, "too_large")[1] == "file"


def chunks(size: int) -> Iterator[bytes]:
    for start in range(0, size, 1000):
        yield b" " * min(1000, size - start)


def test_a_body_that_is_too_large(rows: Bundle, open_client: Open) -> None:
    client = open_client(rows, max_bytes=10_000)
    good = b'{"input": [1,2,3,4]}'
    assert post(client, good + b" " * (10_000 - len(good))).status_code == 200
    for body in (good + b" " * 10_000, chunks(10_001), chunks(70_000), chunks(1_000_000)):
        answer = client.post("/v1/predict", content=body, headers=JSON)
        assert "10,000 bytes" in error(answer, 413, "too_large")[0]
    answer = client.post("/v1/predict", files={"file": b"x" * 20_000})
    error(answer, 413, "too_large")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": ""},
        {**JSON, "Content-Encoding": "gzip"},
    ],
)
def test_kinds_of_body_that_are_not_read(row_client: TestClient, headers: dict[str, str]) -> None:
    answer = row_client.post("/v1/predict", content=b'{"input": [1,2,3,4]}', headers=headers)
    error(answer, 415, "unsupported_kind")


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("multipart/form-data", b"--b\r\n", "with a boundary"),
        ("multipart/form-data; boundary=" + "b" * 300, b"--b\r\n", "cannot be read"),
        ("multipart/form-data; boundary=b", b"", "ends before"),
        ("multipart/form-data; boundary=b", b"garbage", "cannot be read"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nabc',
            "ends before",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="picture"\r\n\r\nabc\r\n--b--\r\n',
            "parts named 'file'",
        ),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nabc\r\n--b--\r\n", "parts named 'file'"),
    ],
)
def test_malformed_forms(image_client: TestClient, kind: str, body: bytes, words: str) -> None:
    answer = image_client.post("/v1/predict", content=body, headers={"Content-Type": kind})
    assert words in error(answer, 400, "malformed")[0]


def test_a_form_is_not_read_beyond_the_images_allowed(images: Bundle, open_client: Open) -> None:
    """Parts that are there and a part that cannot be: nobody came so far."""
    part = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = open_client(images, max_inputs=2).post(
        "/v1/predict", content=4 * part + b"--b garbage", headers=kind
    )
    assert error(answer, 413, "too_large") == ("more than the 2 images allowed", "file")


def test_a_body_that_ends_in_two_places(row_client: TestClient) -> None:
    """A proxy in front may have believed the other header."""
    headers = {**JSON, "Content-Length": "3", "Transfer-Encoding": "chunked"}
    answer = row_client.post("/v1/predict", content=b"{}", headers=headers)
    assert "not both" in error(answer, 400, "malformed")[0]
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("?detail=yes", "detail"),
        ("?detail=", "detail"),
        ("?false_alarm=", "false_alarm"),
        ("?false_alarm=nan", "false_alarm"),
        ("?false_alarm=0", "false_alarm"),
        ("?false_alarm=1", "false_alarm"),
        ("?false_alarm=-0.1", "false_alarm"),
        ("?false_alarm=1_0", "false_alarm"),
        ("?false_alarm=1e-9", "false_alarm"),
        ("?false_alarm=1e999", "false_alarm"),
        ("?false-alarm=0.1", None),
        ("?false_alarm=0.1&false_alarm=0.9", None),
        ("?detail=true&detail=true", None),
    ],
)
def test_parameters(row_client: TestClient, query: str, place: str | None) -> None:
    _, where = error(post(row_client, '{"input": [1,2,3,4]}', query), 422, "bad_parameter")
    assert where == place


def test_a_rate_without_a_policy(undecided: Bundle, open_client: Open) -> None:
    answer = post(open_client(undecided), '{"input": [1,2,3,4]}', "?false_alarm=0.1")
    assert "no policy" in error(answer, 422, "bad_parameter")[0]


def test_paths_and_methods(row_client: TestClient) -> None:
    for path in ("/nothing", "/v1", "/v1/predict/", "/redoc", "/static/x.js", "/static/"):
        error(row_client.get(path), 404, "not_found")
    for path in ("/static/..%2fapp.py", "/static/__init__.py", "/static/%2e%2e/app.py"):
        error(row_client.get(path), 404, "not_found")
    answer = row_client.get("/v1/predict")
    error(answer, 405, "wrong_method")
    assert answer.headers["allow"] == "POST"
    error(row_client.post("/healthz"), 405, "wrong_method")
