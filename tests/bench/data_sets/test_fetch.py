"""Downloads: what arrives, what breaks off and goes on, and what is refused."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gemfi import __version__
from gemfi._files import try_lock
from gemfi.data.registry.entries import RemoteFile
from gemfi.errors import DownloadError, InputError
from gemfi_bench.data_sets import fetch as module
from gemfi_bench.data_sets.archives import read_manifest
from gemfi_bench.data_sets.fetch import checksum_of
from support.downloads import (
    BODY,
    DEADLINE,
    HALF,
    OTHER,
    PATH,
    SHA,
    assert_only,
    fetch,
    interrupted,
    names_in,
    remote_at,
    wait_until,
)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(module, "TIMEOUT", 5.0)


class TestWhole:
    def test_arrives(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY)
        assert fetch(remote_at(server), root) == root / PATH
        assert (root / PATH).read_bytes() == BODY
        assert_only(root / "set", "images.gz")
        assert (root / "set/.images.gz.lock").stat().st_size == 0
        assert len(server.requests) == 1
        assert server.requests[0][1]["user-agent"] == f"gemfi/{__version__}"
        assert server.requests[0][1]["accept-encoding"] == "identity"

    @pytest.mark.parametrize("slash", ["", "/"])
    def test_from_a_mirror(self, server: Any, root: Path, slash: str) -> None:
        server.offer("/some/base/a%20set/%C3%A4%23%3F.gz", BODY)
        remote = RemoteFile("a set/ä#?.gz", "http://127.0.0.1:1/dead", SHA, len(BODY))
        path = fetch(remote, root, mirror=f"{server.url}/some/base{slash}")
        assert path == root / "a set/ä#?.gz"
        assert path.read_bytes() == BODY

    @pytest.mark.parametrize("options", [{"chunked": True}, {"length": False}])
    def test_of_unknown_length(self, server: Any, root: Path, options: dict[str, Any]) -> None:
        server.offer("/images.gz", BODY, **options)
        assert fetch(remote_at(server), root).read_bytes() == BODY

    def test_not_there_before_it_is_whole(self, server: Any, root: Path) -> None:
        served = server.offer("/images.gz", BODY, hold=HALF)
        part, target = root / f"{PATH}.part", root / PATH
        thread = threading.Thread(target=fetch, args=(remote_at(server), root))
        thread.start()
        wait_until(lambda: len(server.requests) == 1 and part.exists())
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
        assert fetch(remote_at(server), root).stat().st_ino in synced

    @pytest.mark.parametrize("progress", [True, None])
    def test_bar(
        self,
        server: Any,
        root: Path,
        capsys: pytest.CaptureFixture[str],
        progress: bool | None,
    ) -> None:
        interrupted(server, root, remote_at(server))
        fetch(remote_at(server), root, progress=progress)
        assert ("images.gz:  5" in capsys.readouterr().err) is bool(progress)  # it begins at half


class TestAlreadyThere:
    def test_is_left_alone(self, server: Any, root: Path) -> None:
        (root / "set").mkdir(parents=True)
        (root / PATH).write_bytes(BODY)
        assert fetch(remote_at(server), root) == root / PATH
        assert server.requests == []
        assert names_in(root / "set") == ["images.gz"]

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (OTHER, f"expected {SHA}, found sha256:{hashlib.sha256(OTHER).hexdigest()}"),
            (OTHER[:5], "expected 200,000 bytes, found 5"),
        ],
    )
    def test_another_file_is_not_overwritten(
        self, server: Any, root: Path, data: bytes, said: str
    ) -> None:
        (root / "set").mkdir(parents=True)
        (root / PATH).write_bytes(data)
        server.offer("/images.gz", BODY)
        with pytest.raises(InputError, match=f"{PATH} is not the published file: {said}; .*delete"):
            fetch(remote_at(server), root)
        assert (root / PATH).read_bytes() == data
        assert server.requests == []

    def test_a_folder_in_its_place(self, server: Any, root: Path) -> None:
        (root / PATH).mkdir(parents=True)
        with pytest.raises(InputError, match="is not a file"):
            fetch(remote_at(server), root)


class TestMirror:
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
    def test_refused(self, server: Any, root: Path, url: str) -> None:
        with pytest.raises(InputError, match=r"^a mirror "):
            fetch(remote_at(server), root, mirror=url)
        assert not root.exists()

    def test_a_password_is_not_repeated(self, server: Any, root: Path) -> None:
        with pytest.raises(InputError, match="user name") as caught:
            fetch(remote_at(server), root, mirror="http://me:secret@127.0.0.1/")
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("mirror", ["http://127.0.0.1/?x=", "http://127.0.0.1/#x"])
    def test_is_a_base(self, server: Any, root: Path, mirror: str) -> None:
        with pytest.raises(InputError, match="base URL"):
            fetch(remote_at(server), root, mirror=mirror)


class TestDisk:
    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
    def test_full(self, server: Any, root: Path) -> None:
        (root / "set").mkdir(parents=True)
        (root / f"{PATH}.part").symlink_to("/dev/full")
        server.offer("/images.gz", BODY)
        with pytest.raises(OSError, match=r"images\.gz\.part: No space left"):
            fetch(remote_at(server), root)
        assert len(server.requests) == 1
        assert not (root / PATH).exists()

    def test_no_folder(self, server: Any, root: Path) -> None:
        root.write_bytes(b"a file")
        with pytest.raises(OSError, match="data"):
            fetch(remote_at(server), root)
        assert server.requests == []


@pytest.mark.parametrize(
    ("kind", "digits"),
    [
        ("md5", "900150983cd24fb0d6963f7d28e17f72"),
        ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ],
)
def test_checksum_of_abc(tmp_path: Path, kind: str, digits: str) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert checksum_of(tmp_path / "abc", kind) == f"{kind}:{digits}"


class TestBreaks:
    @pytest.mark.parametrize("reset", [False, True])
    def test_goes_on_by_itself(self, server: Any, root: Path, reset: bool) -> None:
        server.offer("/images.gz", BODY, cuts=[50_000, 30_000], reset=reset)
        assert fetch(remote_at(server), root).read_bytes() == BODY
        if not reset:  # which may lose bytes that were on their way
            assert server.ranges == [None, "bytes=50000-", "bytes=80000-"]
        assert_only(root / "set", "images.gz")

    def test_pauses(self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        slept: list[float] = []
        monkeypatch.setattr(module, "PAUSES", (1.0, 4.0))
        monkeypatch.setattr(time, "sleep", slept.append)
        server.offer("/images.gz", BODY, cuts=[1, 1])
        fetch(remote_at(server), root)
        assert slept == [1.0, 4.0]

    def test_gives_up_and_resumes_when_run_again(self, server: Any, root: Path) -> None:
        served = server.offer("/images.gz", BODY, cuts=[40_000] * 3)
        with pytest.raises(DownloadError) as caught:
            fetch(remote_at(server), root)
        said = str(caught.value)
        assert "\n" not in said
        assert f"{server.url}/images.gz broke off at 120,000 of 200,000 bytes" in said
        assert "3 attempts" in said
        assert f"kept at {root / PATH}.part: run again to resume" in said
        assert_only(root / "set", "images.gz.part")
        assert not served.cuts
        server.requests.clear()
        assert fetch(remote_at(server), root).read_bytes() == BODY
        assert server.ranges == ["bytes=120000-"]
        assert_only(root / "set", "images.gz")

    def test_no_length_and_a_break(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, length=False, cuts=[HALF])
        assert fetch(remote_at(server), root).read_bytes() == BODY
        assert server.ranges == [None, f"bytes={HALF}-"]

    def test_silence(self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "TIMEOUT", 0.2)
        server.offer("/images.gz", BODY, hold=0, ranges=False)
        with pytest.raises(DownloadError, match=r"missing.*timed out"):
            fetch(remote_at(server), root)
        assert len(server.requests) == 3

    def test_a_server_that_knows_no_ranges(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server), ranges=False)
        assert fetch(remote_at(server), root).read_bytes() == BODY
        assert server.ranges == [f"bytes={HALF}-"]

    def test_a_server_that_starts_elsewhere(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server), shift=-10)
        assert fetch(remote_at(server), root).read_bytes() == BODY
        assert server.ranges == [f"bytes={HALF}-", None]

    def test_a_part_that_is_whole(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server))
        (root / f"{PATH}.part").write_bytes(BODY)
        assert fetch(remote_at(server), root).read_bytes() == BODY
        assert server.requests == []

    def test_another_version_is_not_joined(self, server: Any, root: Path) -> None:
        """The checksum of the whole says that the halves are of two files."""
        served = interrupted(server, root, remote_at(server))
        served.body = OTHER
        with pytest.raises(DownloadError, match="is not the published file"):
            fetch(remote_at(server), root)
        assert_only(root / "set")
        served.body = BODY
        assert fetch(remote_at(server), root).read_bytes() == BODY


class TestWrong:
    @pytest.mark.parametrize("kind", ["md5", "sha1", "sha256"])
    def test_contents(self, server: Any, root: Path, kind: str) -> None:
        server.offer("/images.gz", OTHER)
        expected, other = (f"{kind}:{hashlib.new(kind, x).hexdigest()}" for x in (BODY, OTHER))
        with pytest.raises(DownloadError) as caught:
            fetch(remote_at(server, checksum=expected), root)
        said = str(caught.value)
        assert f"{PATH} from {server.url}/images.gz is not the published file" in said
        assert expected in said
        assert other.partition(":")[2] in said
        assert "--mirror" in said
        assert "\n" not in said
        assert len(server.requests) == 1
        assert_only(root / "set")

    def test_endless(self, server: Any, root: Path) -> None:
        """It does not fill the disk: what is too long already is not read to its end."""
        server.offer("/images.gz", BODY + BODY, chunked=True, hold=len(BODY) + HALF)
        small = remote_at(server, size=10)
        with pytest.raises(DownloadError, match="not the published file"):
            fetch(small, root)
        assert len(server.requests) == 1
        assert_only(root / "set")

    @pytest.mark.parametrize("size", [len(BODY) + 1, 10])
    def test_another_length(self, server: Any, root: Path, size: int) -> None:
        server.offer("/images.gz", BODY)
        with pytest.raises(DownloadError, match=f"expected {size:,} bytes, the server has 200,000"):
            fetch(remote_at(server, size=size), root)
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

    def test_the_server_recovers(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, statuses=[500, 503])
        assert fetch(remote_at(server), root).read_bytes() == BODY
        assert len(server.requests) == 3

    def test_the_server_does_not_recover(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, statuses=[500, 502, 503])
        with pytest.raises(DownloadError, match=r"HTTP 503 .*3 attempts") as caught:
            fetch(remote_at(server), root)
        self.assert_says_how(str(caught.value), f"{server.url}/images.gz", root)
        assert len(server.requests) == 3

    def test_no_server(self, root: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}/images.gz"
        with pytest.raises(DownloadError, match="refused") as caught:
            fetch(RemoteFile(PATH, url, SHA, len(BODY)), root)
        self.assert_says_how(str(caught.value), url, root)


class TestRedirects:
    def test_are_followed_also_when_resuming(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", b"", redirect=f"{server.url}/real")
        server.offer("/real", BODY, cuts=[HALF])
        assert fetch(remote_at(server), root).read_bytes() == BODY
        assert server.requests[-1][0] == "/real"
        assert server.ranges[-1] == f"bytes={HALF}-"

    @pytest.mark.parametrize("scheme", ["file", "ftp", "data"])
    def test_not_away_from_the_web(self, server: Any, root: Path, scheme: str) -> None:
        secret = root.parent / "secret"
        secret.write_bytes(BODY)
        server.offer("/images.gz", b"", redirect=f"{scheme}://{secret}")
        with pytest.raises(DownloadError, match="is missing"):
            fetch(remote_at(server), root)
        assert_only(root / "set")

    def test_a_circle(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", b"", redirect=f"{server.url}/images.gz")
        with pytest.raises(DownloadError, match="redirects") as caught:
            fetch(remote_at(server), root)
        assert "\n" not in str(caught.value)


class TestProxies:
    def test_not_on_this_machine(
        self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")
        server.offer("/images.gz", BODY)
        assert fetch(remote_at(server), root).read_bytes() == BODY

    def test_elsewhere(self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", server.url)
        server.offer("http://data.invalid/images.gz", BODY)
        remote = RemoteFile(PATH, "http://data.invalid/images.gz", SHA, len(BODY))
        assert fetch(remote, root).read_bytes() == BODY


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

    def remote(self, server: Any, packed: bytes, *members: str) -> RemoteFile:
        checksum = f"md5:{hashlib.md5(packed, usedforsecurity=False).hexdigest()}"
        unpacks = members or ("set/a", "set/b")
        return RemoteFile("all.tar.gz", f"{server.url}/all", checksum, len(packed), unpacks)

    def test_is_unpacked_and_deleted(self, server: Any, root: Path, packed: bytes) -> None:
        server.offer("/all", packed)
        remote = self.remote(server, packed)
        assert fetch(remote, root) == root
        assert names_in(root) == [".all.tar.gz.lock", ".gemfi", "set"]
        assert names_in(root / "set") == ["a", "b"]
        assert read_manifest(root, remote.path) is not None
        assert fetch(remote, root) == root
        assert len(server.requests) == 1

    def test_is_unpacked_once(self, server: Any, root: Path, packed: bytes) -> None:
        served = server.offer("/all", packed, hold=1)
        remote = self.remote(server, packed)
        threads = [threading.Thread(target=fetch, args=(remote, root)) for _ in range(2)]
        threads[0].start()
        wait_until(lambda: len(server.requests) == 1)
        threads[1].start()
        threads[1].join(0.15)
        served.gate.set()
        for thread in threads:
            thread.join()
        assert len(server.requests) == 1
        assert names_in(root / "set") == ["a", "b"]

    def test_one_member_is_missing(self, server: Any, root: Path, packed: bytes) -> None:
        server.offer("/all", packed)
        fetch(self.remote(server, packed), root)
        (root / "set/b").unlink()
        fetch(self.remote(server, packed), root)
        assert names_in(root / "set") == ["a", "b"]
        assert len(server.requests) == 2

    def test_an_incomplete_folder_is_completed(
        self, server: Any, root: Path, packed: bytes
    ) -> None:
        """What a user copied there by hand: the folder exists, and lacks what is needed."""
        server.offer("/all", packed)
        remote = self.remote(server, packed, "set")
        (root / "set").mkdir(parents=True)
        (root / "set/a").write_bytes(BODY[:1000])
        fetch(remote, root, needs=("set/a",))
        assert server.requests == []
        fetch(remote, root, needs=("set/a", "set/b"))
        assert names_in(root / "set") == ["a", "b"]
        assert (root / "set/b").read_bytes() == BODY[:1000]

    def test_what_was_unpacked_must_still_be_there(
        self, server: Any, root: Path, packed: bytes
    ) -> None:
        server.offer("/all", packed)
        remote = self.remote(server, packed, "set")
        fetch(remote, root)
        (root / "set/b").unlink()  # nothing needs it, but .gemfi tells of it
        fetch(remote, root)
        assert names_in(root / "set") == ["a", "b"]
        assert len(server.requests) == 2

    def test_placed_by_hand(self, server: Any, root: Path, packed: bytes) -> None:
        root.mkdir()
        (root / "all.tar.gz").write_bytes(packed)
        assert fetch(self.remote(server, packed), root) == root
        assert server.requests == []
        assert names_in(root) == [".all.tar.gz.lock", ".gemfi", "set"]

    def test_another_one_placed_by_hand(self, server: Any, root: Path, packed: bytes) -> None:
        root.mkdir()
        (root / "all.tar.gz").write_bytes(packed + b"\0")
        with pytest.raises(InputError, match="is not the published file"):
            fetch(self.remote(server, packed), root)
        assert (root / "all.tar.gz").exists()

    def test_a_damaged_one_is_never_unpacked(self, server: Any, root: Path, packed: bytes) -> None:
        damaged = bytearray(packed)
        damaged[len(packed) // 2] ^= 1
        server.offer("/all", bytes(damaged))
        with pytest.raises(DownloadError, match="is not the published file"):
            fetch(self.remote(server, packed), root)
        assert names_in(root) == [".all.tar.gz.lock"]


FETCH = """
import sys
from pathlib import Path
from gemfi.data.registry.entries import RemoteFile
from gemfi_bench.data_sets.fetch import fetch_file
path, url, checksum, size, root = sys.argv[1:]
sys.stdin.readline()  # all is imported
print(fetch_file(RemoteFile(path, url, checksum, int(size)), Path(root)), flush=True)
"""


def start_process(server: Any, root: Path) -> subprocess.Popen[str]:
    """A process that fetches the file once `go` is called."""
    url = f"{server.url}/images.gz"
    command = [sys.executable, "-c", FETCH, PATH, url, SHA, str(len(BODY)), str(root)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8")


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


class TestTwoAtOnce:
    def test_threads(self, server: Any, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        served = server.offer("/images.gz", BODY, hold=HALF)
        done: list[Path] = []
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
        assert done == [root / PATH] * 3
        assert (root / PATH).read_bytes() == BODY

    def test_quietly(self, server: Any, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (root / "set").mkdir(parents=True)
        server.offer("/images.gz", BODY)
        with try_lock(root / "set/.images.gz.lock") as mine:
            assert mine
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
        assert results == [(f"{root / PATH}\n", "")] * 2
        assert len(server.requests) == 1
        assert (root / PATH).read_bytes() == BODY

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
    def test_killed(self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        served = server.offer("/images.gz", BODY * 5, hold=4 * len(BODY))
        part = root / f"{PATH}.part"
        checksum = f"sha256:{hashlib.sha256(BODY * 5).hexdigest()}"
        remote = remote_at(server, checksum=checksum, size=5 * len(BODY))
        command = [sys.executable, "-c", FETCH, PATH, remote.url, checksum, str(remote.size)]
        with subprocess.Popen(
            [*command, str(root)], stdin=subprocess.PIPE, encoding="utf-8"
        ) as process:
            go(process)
            wait_until(lambda: part.exists() and part.stat().st_size > HALF)
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=DEADLINE)
        kept = part.stat().st_size
        assert not (root / PATH).exists()
        served.gate.set()
        assert fetch(remote, root).read_bytes() == BODY * 5  # the lock went with the process
        assert server.ranges == [None, f"bytes={kept}-"]
