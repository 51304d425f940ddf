"""Downloads that arrive, and where they go."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gemfi import __version__
from gemfi._files import try_lock
from gemfi.data.registry import download, transfer
from gemfi.data.registry.checksums import checksum_of
from gemfi.data.registry.record import RemoteFile
from gemfi.errors import InputError
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
