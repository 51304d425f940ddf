from __future__ import annotations

import hashlib
import io
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemfi import __version__
from gemfi.data.registry import download, transfer
from gemfi.data.registry.archives import read_manifest
from gemfi.data.registry.checksums import checksum_of
from gemfi.data.registry.download import fetch_file
from gemfi.data.registry.record import RemoteFile
from gemfi.errors import DownloadError, InputError
from gemfi.locks import try_lock

BODY = random.Random(0).randbytes(200_000)  # noqa: S311
OTHER = random.Random(1).randbytes(200_000)  # noqa: S311
HALF = 100_000
SHA = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
PATH = "set/images.gz"
DEADLINE = 20.0  # seconds after which a test that waits has failed


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def remote_at(server: Any, **options: Any) -> RemoteFile:
    return RemoteFile(PATH, f"{server.url}/images.gz", **({"checksum": SHA} | options))


def fetch(remote: RemoteFile, root: Path, **options: Any) -> download.Fetched:
    return fetch_file(remote, root, **({"pauses": (0.0, 0.0), "timeout": 5.0} | options))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_only(folder: Path, *names: str) -> None:
    """There is nothing else in the folder, but the empty file that locks."""
    assert names_in(folder) == sorted([".images.gz.lock", *names])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def interrupted(server: Any, root: Path, remote: RemoteFile, **options: Any) -> Any:
    """Half of BODY is here; the next attempt would get the rest."""
    served = server.offer("/images.gz", BODY, cuts=[HALF], **options)
    with pytest.raises(DownloadError, match=r"broke off|is missing"):
        fetch(remote, root, pauses=())
    assert (root / f"{PATH}.part").stat().st_size == HALF
    server.requests.clear()
    return served


