"""The real server process: its own description, malformed bodies, bombs, load, and the end."""

from __future__ import annotations

import base64
import http.client
import json
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gemfi.bundle import bundled, write_bundle
from support.malformed import malformed_requests
from support.served import make_images, make_rows, png
from support.server import RunningServer, running_server

pytestmark = pytest.mark.slow

CLIENTS = 64
SECONDS = 60
MALFORMED = 10_000
SENDERS = 16
TOKEN = "a-token-of-the-tests"  # noqa: S105
JSON = {"Content-Type": "application/json"}
CHECKS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 413, 422]
negative_data_rejection.expected-statuses = [400, 401, 404, 405, 413, 415, 422]
"""  # an image can be right by the schema and not be one; and 413 refuses, too


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("server")
    write_bundle(path / "rows.safetensors", make_rows())
    write_bundle(path / "images.safetensors", make_images())
    return path


@pytest.fixture(scope="module")
def small(folder: Path) -> Iterator[RunningServer]:
    """Images of 8×8 by a small network."""
    with running_server(folder / "small.log", str(folder / "images.safetensors")) as server:
        yield server


@pytest.fixture(scope="module")
def demo(folder: Path) -> Iterator[RunningServer]:
    """The model that comes with the package."""
    with running_server(folder / "demo.log", "--demo") as server:
        yield server


@pytest.fixture(scope="module")
def rows(folder: Path) -> Iterator[RunningServer]:
    """Rows, for those who have the token; these tests end it themselves."""
    bundle = str(folder / "rows.safetensors")
    with running_server(folder / "rows.log", bundle, GEMFI_TOKEN=TOKEN) as server:
        yield server


def post(
    connection: http.client.HTTPConnection, body: Any, headers: dict[str, str], query: str = ""
) -> tuple[int, bytes]:
    connection.request("POST", f"/v1/predict{query}", body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def connect(server: RunningServer, timeout: float = 60) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)


def ask_once(server: RunningServer, body: Any) -> tuple[int, dict[str, Any]]:
    """An answer by a connection of its own; a body that is no bytes becomes JSON."""
    raw = isinstance(body, bytes | Iterator)
    with closing(connect(server)) as connection:
        status, text = post(connection, body if raw else json.dumps(body), JSON)
    return status, json.loads(text, parse_constant=pytest.fail)


def test_images_keep_to_the_description(folder: Path, small: RunningServer) -> None:
    check_description(folder, small)


def test_rows_keep_to_the_description(folder: Path, rows: RunningServer) -> None:
    check_description(folder, rows, "--header", f"Authorization: Bearer {TOKEN}")


def check_description(folder: Path, server: RunningServer, *options: str) -> None:
    """Schemathesis finds nothing, and the log has nothing that it might have overlooked."""
    config = folder / "schemathesis.toml"
    config.write_text(CHECKS, encoding="utf-8")
    program = [sys.executable, "-c", "from schemathesis.cli import schemathesis as s; s()"]
    options = (*options, "--seed", "1", "--max-examples", "40", "--no-color")
    done = subprocess.run(
        [*program, "--config-file", str(config), "run", f"{server.url}/openapi.json", *options],
        capture_output=True, text=True, check=False, timeout=200, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert "No issues found" in done.stdout
    statuses = Counter(each["status"] for each in server.events() if "status" in each)
    print(dict(statuses))
    assert sum(statuses.values()) > 100
    assert statuses[200] > 20
    assert not [status for status in statuses if status >= 500]


def test_malformed_bodies(small: RunningServer) -> None:
    good = {"input": np.arange(64).reshape(1, 8, 8).tolist()}
    before = ask_once(small, good)
    assert before[0] == 200
    requests = list(malformed_requests(MALFORMED, 20, (1, 8, 8)))
    statuses: Counter[int] = Counter()

    def send(part: int) -> None:
        with closing(connect(small)) as connection:
            for each in requests[part::SENDERS]:
                headers = {"Content-Type": each.kind, **each.headers}
                status, text = post(connection, each.body, headers, each.query)
                statuses[status] += 1
                found = json.loads(text, parse_constant=pytest.fail)
                assert status == 200 or found.keys() == {"error"}
                assert b"Traceback" not in text
                assert b"site-packages" not in text

    run_together(SENDERS, send)
    print(dict(statuses))
    assert sum(statuses.values()) == MALFORMED
    assert statuses.keys() <= {200, 400, 413, 415, 422}
    assert statuses[400] > 1000
    assert statuses[422] > 1000
    after = ask_once(small, good)
    assert after == before
    assert not [each for each in small.events() if each["level"] == "error"]


def run_together(count: int, function: Any) -> None:
    """Threads of their own, whose errors are this one's."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            function(number)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]


def bomb(side: int) -> bytes:
    """A whole PNG of side × side black pixels, which packs a thousand to one."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(side + 1)) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", packed), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def memory(server: RunningServer) -> int:
    """The most memory that the process has had, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_bombs_and_giants(demo: RunningServer) -> None:
    before = memory(demo)
    file = bomb(15_000)
    assert len(file) < 1_000_000
    status, told = ask_once(demo, {"image": base64.b64encode(file).decode()})
    assert (status, told["error"]["code"]) == (413, "too_large")
    assert (
        "225,000,000 pixels" in told["error"]["message"]
        or "pixels allowed" in (told["error"]["message"])
    )
    giant = b'{"inputs": [' + b"0," * 25_000_000
    assert ask_once(demo, giant)[0] == 413
    assert ask_once(demo, iter([giant[:1_000_000]] * 50))[0] == 413  # without a length
    assert memory(demo) - before < 150_000_000


