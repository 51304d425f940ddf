"""The real server process among clients that mean it harm."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

import pytest

from gemfi.bundle import write_bundle
from support.served import JSON, make_images, make_rows
from support.server import RunningServer, running_server

pytestmark = pytest.mark.slow

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"
LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); "
    "from gemfi.cli import main; sys.exit(main())"
)
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile")
    write_bundle(path / "rows.safetensors", make_rows())
    write_bundle(path / "images.safetensors", make_images())
    return path


@pytest.fixture(scope="module")
def hasty(folder: Path) -> Iterator[RunningServer]:
    """A server that waits a second for everything."""
    times = ("--header-timeout", "1", "--body-timeout", "1")
    with running_server(folder / "hasty.log", str(folder / "rows.safetensors"), *times) as server:
        yield server


def raw(server: RunningServer, data: bytes = b"", timeout: float = 30) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", server.port), timeout)
    if data:
        found.sendall(data)
    return found


def health(server: RunningServer, timeout: float = 20) -> int:
    """The status of /healthz on a new connection; 0 if that was closed."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)) as asks:
        try:
            asks.request("GET", "/healthz")
            return asks.getresponse().status
        except (ConnectionError, http.client.HTTPException):
            return 0


def until_healthy(server: RunningServer) -> list[int]:
    """The statuses up to the first 200."""
    found = [health(server)]
    end = time.monotonic() + 60
    while found[-1] != 200:
        assert time.monotonic() < end, found
        time.sleep(0.1)
        found.append(health(server))
    return found


def cpu_seconds(server: RunningServer) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@needs_proc
def test_half_headers_and_few_descriptors(folder: Path) -> None:
    """320 connections that never finish their header, against 256 file descriptors."""
    bundle, log = str(folder / "rows.safetensors"), folder / "half.log"
    program = ("-c", LIMITED)
    with ExitStack() as held, running_server(log, bundle, program=program) as server:
        for _ in range(320):
            held.enter_context(raw(server, HALF))
        cpu, start = cpu_seconds(server), time.monotonic()
        seen = until_healthy(server)
        assert set(seen) <= {200, 503, 0}
        for _ in range(20):
            assert health(server) == 200  # and so it stays
            time.sleep(0.1)
        assert cpu_seconds(server) - cpu < 0.5 * (time.monotonic() - start)  # nothing spins
    warnings = [each for each in server.events() if each["level"] != "info"]
    told = sum(1 + each.get("repeated", 0) for each in warnings)
    print(f"{seen}; {len(warnings)} lines for {told} events")
    assert told > 100
    assert len(warnings) < 20


def test_idle_connections_make_room(folder: Path) -> None:
    """Each has asked once, was answered, and stays open."""
    bundle, log = str(folder / "rows.safetensors"), folder / "idle.log"
    limited = ("--max-connections", "20")
    with ExitStack() as held, running_server(log, bundle, *limited) as server:
        for _ in range(20):
            idle = held.enter_context(raw(server, HALF + b"A: b\r\n\r\n"))
            assert idle.recv(12) == b"HTTP/1.1 200"
        until_healthy(server)
        for _ in range(20):
            assert health(server) == 200
    reasons = {each["reason"] for each in server.events() if each["event"] == "connection closed"}
    assert reasons == {"another needs its place"}


@needs_proc
def test_no_descriptor_is_left(folder: Path) -> None:
    """Whatever took them: who comes is turned away, nothing spins, and then it goes on."""
    log = folder / "none.log"
    bundle = str(folder / "rows.safetensors")
    with ExitStack() as held, running_server(log, bundle) as server:
        highest = max(int(each.name) for each in Path(f"/proc/{server.process.pid}/fd").iterdir())
        before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        for _ in range(highest):  # those that it has left
            held.enter_context(raw(server))
        cpu, start = cpu_seconds(server), time.monotonic()
        assert [health(server) for _ in range(30)] == [0] * 30
        time.sleep(2)
        assert cpu_seconds(server) - cpu < 0.5 * (time.monotonic() - start)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)
        assert health(server) == 200
        lines = [each for each in server.events() if each["level"] == "error"]
        assert {each["reason"] for each in lines} == {"no file descriptor is left"}
        assert 1 <= len(lines) <= 4


def test_a_header_that_does_not_come(hasty: RunningServer) -> None:
    with closing(raw(hasty, HALF)) as half, closing(raw(hasty)) as silent:
        answer = half.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "slow_header"
        assert silent.recv(100) == b""


def test_the_second_header_has_no_more_time(hasty: RunningServer) -> None:
    with closing(raw(hasty, HALF + b"A: b\r\n\r\n")) as asks:
        answer = asks.makefile("rb")
        assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
        asks.sendall(HALF)
        assert b"HTTP/1.1 408 " in answer.read()