class TestWhole:
    def test_arrives(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY)
        done = fetch(remote_at(server, size=len(BODY)), root)
        assert done == download.Fetched(root / PATH, len(BODY), False, 0, verified=True)
        assert done.path.read_bytes() == BODY
        assert_only(root / "set", "images.gz")
        assert (root / "set/.images.gz.lock").stat().st_size == 0
        assert len(server.requests) == 1
        assert server.requests[0][1]["user-agent"] == f"gemfi/{__version__}"

    def test_without_a_checksum_it_is_not_verified(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY)
        assert not fetch(remote_at(server, checksum=None), root).verified

    def test_an_empty_file(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", b"")
        assert fetch(remote_at(server, checksum=None), root).path.read_bytes() == b""

    @pytest.mark.parametrize("slash", ["", "/"])
    def test_from_a_mirror(self, server: Any, root: Path, slash: str) -> None:
        server.offer("/some/base/a%20set/%C3%A4%23%3F.gz", BODY)
        remote = RemoteFile("a set/ä#?.gz", "http://127.0.0.1:1/dead", SHA)
        done = fetch(remote, root, mirror=f"{server.url}/some/base{slash}")
        assert done.path == root / "a set/ä#?.gz"
        assert done.path.read_bytes() == BODY

    def test_in_chunks_of_unknown_length(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, chunked=True)
        assert fetch(remote_at(server, checksum=None), root).path.read_bytes() == BODY

    def test_not_there_before_it_is_whole(self, server: Any, root: Path) -> None:
        served = server.offer("/images.gz", BODY, hold=HALF)
        part, target = root / f"{PATH}.part", root / PATH
        thread = threading.Thread(target=fetch, args=(remote_at(server), root))
        thread.start()
        wait_until(lambda: part.exists() and part.stat().st_size > HALF // 2)
        assert not target.exists()
        served.gate.set()
        thread.join()
        assert target.read_bytes() == BODY
        assert not part.exists()

    def test_is_on_the_disk_before_it_has_its_name(
        self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[int] = []
        fsync, replace = os.fsync, Path.replace

        def replace_synced(path: Path, target: Path) -> Path:
            assert path.stat().st_ino in synced
            return replace(path, target)

        monkeypatch.setattr(
            os, "fsync", lambda file: (synced.append(os.fstat(file).st_ino), fsync(file))[1]
        )
        monkeypatch.setattr(Path, "replace", replace_synced)
        server.offer("/images.gz", BODY)
        fetch(remote_at(server), root)
        assert (root / "set").stat().st_ino == synced[-1]  # and the name is, at last

    def test_bar(
        self,
        server: Any,
        root: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        interrupted(server, root, remote_at(server), etag='"1"')
        assert capsys.readouterr().err == ""  # it is not a terminal
        bars: list[dict[str, Any]] = []
        real = transfer.byte_bar
        monkeypatch.setattr(transfer, "byte_bar", lambda *args: (bars.append(args), real(*args))[1])
        fetch(remote_at(server), root, progress=True)
        assert bars[0] == ("images.gz", True, len(BODY), HALF)
        assert "images.gz" in capsys.readouterr().err


class TestAlreadyThere:
    @pytest.mark.parametrize("checksum", [SHA, None])
    def test_is_left_alone(self, server: Any, root: Path, checksum: str | None) -> None:
        (root / "set").mkdir(parents=True)
        (root / PATH).write_bytes(BODY)
        done = fetch(remote_at(server, checksum=checksum), root)
        assert done == download.Fetched(root / PATH, 0, True, 0, verified=checksum is not None)
        assert server.requests == []
        assert names_in(root / "set") == ["images.gz"]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({}, f"expected {SHA}, found sha256:{hashlib.sha256(OTHER).hexdigest()}"),
            ({"checksum": None, "size": 5}, "expected 5 bytes, found 200,000"),
        ],
    )
    def test_another_file_is_not_overwritten(
        self, server: Any, root: Path, options: dict[str, Any], said: str
    ) -> None:
        (root / "set").mkdir(parents=True)
        (root / PATH).write_bytes(OTHER)
        server.offer("/images.gz", BODY)
        with pytest.raises(InputError, match=f"{PATH} is not the published file: {said}; .*delete"):
            fetch(remote_at(server, **options), root)
        assert (root / PATH).read_bytes() == OTHER
        assert server.requests == []

    def test_a_folder_in_its_place(self, server: Any, root: Path) -> None:
        (root / PATH).mkdir(parents=True)
        with pytest.raises(InputError, match="is not a file"):
            fetch(remote_at(server, checksum=None), root)


class TestAddress:
    @pytest.mark.parametrize(
        "url",
        [
            "file:///etc/hostname",
            "ftp://127.0.0.1/x",
            "data:,x",
            "//127.0.0.1/x",
            "x",
            "",
            "http:///x",
            "http://127.0.0.1:port/x",
            "http://[::1/x",
            "http://127.0.0.1/a b",
            "http://127.0.0.1/ä",
            "http://127.0.0.1/a\nb",
        ],
    )
    @pytest.mark.parametrize("is_mirror", [False, True])
    def test_refused(self, root: Path, url: str, is_mirror: bool) -> None:
        remote = RemoteFile(PATH, "http://127.0.0.1:1/x" if is_mirror else url)
        what = "a mirror" if is_mirror else f"the address of {PATH}"
        with pytest.raises(InputError, match=f"^{what} "):
            fetch(remote, root, mirror=url if is_mirror else None)
        assert not root.exists()

    def test_a_password_is_not_repeated(self, root: Path) -> None:
        with pytest.raises(InputError, match="user name") as caught:
            fetch(RemoteFile(PATH, "http://x"), root, mirror="http://me:secret@127.0.0.1/")
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("mirror", ["http://127.0.0.1/?x=", "http://127.0.0.1/#x"])
    def test_a_mirror_is_a_base(self, root: Path, mirror: str) -> None:
        with pytest.raises(InputError, match="base URL"):
            fetch(RemoteFile(PATH, "http://x"), root, mirror=mirror)

    @pytest.mark.parametrize("path", ["", "/x", "../x", "a/../../x", "a//b", "a\\..\\b", "."])
    def test_a_path_that_leads_out(self, server: Any, root: Path, path: str) -> None:
        with pytest.raises(InputError, match="below the data folder"):
            fetch(RemoteFile(path, f"{server.url}/images.gz"), root)
        assert not root.exists()


class TestBreaks:
    @pytest.mark.parametrize("reset", [False, True])
    def test_goes_on_by_itself(self, server: Any, root: Path, reset: bool) -> None:
        server.offer("/images.gz", BODY, cuts=[50_000, 30_000], etag='"1"', reset=reset)
        done = fetch(remote_at(server), root)
        assert done.path.read_bytes() == BODY
        assert (done.downloaded, done.resumed_from) == (len(BODY), 0)
        if not reset:  # which may lose bytes that were on their way
            assert server.ranges == [None, "bytes=50000-", "bytes=80000-"]
        assert_only(root / "set", "images.gz")

    def test_pauses(self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)
        server.offer("/images.gz", BODY, cuts=[1, 1], etag='"1"')
        fetch_file(remote_at(server), root)
        assert slept == list(download.PAUSES)
        assert slept == sorted(slept)

    def test_gives_up_and_resumes_when_run_again(self, server: Any, root: Path) -> None:
        served = server.offer("/images.gz", BODY, cuts=[40_000] * 3, etag='"1"')
        with pytest.raises(DownloadError) as caught:
            fetch(remote_at(server), root)
        said = str(caught.value)
        assert "\n" not in said
        assert f"{server.url}/images.gz broke off at 120,000 of 200,000 bytes" in said
        assert "3 attempts" in said
        assert f"kept at {root / PATH}.part: run again to resume" in said
        assert_only(root / "set", "images.gz.part", "images.gz.part.meta")
        assert not served.cuts
        done = fetch(remote_at(server), root)
        assert (done.downloaded, done.resumed_from) == (80_000, 120_000)
        assert done.path.read_bytes() == BODY
        assert_only(root / "set", "images.gz")

    def test_without_a_checksum_a_short_file_is_not_accepted(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, cuts=[HALF] * 3, ranges=False)
        with pytest.raises(DownloadError, match=r"is missing: .*closed \(3 attempts\)"):
            fetch(remote_at(server, checksum=None), root)
        assert not (root / PATH).exists()

    def test_chunks_that_end_early(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, cuts=[HALF] * 3, chunked=True, ranges=False)
        with pytest.raises(DownloadError, match="is missing"):
            fetch(remote_at(server, checksum=None), root)
        assert not (root / PATH).exists()

    def test_no_length_and_no_checksum(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, length=False)
        with pytest.raises(DownloadError, match="without a length"):
            fetch(remote_at(server, checksum=None), root)
        assert not (root / PATH).exists()
        assert fetch(remote_at(server), root).path.read_bytes() == BODY

    def test_no_length_and_a_break(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, length=False, cuts=[HALF], etag='"1"')
        done = fetch(remote_at(server, size=len(BODY)), root)
        assert done.path.read_bytes() == BODY
        assert server.ranges == [None, f"bytes={HALF}-"]

    def test_silence(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, hold=HALF, etag='"1"', ranges=False)
        start = time.monotonic()
        with pytest.raises(DownloadError, match=r"broke off at 100,000 of 200,000 .*timed out"):
            fetch(remote_at(server), root, timeout=0.1)
        assert time.monotonic() - start < 6.0
        assert len(server.requests) == 3


class TestResume:
    def test_asks_for_the_rest_of_the_same_version(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server), etag='"1"')
        done = fetch(remote_at(server), root)
        assert (done.downloaded, done.resumed_from) == (len(BODY) - HALF, HALF)
        assert done.path.read_bytes() == BODY
        assert server.ranges == [f"bytes={HALF}-"]
        assert server.requests[0][1]["if-range"] == '"1"'

    @pytest.mark.parametrize("etag", [None, 'W/"1"'])
    def test_a_date_where_there_is_no_strong_tag(
        self, server: Any, root: Path, etag: str | None
    ) -> None:
        date = "Sat, 01 Jan 2022 00:00:00 GMT"
        interrupted(server, root, remote_at(server, checksum=None), etag=etag, modified=date)
        done = fetch(remote_at(server, checksum=None), root)
        assert server.requests[0][1]["if-range"] == date
        assert done.resumed_from == HALF
        assert done.path.read_bytes() == BODY

    @pytest.mark.parametrize("if_range", [True, False])
    def test_another_version_starts_anew(self, server: Any, root: Path, if_range: bool) -> None:
        """Also when the server joins them regardless of If-Range."""
        remote = remote_at(server, checksum=None)
        served = interrupted(server, root, remote, etag='"1"', if_range=if_range)
        served.body, served.etag = OTHER, '"2"'
        done = fetch(remote, root)
        assert done.path.read_bytes() == OTHER
        assert (done.downloaded, done.resumed_from) == (len(OTHER), 0)

    def test_another_version_between_two_attempts(self, server: Any, root: Path) -> None:
        served = server.offer("/images.gz", BODY, cuts=[HALF], etag='"1"')
        real = time.sleep

        def change(seconds: float) -> None:
            served.body, served.etag = OTHER, '"2"'
            real(0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transfer.time, "sleep", change)
            done = fetch(remote_at(server, checksum=None), root)
        assert done.path.read_bytes() == OTHER

    def test_no_version_and_no_checksum_starts_anew(self, server: Any, root: Path) -> None:
        remote = remote_at(server, checksum=None)
        served = interrupted(server, root, remote)
        served.body = OTHER
        assert fetch(remote, root).path.read_bytes() == OTHER
        assert server.ranges == [None]

    def test_no_version_but_a_checksum_goes_on(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server))
        assert fetch(remote_at(server), root).resumed_from == HALF
        assert "if-range" not in server.requests[0][1]

    def test_the_tag_of_one_server_says_nothing_to_another(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server, checksum=None), etag='"1"')
        server.offer(f"/{PATH}", OTHER, etag='"1"')
        done = fetch(remote_at(server, checksum=None), root, mirror=server.url)
        assert done.path.read_bytes() == OTHER
        assert server.ranges == [None]

    def test_a_server_that_knows_no_ranges(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server), etag='"1"', ranges=False)
        done = fetch(remote_at(server), root)
        assert server.ranges == [f"bytes={HALF}-"]
        assert (done.downloaded, done.resumed_from) == (len(BODY), 0)
        assert done.path.read_bytes() == BODY

    def test_a_server_that_starts_elsewhere(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server), etag='"1"', shift=-10)
        done = fetch(remote_at(server), root)
        assert server.ranges == [f"bytes={HALF}-", None]
        assert done.path.read_bytes() == BODY

    @pytest.mark.parametrize(
        ("part", "checksum", "ranges"),
        [
            (BODY, SHA, ["bytes=200000-"]),  # whole: nothing more is needed
            (BODY + b"x", SHA, ["bytes=200001-", None]),
            (BODY, None, [None]),  # nothing says that it is BODY
        ],
    )
    def test_a_part_that_has_it_all(
        self, server: Any, root: Path, part: bytes, checksum: str | None, ranges: list[str | None]
    ) -> None:
        (root / "set").mkdir(parents=True)
        (root / f"{PATH}.part").write_bytes(part)
        server.offer("/images.gz", BODY)
        done = fetch(remote_at(server, checksum=checksum), root)
        assert done.path.read_bytes() == BODY
        assert server.ranges == ranges
        assert done.downloaded == len(BODY) * ranges.count(None)

    def test_a_whole_part_of_the_same_version_but_no_checksum(
        self, server: Any, root: Path
    ) -> None:
        """A 416 does not say of which version it is."""
        remote = remote_at(server, checksum=None)
        interrupted(server, root, remote, etag='"1"')
        (root / f"{PATH}.part").write_bytes(OTHER)
        assert fetch(remote, root).path.read_bytes() == BODY
        assert server.ranges == ["bytes=200000-", None]

    def test_a_damaged_note(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server))
        (root / f"{PATH}.part.meta").write_text("[]")
        with pytest.raises(InputError, match=r"images\.gz\.part\.meta is damaged: delete it"):
            fetch(remote_at(server), root)


