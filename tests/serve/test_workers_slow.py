"""The real server process: several workers, a new model while requests come, and TLS."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch

from gemfi.bundle import write_bundle
from support.browser import Browser, browser
from support.pages import opened
from support.served import JSON, blobs, make_rows
from support.server import RunningServer, running_server

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-the-tests"  # noqa: S105
GOOD = {"Authorization": f"Bearer {TOKEN}", **JSON}
X = blobs(5, "test", 9).x
BODY = json.dumps({"inputs": X.tolist()})


class Models:
    """Two models, and a file that is one or the other."""

    def __init__(self, folder: Path) -> None:
        self.served = folder / "model.safetensors"
        self._kept = []
        self.truth = []
        for seed in (0, 1):
            bundle = make_rows(seed)
            self._kept.append(write_bundle(folder / f"{seed}.safetensors", bundle))
            self.truth.append(bundle.model.predict(torch.as_tensor(X)).probs().numpy())
        assert np.abs(self.truth[0] - self.truth[1]).max() > 0.01
        self.put(0)

    def put(self, which: int) -> None:
        new = self.served.with_name("new")
        shutil.copy(self._kept[which], new)
        new.replace(self.served)

    def which(self, answer: dict[str, Any]) -> int:
        """The model that has given a whole answer."""
        told = np.array([each["probs"] for each in answer["predictions"]])
        (found,) = (n for n in (0, 1) if np.abs(told - self.truth[n]).max() < 1e-5)
        return found


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models(tmp_path)


class Clients:
    """Ask without a pause, on connections that stay open, until they are told to end."""

    def __init__(self, server: RunningServer, models: Models, count: int = 3) -> None:
        self.seen: Counter[int] = Counter()
        self.errors: list[BaseException] = []
        self._server, self._models = server, models
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._guarded) for _ in range(count)]

    def _guarded(self) -> None:
        try:
            self._ask()
        except BaseException as error:  # noqa: BLE001 - raised at the end
            self.errors.append(error)

    def _ask(self) -> None:
        with closing(connect(self._server)) as connection:
            while not self._ends.is_set():
                status, answer = ask(connection)
                assert status == 200, answer
                self.seen[self._models.which(answer)] += 1

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for each in self._threads:
            each.join()
        if self.errors:
            raise self.errors[0]


def connect(server: RunningServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)


def ask(
    connection: http.client.HTTPConnection, path: str = "/v1/predict", body: str | None = BODY
) -> tuple[int, Any]:
    connection.request("GET" if body is None else "POST", path, body, GOOD)
    answer = connection.getresponse()
    text = answer.read().decode()
    is_json = answer.headers["content-type"] == "application/json"
    return answer.status, json.loads(text) if is_json else text


def once(server: RunningServer, path: str, body: str | None = None) -> tuple[int, Any]:
    with closing(connect(server)) as connection:
        return ask(connection, path, body)


def wait_for(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def events(server: RunningServer, name: str) -> list[dict[str, Any]]:
    return [each for each in server.events() if each["event"] == name]


def test_a_new_model_loses_no_request(models: Models, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        running_server(log, str(models.served), GEMFI_TOKEN=TOKEN) as server,
        Clients(server, models) as clients,
    ):
        for turn in range(6):
            models.put((turn + 1) % 2)
            if turn % 2:
                status, told = once(server, "/v1/reload", "")
                assert (status, told) == (200, {"model": "model", "method": "gem-fi"})
            else:
                server.process.send_signal(signal.SIGHUP)
            done = turn + 1
            wait_for(lambda: len(events(server, "reloaded")) == done, "no new model")  # noqa: B023
            _, answer = once(server, "/v1/predict", BODY)
            assert models.which(answer) == done % 2
        models.served.write_bytes(b"this is no bundle")
        status, told = once(server, "/v1/reload", "")
        assert (status, told["error"]["code"]) == (409, "not_reloaded")
        assert "the old model is served on" in told["error"]["message"]
        assert str(tmp_path) not in told["error"]["message"]
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: events(server, "not reloaded"), "nothing is said")
        _, text = once(server, "/metrics")
        assert 'gemfi_reloads_total{outcome="done"} 6.0' in text
        assert "gemfi_monitor_streams_total 7.0" in text
    print(dict(clients.seen))
    assert min(clients.seen[0], clients.seen[1]) > 5


def test_workers(models: Models, tmp_path: Path) -> None:
    """They share the port, the signals and the page of metrics; one that dies is replaced."""
    arguments = (str(models.served), "--workers", "2")
    with running_server(tmp_path / "log", *arguments, GEMFI_TOKEN=TOKEN) as server:
        wait_for(lambda: len(events(server, "worker starts")) == 2, "too few workers")
        wait_for(lambda: workers_of(server) == {"0", "1"}, "metrics of one alone")
        with Clients(server, models) as clients:
            models.put(1)
            assert once(server, "/v1/reload", "")[0] == 200
            wait_for(lambda: reloaded(server) == {0, 1}, "a worker has not followed")
        assert clients.seen[1]
        assert {models.which(once(server, "/v1/predict", BODY)[1]) for _ in range(20)} == {1}
        counted = total(once(server, "/metrics")[1], "gemfi_inputs_total")
        wait_for(
            lambda: (
                total(once(server, "/metrics")[1], "gemfi_inputs_total")
                == len(X) * (sum(clients.seen.values()) + 20)
            ),
            f"{counted} inputs",
        )
        text = once(server, "/metrics")[1]
        limits = re.findall(r"gemfi_monitor_log10_limit\{.*\} (.*)", text)
        assert [float(each) for each in limits] == pytest.approx([np.log10(200)] * 2)
        assert text.count("# TYPE gemfi_inputs_total counter") == 1
        first = events(server, "worker starts")[0]["pid"]
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: len(events(server, "worker starts")) == 3, "nobody came instead")
        assert events(server, "worker ended")[0]["exit_code"] == -signal.SIGKILL
        assert once(server, "/healthz")[0] == 200
        server.terminate()
        assert server.wait() == 0
    assert len(events(server, "stopped")) == 2
    assert not any(is_running(each["pid"]) for each in events(server, "worker starts"))


def workers_of(server: RunningServer) -> set[str]:
    return set(re.findall(r'worker="(\d)"', once(server, "/metrics")[1]))


def reloaded(server: RunningServer) -> set[int]:
    return {each["worker"] for each in events(server, "reloaded")}


def total(text: str, name: str) -> float:
    return sum(float(each) for each in re.findall(rf"^{name}{{.*}} (.*)$", text, re.MULTILINE))


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_workers_end_with_their_parent(models: Models, tmp_path: Path) -> None:
    arguments = (str(models.served), "--workers", "2")
    with running_server(tmp_path / "log", *arguments) as server:
        wait_for(lambda: len(events(server, "worker starts")) == 2, "too few workers")
        server.process.kill()
        server.process.wait()
        wait_for(
            lambda: not any(is_running(each["pid"]) for each in events(server, "worker starts")),
            "they live on",
        )


def test_workers_finish_what_was_begun(models: Models, tmp_path: Path) -> None:
    arguments = (str(models.served), "--workers", "2")
    with running_server(tmp_path / "log", *arguments) as server, closing(connect(server)) as half:
        half.putrequest("POST", "/v1/predict")
        half.putheader("Content-Type", "application/json")
        half.putheader("Content-Length", str(len(BODY)))
        half.endheaders(BODY[:10].encode())
        time.sleep(0.5)
        server.terminate()
        wait_for(lambda: events(server, "stopping"), "it does not stop")
        half.send(BODY[10:].encode())
        answer = half.getresponse()
        assert answer.status == 200
        assert models.which(json.loads(answer.read())) == 0
        assert server.wait() == 0


# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    program = shutil.which("openssl")
    assert program, "needs the program openssl"
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        [program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.mark.parametrize("workers", ["1", "2"])
def test_tls(models: Models, certificate: tuple[str, str], tmp_path: Path, workers: str) -> None:
    cert, key = certificate
    arguments = (
        str(models.served), "--tls-cert", cert, "--tls-key", key, "--header-timeout", "1",
        "--workers", workers,
    )  # fmt: skip
    with running_server(tmp_path / "log", *arguments) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=cert)
        secure = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=trusting)
        with closing(secure):
            secure.request("POST", "/v1/predict", BODY, {**JSON, "Origin": server.url})
            answer = secure.getresponse()
            assert answer.status == 200
            assert models.which(json.loads(answer.read())) == 0
        with socket.create_connection(("127.0.0.1", server.port), 30) as silent:
            assert silent.recv(10) == b""  # no handshake came
        with closing(connect(server)) as plain, pytest.raises((http.client.HTTPException, OSError)):
            ask(plain)


# -- the page -------------------------------------------------------------------------------------


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path / "profile") as found:
        yield found


def test_the_page_is_no_other_site(models: Models, tmp_path: Path, window: Browser) -> None:
    """Its own requests pass, with the token, too; those of a page of another port do not."""
    with running_server(tmp_path / "log", str(models.served), GEMFI_TOKEN=TOKEN) as server:
        page = opened(window, server.url)
        page.wait("document.querySelector('#token-dialog').open")
        page.run(f"sessionStorage.setItem('gemfi-token', '{TOKEN}')")
        ours = page.run(script(server.url))
        assert ours == 200
    with running_server(tmp_path / "log", str(models.served)) as server:
        with other_site() as other:
            opened(window, other)
            assert window.run(script(server.url, mode="no-cors")) == "hidden"
        refused = events(server, "request")[-1]
        assert (refused["status"], refused["method"]) == (403, "POST")


@contextmanager
def other_site() -> Iterator[str]:
    """A page of somebody else, at another port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<p>Hello")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def script(url: str, mode: str = "cors") -> str:
    headers = json.dumps(GOOD if mode == "cors" else {})
    options = f"{{method: 'POST', mode: '{mode}', headers: {headers}, body: {json.dumps(BODY)}}}"
    return f"fetch('{url}/v1/predict', {options}).then(a => a.status, () => 'hidden')"
