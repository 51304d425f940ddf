"""A web server on this machine whose answers a test chooses."""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

DEADLINE = 60.0  # seconds after which a test that waits has failed


@dataclass
class Served:
    """A file, and how it is served.

    Attributes:
        body: its bytes.
        etag: and `modified`: the headers, None for none.
        ranges: whether a Range is honoured; `if_range`: whether If-Range is.
        shift: where a range really starts, relative to what was asked for.
        length: whether the length is sent; `chunked`: whether in chunks.
        statuses: of the next answers; 200 when used up.
        cuts: body bytes after which the next answers are cut off; None for not at all.
        reset: whether a cut resets the connection instead of closing it.
        hold: body bytes after which an answer waits for `gate`.
        redirect: where to send the client instead.
    """

    body: bytes
    etag: str | None = None
    modified: str | None = None
    ranges: bool = True
    if_range: bool = True
    shift: int = 0
    length: bool = True
    chunked: bool = False
    statuses: list[int] = field(default_factory=list)
    cuts: list[int | None] = field(default_factory=list)
    reset: bool = False
    hold: int | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    redirect: str | None = None


class Server(ThreadingHTTPServer):
    """Serves what `offer` is given, and remembers the requests."""

    daemon_threads = False  # so that closing waits for every answer

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.offers: dict[str, Served] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []  # path and headers

    def offer(self, path: str, body: bytes, **options: Any) -> Served:
        """Serve `body` at `path`."""
        self.offers[path] = Served(body, **options)
        return self.offers[path]

    @property
    def ranges(self) -> list[str | None]:
        """The Range of each request."""
        return [headers.get("range") for _, headers in self.requests]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of some tests."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Be quiet."""

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.path, headers))
        self.close_connection = True
        served = self.server.offers.get(self.path)
        if served is None:
            return self.send_error(404, "Not Found")
        if served.statuses and (status := served.statuses.pop(0)) != 200:
            return self.send_error(status)
        if served.redirect is not None:
            self.send_response(302)
            self.send_header("Location", served.redirect)
            self.send_header("Connection", "close")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        return self.answer(served, self.start(served, headers))

    def start(self, served: Served, headers: dict[str, str]) -> int | None:
        """Where the range starts; None for the whole file."""
        asked = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
        known = headers.get("if-range")
        is_stale = known is not None and known not in {served.etag, served.modified}
        if asked is None or not served.ranges or (served.if_range and is_stale):
            return None
        return int(asked[1])

    def answer(self, served: Served, start: int | None) -> None:
        size = len(served.body)
        if start is not None and start >= size:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if start is None:
            self.send_response(200)
        else:
            start += served.shift
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        body = served.body[start or 0 :]
        headers = {
            "ETag": served.etag,
            "Last-Modified": served.modified,
            "Content-Length": str(len(body)) if served.length and not served.chunked else None,
            "Transfer-Encoding": "chunked" if served.chunked else None,
        }
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        return self.send_body(served, body)

    def send_body(self, served: Served, body: bytes) -> None:
        cut = served.cuts.pop(0) if served.cuts else None
        if cut is not None and served.reset:  # no farewell: RST instead of FIN
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if served.chunked:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        if served.hold is not None:
            self.wfile.write(body[: served.hold])
            assert served.gate.wait(DEADLINE)
            self.wfile.write(body[served.hold :])
        else:
            self.wfile.write(body[:cut])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        for served in running.offers.values():
            served.gate.set()
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Do not wait for the disks of the whole machine; returns the calls, and the renames."""
    calls: list[str] = []
    rename = Path.rename
    monkeypatch.setattr(os, "sync", lambda: calls.append("sync"))
    monkeypatch.setattr(
        Path, "rename", lambda path, to: (calls.append(f"rename {path.name}"), rename(path, to))[1]
    )
    return calls


@pytest.fixture
def occupied(tmp_path: Path) -> Path:
    """A data folder that holds something already."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "other").write_bytes(b"untouched")
    return folder