def test_small_and_odd_bodies(demo: RunningServer) -> None:
    pixel = base64.b64encode(png(np.full((1, 1), 200, np.uint8))).decode()
    status, told = ask_once(demo, {"image": pixel})
    assert status == 200
    assert told["predictions"][0]["decision"] == "unfamiliar"
    image = np.zeros((1, 28, 28), int).tolist()
    text = json.dumps({"input": image}).replace("0", "NaN", 1)
    status, told = ask_once(demo, text.encode())
    assert (status, told["error"]["code"]) == (422, "not_finite")
    with socket.create_connection(("127.0.0.1", demo.port), 10) as raw:
        raw.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert raw.recv(1000).startswith(b"HTTP/1.1 400")
    assert ask_once(demo, {"input": image})[0] == 200


def test_many_clients_get_the_offline_belief(demo: RunningServer) -> None:
    x = digits(256)
    truth = bundled().model.predict(torch.from_numpy(x)).probs().numpy()
    texts = [json.dumps(each.tolist()) for each in x]
    worst = [0.0] * CLIENTS
    counts = [0] * CLIENTS
    until = time.monotonic() + SECONDS

    def client(number: int) -> None:
        generator = random.Random(number)  # noqa: S311
        with closing(connect(demo)) as connection:
            while time.monotonic() < until:
                rows = generator.sample(range(len(x)), generator.choice((1, 1, 1, 2, 5)))
                body = '{"inputs": [' + ",".join(texts[row] for row in rows) + "]}"
                status, text = post(connection, body, JSON)
                assert status == 200, text
                told = [each["probs"] for each in json.loads(text)["predictions"]]
                worst[number] = max(worst[number], float(np.abs(told - truth[rows]).max()))
                counts[number] += 1

    run_together(CLIENTS, client)
    print(f"{sum(counts)} answers, at most {max(worst):.1e} from the offline belief")
    assert min(counts) > 0
    assert max(worst) < 1e-5
    sizes = [each["batch"] for each in demo.events() if each.get("batch")]
    assert max(sizes) > 16  # many shared a pass


def digits(count: int) -> Any:
    """Smooth bytes (N, 1, 28, 28), some of them like strokes."""
    generator = np.random.default_rng(0)
    coarse = generator.random((count, 7, 7)) ** 3
    x = np.kron(coarse, np.ones((1, 4, 4))) * generator.uniform(0.3, 1, (count, 1, 1))
    return np.rint(255 * x[:, None]).astype(np.uint8)


def outcome_of(connection: http.client.HTTPConnection, body: str) -> str:
    """A status, or how the connection ended."""
    try:
        status, text = post(connection, body, JSON)
    except http.client.IncompleteRead:
        return "cut"
    except (ConnectionError, http.client.HTTPException):
        return "gone"
    json.loads(text)
    return str(status)


def test_the_end_loses_no_accepted_request(folder: Path) -> None:
    """SIGTERM while sixteen clients ask, one of them in the middle of its body."""
    body = json.dumps({"inputs": digits(4).tolist()})
    seen: Counter[str] = Counter()
    lock = threading.Lock()
    with ExitStack() as halves, running_server(folder / "end.log", "--demo") as server:

        def client(_: int) -> None:
            outcome = "200"
            with closing(connect(server)) as connection:
                while outcome == "200":
                    outcome = outcome_of(connection, body)
                    with lock:
                        seen[outcome] += 1

        def stopper(number: int) -> None:
            if number < 16:
                client(number)
                return
            half = halves.enter_context(closing(connect(server)))
            half.putrequest("POST", "/v1/predict")
            half.putheader("Content-Type", "application/json")
            half.putheader("Content-Length", str(len(body)))
            half.endheaders(body[:1000].encode())
            time.sleep(2)
            server.terminate()
            time.sleep(0.5)
            half.send(body[1000:].encode())
            answer = half.getresponse()
            assert answer.status == 200
            assert len(json.loads(answer.read())["predictions"]) == 4
            with lock:
                seen["200"] += 1

        run_together(17, stopper)
        assert server.wait() == 0
        events = server.events()
    print(dict(seen))
    statuses = Counter(str(e["status"]) for e in events if e.get("route") == "/v1/predict")
    assert statuses["200"] == seen["200"] > 16
    assert statuses["503"] == seen["503"]
    assert seen["cut"] == 0
    assert statuses.keys() <= {"200", "503"}
    names = [each["event"] for each in events]
    stop = names.index("stopping")
    after = [each["status"] for each in events[stop:] if each.get("route") == "/v1/predict"]
    assert 200 in after  # it was under load
    assert names[-1] == "stopped"


def test_it_ends_at_once_without_work(rows: RunningServer) -> None:
    with closing(connect(rows)) as idle:
        idle.request("GET", "/healthz")
        assert idle.getresponse().read()
        rows.terminate()
        assert rows.wait() == 0