@pytest.mark.parametrize("path", ["/v1/predict", "/healthz", "/nothing"])
def test_a_body_that_trickles(hasty: RunningServer, path: str) -> None:
    """Whether or not the route reads it, it must come to an end."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with closing(raw(hasty, f"{head}Content-Length: 1000\r\n\r\n".encode())) as slow:
        slow.settimeout(0.2)
        assert is_closed_while_it_trickles(slow)


def is_closed_while_it_trickles(slow: socket.socket) -> bool:
    for _ in range(100):
        try:
            slow.sendall(b" ")
            if slow.recv(10_000) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


def test_an_answer_that_nobody_takes(hasty: RunningServer) -> None:
    """Requests without end, and not one answer read: the server lets go of the connection."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.connect(("127.0.0.1", hasty.port))
        greedy.settimeout(30)
        with pytest.raises(ConnectionError):
            greedy.sendall(request * 1_000_000)
    assert health(hasty) == 200


def ask(
    server: RunningServer, headers: dict[str, str], method: str = "POST", path: str = "/v1/predict"
) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as asks:
        body = b'{"input": [1, 2, 3, 4]}' if method == "POST" else None
        asks.request(method, path, body, {**JSON, **headers})
        return asks.getresponse().status


def test_other_sites_do_not_reach_the_monitor(folder: Path) -> None:
    log = folder / "sites.log"
    with running_server(log, str(folder / "rows.safetensors")) as server:
        own = f"http://127.0.0.1:{server.port}"
        evil = {"Origin": "http://evil.example"}
        assert ask(server, evil) == 403
        assert ask(server, evil | {"Host": "evil.example"}) == 421
        assert ask(server, {"Host": f"evil.example:{server.port}"}) == 421
        assert ask(server, {"Origin": "http://127.0.0.1:1"}) == 403
        assert ask(server, {"Sec-Fetch-Site": "cross-site"}) == 403
        assert monitored(server) == 0
        assert ask(server, {"Origin": own, "Sec-Fetch-Site": "same-origin"}) == 200
        assert ask(server, {}) == 200
        assert monitored(server) == 2


def monitored(server: RunningServer) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as asks:
        asks.request("GET", "/metrics")
        text = asks.getresponse().read().decode()
    return int(float(text.partition("\ngemfi_monitor_inputs ")[2].split()[0]))


# -- large bodies ---------------------------------------------------------------------------------


class Pulse:
    """Asks for /healthz again and again while something else goes on."""

    def __init__(self, server: RunningServer) -> None:
        self.server, self.waits = server, list[float]()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self) -> None:
        while not self._ends.is_set():
            start = time.monotonic()
            assert health(self.server, 60) == 200
            self.waits.append(time.monotonic() - start)
            time.sleep(0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def send(server: RunningServer, body: bytes) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)) as asks:
        asks.request("POST", "/v1/predict", body, JSON)
        answer = asks.getresponse()
        return answer.status, json.loads(answer.read())


def test_megabytes_of_empty_arrays(folder: Path) -> None:
    empty = b'{"inputs": [' + b"[]," * 5_000_000 + b"[]]}"
    with running_server(folder / "empty.log", str(folder / "images.safetensors")) as server:
        with Pulse(server) as pulse:
            start = time.monotonic()
            for _ in range(5):
                status, told = send(server, empty)
                assert (status, told["error"]["code"]) == (413, "too_large")
                assert "5,000,002 arrays" in told["error"]["message"]
            spent = time.monotonic() - start
        print(f"{len(pulse.waits)} answers, at most {max(pulse.waits):.3f} s of {spent:.2f} s")
        assert len(pulse.waits) > 5
        assert max(pulse.waits) < spent / 2
    with running_server(folder / "empty.log", str(folder / "rows.safetensors")) as server:
        status, told = send(server, empty[:500_000])
        assert (status, told["error"]["code"]) == (413, "too_large")
        assert "292,864 bytes" in told["error"]["message"]


def test_others_are_answered_while_a_large_request_is(folder: Path) -> None:
    """A body of five megabytes that is right, with 20,000 inputs."""
    limits = ("--max-inputs", "20000", "--max-queue", "20000", "--answer-timeout", "120")
    one = [[[200] * 8] * 8]
    body = json.dumps({"inputs": [one] * 20_000}).encode()
    images = str(folder / "images.safetensors")
    with running_server(folder / "large.log", images, *limits) as server:
        with Pulse(server) as pulse:
            start = time.monotonic()
            status, told = send(server, body)
            spent = time.monotonic() - start
        assert (status, len(told["predictions"])) == (200, 20_000)
        print(f"{len(pulse.waits)} answers, at most {max(pulse.waits):.3f} s of {spent:.2f} s")
        assert len(pulse.waits) > 5
        assert max(pulse.waits) < spent