class TestWrong:
    @pytest.mark.parametrize("kind", ["md5", "sha1", "sha256"])
    def test_contents(self, server: Any, root: Path, kind: str) -> None:
        server.offer("/images.gz", OTHER)
        expected, found = (f"{kind}:{hashlib.new(kind, x).hexdigest()}" for x in (BODY, OTHER))
        with pytest.raises(DownloadError) as caught:
            fetch(remote_at(server, checksum=expected), root)
        said = str(caught.value)
        assert f"{PATH} from {server.url}/images.gz is not the published file" in said
        assert f"expected {expected}, found {found}" in said
        assert "\n" not in said
        assert len(server.requests) == 1
        assert_only(root / "set")

    def test_the_second_half(self, server: Any, root: Path) -> None:
        served = interrupted(server, root, remote_at(server))
        served.body = OTHER
        with pytest.raises(DownloadError, match="is not the published file"):
            fetch(remote_at(server), root)
        assert_only(root / "set")
        served.body = BODY
        assert fetch(remote_at(server), root).path.read_bytes() == BODY

    @pytest.mark.parametrize("chunked", [False, True])
    @pytest.mark.parametrize("size", [len(BODY) - 1, 10])
    def test_too_long(self, server: Any, root: Path, chunked: bool, size: int) -> None:
        server.offer("/images.gz", BODY, chunked=chunked)
        with pytest.raises(DownloadError, match=f"expected {size:,} bytes, .* [0-9,]+"):
            fetch(remote_at(server, checksum=None, size=size), root)
        assert_only(root / "set")

    def test_endless(self, server: Any, root: Path) -> None:
        """It does not fill the disk: what is too long already is not read to its end."""
        server.offer("/images.gz", BODY, chunked=True, hold=HALF)
        with pytest.raises(DownloadError, match="expected 10 bytes"):
            fetch(remote_at(server, size=10), root, timeout=0.5)
        assert len(server.requests) == 1
        assert_only(root / "set")

    def test_too_short(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY)
        with pytest.raises(DownloadError, match="expected 200,001 bytes, the server has 200,000"):
            fetch(remote_at(server, size=len(BODY) + 1), root)
        assert len(server.requests) == 1
        assert_only(root / "set")


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


