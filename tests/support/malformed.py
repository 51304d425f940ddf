"""Requests that nobody should send: mutated good ones, random bytes, odd values, odd headers."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.served import png

JSON = "application/json"
FORM = "multipart/form-data; boundary=cut"
WORDS = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"true", b"null", b'"', b"[", b"]", b"{", b"}",
    b",", b":", b"\\u0000", b"\x00", b"\xff", b"-", b"1" * 5000, b"[" * 2000, b"--cut--", b"\r\n",
    b"data:image/png;base64,",
)  # fmt: skip
QUERIES = ("", "", "", "?detail=true", "?detail=1", "?false_alarm=0.5", "?false_alarm=x", "?x=%00")
KINDS = (
    JSON,
    JSON,
    JSON,
    JSON,
    FORM,
    "text/plain",
    "",
    "application/json; charset=utf-16",
    "x" * 99,
)


@dataclass(frozen=True)
class Malformed:
    """One request.

    Attributes:
        body: its bytes.
        kind: its Content-Type.
        query: of its path.
        headers: besides.
    """

    body: bytes
    kind: str = JSON
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def malformed_requests(count: int, seed: int, shape: tuple[int, ...]) -> Iterator[Malformed]:
    """Requests for a model of images, most of them wrong; the same for the same seed.

    Args:
        count: how many.
        seed: of the generator.
        shape: (C, H, W) of its images.
    """
    generator = random.Random(seed)  # noqa: S311
    good = _good(shape)
    makers: tuple[Callable[[], Malformed], ...] = (
        lambda: _mutated(generator, generator.choice(good)),
        lambda: _mutated(generator, generator.choice(good)),
        lambda: Malformed(generator.randbytes(generator.randrange(400)), generator.choice(KINDS)),
        lambda: Malformed(json.dumps(_value(generator, 5)).encode(), query=_query(generator)),
        lambda: Malformed(json.dumps(_almost(generator, shape)).encode(), query=_query(generator)),
    )
    for _ in range(count):
        yield generator.choice(makers)()


def _good(shape: tuple[int, ...]) -> list[Malformed]:
    image = np.arange(int(np.prod(shape)), dtype=np.uint8).reshape(shape)
    files = [png(image[0], kind) for kind in ("PNG", "JPEG", "BMP", "WEBP")]
    found = [Malformed(json.dumps({"input": image.tolist()}).encode())]
    found.append(Malformed(json.dumps({"inputs": [image.tolist()] * 2}).encode()))
    for file in files:
        text = base64.b64encode(file).decode()
        found.append(Malformed(json.dumps({"image": text}).encode()))
        head = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
        found.append(Malformed(head + file + b"\r\n--cut--\r\n", FORM))
    return found


def _mutated(generator: random.Random, good: Malformed) -> Malformed:
    """One to four changes somewhere."""
    body = bytearray(good.body)
    for _ in range(generator.randint(1, 4)):
        start = generator.randrange(len(body) + 1)
        end = min(len(body), start + generator.choice((1, 1, 4, 60)))
        match generator.randrange(4):
            case 0:
                del body[start:end]
            case 1:
                body[start:start] = generator.choice(WORDS)
            case 2:
                body[start:end] = generator.randbytes(end - start)
            case _:
                body[start:start] = body[start:end] * 3
    if generator.random() < 0.1:
        body = body[: generator.randrange(len(body) + 1)]
    kind = generator.choice(KINDS) if generator.random() < 0.1 else good.kind
    headers = {"Content-Encoding": "gzip"} if generator.random() < 0.02 else {}
    return Malformed(bytes(body), kind, _query(generator), headers)


def _almost(generator: random.Random, shape: tuple[int, ...]) -> Any:
    """A right body but for one value, or one length."""
    image: Any = np.zeros(shape, int).tolist()
    row = image[0][generator.randrange(shape[1])]
    if generator.random() < 0.5:
        row[generator.randrange(shape[2])] = _value(generator, 2)
    else:
        row.extend([0] * generator.randint(0, 2))
    field_name = generator.choice(("input", "inputs", "images", "image", "Input", ""))
    return {field_name: [image] if field_name.endswith("s") else image}


def _value(generator: random.Random, depth: int) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: None,
        lambda: generator.choice((True, False)),
        lambda: generator.randint(-300, 300),
        lambda: 10 ** generator.randint(1, 400),
        lambda: generator.uniform(-1, 1) * 10.0 ** generator.randint(-300, 300),
        lambda: generator.choice((float("nan"), float("inf"), -0.0)),
        lambda: generator.choice(("", "inputs", "é\u0000\ud800", "aGk=", "a" * 500)),
    ]
    if depth:
        kinds.append(lambda: [_value(generator, depth - 1) for _ in range(generator.randrange(4))])
        kinds.append(
            lambda: {
                generator.choice(("input", "inputs", "image", "images", "x")): _value(
                    generator, depth - 1
                )
                for _ in range(generator.randrange(3))
            }
        )
    return generator.choice(kinds)()


def _query(generator: random.Random) -> str:
    return generator.choice(QUERIES)
