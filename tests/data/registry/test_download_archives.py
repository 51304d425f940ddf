"""Archives: fetched, unpacked, and completed where something is missing."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from gemfi.data.registry import download
from gemfi.data.registry.archives import read_manifest
from gemfi.data.registry.record import RemoteFile
from gemfi.errors import InputError
from support.downloads import (
    BODY,
    fetch,
    names_in,
    wait_until,
)


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

    def test_an_incomplete_folder_is_completed(
        self, server: Any, root: Path, packed: bytes
    ) -> None:
        """What a user copied there by hand: the folder exists, and lacks what is needed."""
        server.offer("/all", packed)
        remote = self.remote(server, packed, unpacks=("set",))
        (root / "set").mkdir(parents=True)
        (root / "set/a").write_bytes(BODY[:1000])
        assert fetch(remote, root, needs=("set/a",)).already_there
        assert server.requests == []
        assert not fetch(remote, root, needs=("set/a", "set/b")).already_there
        assert names_in(root / "set") == ["a", "b"]
        assert (root / "set/b").read_bytes() == BODY[:1000]

    def test_what_was_unpacked_must_still_be_there(
        self, server: Any, root: Path, packed: bytes
    ) -> None:
        server.offer("/all", packed)
        remote = self.remote(server, packed, unpacks=("set",))
        fetch(remote, root)
        (root / "set/b").unlink()  # nothing needs it, but .gemfi tells of it
        assert not fetch(remote, root).already_there
        assert names_in(root / "set") == ["a", "b"]

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