class TestDisk:
    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
    def test_full(self, server: Any, root: Path) -> None:
        (root / "set").mkdir(parents=True)
        (root / f"{PATH}.part").symlink_to("/dev/full")
        server.offer("/images.gz", BODY)
        with pytest.raises(OSError, match="No space left"):
            fetch(remote_at(server), root)
        assert len(server.requests) == 1
        assert not (root / PATH).exists()

    def test_no_folder(self, server: Any, root: Path) -> None:
        root.write_bytes(b"a file")
        with pytest.raises(OSError, match="data"):
            fetch(remote_at(server), root)
        assert server.requests == []


class TestArchive:
    @pytest.fixture
    def packed(self) -> bytes:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for name in ("set/a", "set/b", "unwanted"):
                info = tarfile.TarInfo(name)
                info.size = 1000
                archive.addfile(info, io.BytesIO(BODY[:1000]))
        return stream.getvalue()

    def remote(self, server: Any, packed: bytes, **options: Any) -> RemoteFile:
        checksum = f"md5:{hashlib.md5(packed, usedforsecurity=False).hexdigest()}"
        given = {"checksum": checksum, "unpacks": ("set/a", "set/b")} | options
        return RemoteFile("all.tar.gz", f"{server.url}/all", **given)

    def test_is_unpacked_and_deleted(self, server: Any, root: Path, packed: bytes) -> None:
        server.offer("/all", packed)
        remote = self.remote(server, packed)
        done = fetch(remote, root)
        assert done == download.Fetched(root, len(packed), False, 0, verified=True)
        assert names_in(root) == [".all.tar.gz.lock", ".gemfi", "set"]
        assert names_in(root / "set") == ["a", "b"]
        assert read_manifest(root, remote.path) is not None
        again = fetch(remote, root)
        assert again == download.Fetched(root, 0, True, 0, verified=False)
        assert len(server.requests) == 1

    def test_is_unpacked_once(self, server: Any, root: Path, packed: bytes) -> None:
        served = server.offer("/all", packed, hold=1)
        done: list[download.Fetched] = []
        remote = self.remote(server, packed)
        threads = [
            threading.Thread(target=lambda: done.append(fetch(remote, root))) for _ in range(2)
        ]
        threads[0].start()
        wait_until(lambda: len(server.requests) == 1)
        threads[1].start()
        threads[1].join(0.15)
        served.gate.set()
        for thread in threads:
            thread.join()
        assert sorted(each.already_there for each in done) == [False, True]
        assert len(server.requests) == 1

    def test_one_member_is_missing(self, server: Any, root: Path, packed: bytes) -> None:
        server.offer("/all", packed)
        fetch(self.remote(server, packed), root)
        (root / "set/b").unlink()
        fetch(self.remote(server, packed), root)
        assert names_in(root / "set") == ["a", "b"]
        assert len(server.requests) == 2

    def test_placed_by_hand(self, server: Any, root: Path, packed: bytes) -> None:
        root.mkdir()
        (root / "all.tar.gz").write_bytes(packed)
        done = fetch(self.remote(server, packed), root)
        assert done == download.Fetched(root, 0, True, 0, verified=True)
        assert server.requests == []
        assert names_in(root) == [".all.tar.gz.lock", ".gemfi", "set"]

    def test_another_one_placed_by_hand(self, server: Any, root: Path, packed: bytes) -> None:
        root.mkdir()
        (root / "all.tar.gz").write_bytes(packed + b"\0")
        with pytest.raises(InputError, match="is not the published file"):
            fetch(self.remote(server, packed), root)
        assert (root / "all.tar.gz").exists()

    def test_no_archive_at_all(self, server: Any, root: Path, packed: bytes) -> None:
        server.offer("/all", b"<html>Moved</html>")
        with pytest.raises(InputError, match=r"all\.tar\.gz is not a whole .*delete it"):
            fetch(self.remote(server, packed, checksum=None), root)
        assert not (root / "set").exists()


