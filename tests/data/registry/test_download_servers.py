"""Servers without the file, redirects and proxies."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gemfi.data.registry.record import RemoteFile
from gemfi.errors import DownloadError
from support.downloads import (
    BODY,
    HALF,
    PATH,
    SHA,
    assert_only,
    fetch,
    remote_at,
)


class TestNoFile:
    def assert_says_how(self, said: str, url: str, root: Path) -> None:
        assert "\n" not in said
        assert said.startswith(f"{PATH} is missing: sought it at {url}: ")
        assert "--mirror URL (or GEMFI_MIRROR)" in said
        assert said.endswith(f"place the file at {root / PATH}")

    @pytest.mark.parametrize("status", [403, 404, 410])
    def test_the_server_has_none(self, server: Any, root: Path, status: int) -> None:
        server.offer("/images.gz", BODY, statuses=[status])
        with pytest.raises(DownloadError, match=f"HTTP {status} ") as caught:
            fetch(remote_at(server), root)
        self.assert_says_how(str(caught.value), f"{server.url}/images.gz", root)
        assert len(server.requests) == 1
        assert_only(root / "set")

    def test_the_mirror_has_none(self, server: Any, root: Path) -> None:
        with pytest.raises(DownloadError, match="HTTP 404") as caught:
            fetch(remote_at(server), root, mirror=f"{server.url}/base")
        self.assert_says_how(str(caught.value), f"{server.url}/base/{PATH}", root)

    def test_the_server_recovers(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, statuses=[500, 503])
        assert fetch(remote_at(server), root).path.read_bytes() == BODY
        assert len(server.requests) == 3

    def test_the_server_does_not_recover(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, statuses=[500, 502, 503])
        with pytest.raises(DownloadError, match=r"HTTP 503 .*3 attempts") as caught:
            fetch(remote_at(server), root)
        self.assert_says_how(str(caught.value), f"{server.url}/images.gz", root)
        assert len(server.requests) == 3

    def test_no_server(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}/images.gz"
        monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("there is nothing to wait for"))
        with pytest.raises(DownloadError, match="refused") as caught:
            fetch(RemoteFile(PATH, url, SHA), root)
        self.assert_says_how(str(caught.value), url, root)

    def test_no_such_host(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(*args: Any, **options: Any) -> Any:
            raise socket.gaierror(-2, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        url = "http://data.invalid/images.gz"
        with pytest.raises(DownloadError, match="Name or service not known") as caught:
            fetch(RemoteFile(PATH, url, SHA), root)
        self.assert_says_how(str(caught.value), url, root)

    def test_a_server_that_hangs_up_at_once(self, root: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/images.gz"

            def hang_up() -> None:
                for _ in range(3):
                    listening.accept()[0].close()

            thread = threading.Thread(target=hang_up)
            thread.start()
            with pytest.raises(DownloadError, match="3 attempts") as caught:
                fetch(RemoteFile(PATH, url, SHA), root)
            thread.join()
        self.assert_says_how(str(caught.value), url, root)


class TestRedirects:
    def test_are_followed_also_when_resuming(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", b"", redirect=f"{server.url}/real")
        server.offer("/real", BODY, cuts=[HALF], etag='"1"')
        done = fetch(remote_at(server), root)
        assert done.path.read_bytes() == BODY
        assert server.requests[-1][0] == "/real"
        assert server.ranges[-1] == f"bytes={HALF}-"

    @pytest.mark.parametrize("scheme", ["file", "ftp", "data"])
    def test_not_away_from_the_web(self, server: Any, root: Path, scheme: str) -> None:
        secret = root.parent / "secret"
        secret.write_bytes(BODY)
        server.offer("/images.gz", b"", redirect=f"{scheme}://{secret}")
        with pytest.raises(DownloadError, match=r"not allowed|unknown url type"):
            fetch(remote_at(server), root)
        assert_only(root / "set")

    def test_a_circle(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", b"", redirect=f"{server.url}/images.gz")
        with pytest.raises(DownloadError, match="infinite loop") as caught:
            fetch(remote_at(server), root)
        assert "\n" not in str(caught.value)


class TestProxies:
    def test_not_on_this_machine(
        self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        server.offer("/images.gz", BODY)
        assert fetch(remote_at(server), root).path.read_bytes() == BODY

    def test_elsewhere(self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", server.url)
        server.offer("http://data.invalid/images.gz", BODY)
        done = fetch(RemoteFile(PATH, "http://data.invalid/images.gz", SHA), root)
        assert done.path.read_bytes() == BODY