class TestChecksum:
    @pytest.mark.parametrize(
        ("kind", "digits"),
        [
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ],
    )
    def test_of_abc(self, tmp_path: Path, kind: str, digits: str) -> None:
        (tmp_path / "abc").write_bytes(b"abc")
        assert checksum_of(tmp_path / "abc", kind) == f"{kind}:{digits}"

    def test_of_more_than_a_chunk(self, tmp_path: Path) -> None:
        data = BODY * 3
        (tmp_path / "x").write_bytes(data)
        assert checksum_of(tmp_path / "x", "sha1") == f"sha1:{hashlib.sha1(data).hexdigest()}"  # noqa: S324

    def test_of_an_unknown_kind(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="md5, sha1, sha256, got 'crc'"):
            checksum_of(tmp_path / "x", "crc")


FETCH = """
import sys
from pathlib import Path
from gemfi.data.registry.download import fetch_file
from gemfi.data.registry.record import RemoteFile
path, url, checksum, root = sys.argv[1:]
sys.stdin.readline()  # all is imported
done = fetch_file(RemoteFile(path, url, checksum), Path(root))
print(done.downloaded, done.already_there, flush=True)
"""


def start_process(server: Any, root: Path) -> subprocess.Popen[str]:
    """A process that fetches the file once `go` is called."""
    command = [sys.executable, "-c", FETCH, PATH, f"{server.url}/images.gz", SHA, str(root)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8")


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


class TestTwoAtOnce:
    def test_threads(self, server: Any, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        served = server.offer("/images.gz", BODY, hold=HALF)
        done: list[download.Fetched] = []
        threads = [
            threading.Thread(target=lambda: done.append(fetch(remote_at(server), root)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        said = ""

        def all_wait() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return said.count("waiting for another process to fetch images.gz\n") == 2

        wait_until(all_wait)
        served.gate.set()
        for thread in threads:
            thread.join()
        assert len(server.requests) == 1
        assert sorted(each.already_there for each in done) == [False, True, True]
        assert (root / PATH).read_bytes() == BODY

    def test_quietly(self, server: Any, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (root / "set").mkdir(parents=True)
        server.offer("/images.gz", BODY)
        with (root / "set/.images.gz.lock").open("ab") as file:
            assert try_lock(file)
            done = threading.Thread(
                target=fetch, args=(remote_at(server), root), kwargs={"progress": False}
            )
            done.start()
            done.join(0.15)
            assert done.is_alive()
            assert server.requests == []
        done.join()
        assert capsys.readouterr().err == ""
        assert (root / PATH).read_bytes() == BODY

    @pytest.mark.slow
    def test_processes(self, server: Any, root: Path) -> None:
        served = server.offer("/images.gz", BODY, hold=HALF)
        with start_process(server, root) as one, start_process(server, root) as two:
            go(one)
            wait_until(lambda: len(server.requests) == 1)
            go(two)
            assert two.stderr is not None
            assert two.stderr.readline() == "waiting for another process to fetch images.gz\n"
            served.gate.set()
            results = [process.communicate(timeout=DEADLINE) for process in (one, two)]
        assert results == [(f"{len(BODY)} False\n", ""), ("0 True\n", "")]
        assert len(server.requests) == 1
        assert (root / PATH).read_bytes() == BODY

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
    def test_killed(self, server: Any, root: Path) -> None:
        served = server.offer("/images.gz", BODY, hold=HALF, etag='"1"')
        part = root / f"{PATH}.part"
        with start_process(server, root) as process:
            go(process)
            wait_until(lambda: part.exists() and part.stat().st_size > HALF // 2)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=DEADLINE)
        kept = part.stat().st_size
        assert not (root / PATH).exists()
        served.gate.set()
        done = fetch(remote_at(server), root)  # the lock went with the process
        assert (done.downloaded, done.resumed_from) == (len(BODY) - kept, kept)
        assert done.path.read_bytes() == BODY
        assert server.ranges == [None, f"bytes={kept}-"]
