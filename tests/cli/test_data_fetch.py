"""`gemfi data fetch`, from a server on this machine."""

from __future__ import annotations

import hashlib
import http.server
import socket
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gemfi.cli import main
from gemfi.data import DATA_SETS, DataSet, load_split
from gemfi.data.registry.entries import RemoteFile
from gemfi.errors import InputError
from gemfi_bench.data_sets import fetch as fetch_module
from gemfi_bench.data_sets.fetch import fetch_file
from support.data_commands import COMMANDS, LOAD, NAMES, Capture, idx, left, ran, refused

pytestmark = pytest.mark.usefixtures("root")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, quietly; `cut` ends an answer early."""

    cut: int | None = None

    def log_message(self, *arguments: Any) -> None:
        """Be quiet."""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        outputfile.write(source.read()[: self.cut])


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """What the mirror serves: six letters of notMNIST."""
    idx(tmp_path / "shop" / "notmnist")
    return tmp_path / "shop"


@pytest.fixture
def mirror(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server on this machine."""
    monkeypatch.setattr(COMMANDS, "fetch_file", partial(fetch_file, progress=False))
    monkeypatch.setattr(fetch_module, "PAUSES", ())
    monkeypatch.setattr(Handler, "cut", None)
    handler = partial(Handler, directory=str(shop))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = False
        loop = partial(server.serve_forever, poll_interval=0.01)
        thread = threading.Thread(target=loop)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def offered(shop: Path, monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """notMNIST, as if its publisher had published what the mirror serves."""
    entry = DATA_SETS["notmnist"]
    files = []
    for remote in entry.files:
        data = (shop / remote.path).read_bytes()
        checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
        files.append(RemoteFile(remote.path, "http://127.0.0.1:9/gone", checksum, len(data)))
    part = replace(entry.parts["sample"], count=6)
    changed = replace(entry, files=tuple(files), parts={"sample": part})
    for module in (LOAD, COMMANDS):
        monkeypatch.setattr(module, "DATA_SETS", {**DATA_SETS, "notmnist": changed})
    return changed


FILES = [f"notmnist/{name}.gz" for name in NAMES]


class TestFetch:
    @pytest.mark.parametrize("by_variable", [False, True])
    def test_from_a_mirror(
        self,
        root: Path,
        shop: Path,
        mirror: str,
        offered: DataSet,
        capsys: Capture,
        monkeypatch: pytest.MonkeyPatch,
        by_variable: bool,
    ) -> None:
        if by_variable:
            monkeypatch.setenv("GEMFI_MIRROR", mirror)
            said = ran(capsys, "fetch", "notmnist")
        else:
            monkeypatch.setenv("GEMFI_MIRROR", "http://127.0.0.1:9")  # the option goes before it
            said = ran(capsys, "fetch", "notmnist", "--mirror", f"{mirror}/")
        first = FILES[0]
        assert f"notmnist: fetching {first} (" in said
        assert f"notmnist: wrote {root / first} (checksum as published)" in said
        assert left(root) == FILES
        for file in FILES:
            assert (root / file).read_bytes() == (shop / file).read_bytes()
        assert len(load_split("notmnist", "sample")) == 6

    def test_what_is_here_is_not_fetched_again(
        self, root: Path, shop: Path, mirror: str, offered: DataSet, capsys: Capture
    ) -> None:
        ran(capsys, "fetch", "notmnist", "--mirror", mirror)
        (shop / FILES[1]).unlink()
        said = ran(capsys, "fetch", "notmnist", "--mirror", mirror)
        assert said == "".join(f"notmnist: {file} is here already\n" for file in FILES)

    def test_a_file_that_is_not_the_published_one(
        self, root: Path, shop: Path, mirror: str, offered: DataSet, capsys: Capture
    ) -> None:
        path = shop / FILES[0]
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(bytes(data))
        said = refused(capsys, "fetch", "notmnist", "--mirror", mirror)
        assert f"{FILES[0]} from {mirror}/{FILES[0]} is not the published file: " in said
        assert left(root) == []

    def test_a_file_that_is_not_there(
        self, root: Path, shop: Path, mirror: str, offered: DataSet, capsys: Capture
    ) -> None:
        (shop / FILES[1]).unlink()
        said = refused(capsys, "fetch", "notmnist", "--mirror", mirror)
        assert f"{FILES[1]} is missing: sought it at {mirror}/{FILES[1]}: HTTP 404" in said
        assert str(root / FILES[1]) in said
        assert left(root) == FILES[:1]  # what came before it is whole, and stays

    def test_a_download_that_breaks_off_keeps_its_part_and_goes_on(
        self,
        root: Path,
        shop: Path,
        mirror: str,
        offered: DataSet,
        capsys: Capture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(Handler, "cut", 50)
        said = refused(capsys, "fetch", "notmnist", "--mirror", mirror)
        assert "broke off at 50 of " in said
        assert f"the part is kept at {root / FILES[0]}.part: run again to resume" in said
        assert left(root) == [f"{FILES[0]}.part"]
        monkeypatch.setattr(Handler, "cut", None)
        ran(capsys, "fetch", "notmnist", "--mirror", mirror)
        assert left(root) == FILES

    def test_a_folder_that_lacks_a_file_is_completed(
        self,
        root: Path,
        shop: Path,
        mirror: str,
        capsys: Capture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """What train says is missing, fetch brings."""
        entry = DATA_SETS["cifar10"]
        (shop / "cifar-10-batches-bin").mkdir()
        for file in entry.needs(entry.files[0]):
            (shop / file).write_bytes(file.encode())
        with tarfile.open(shop / entry.files[0].path, "w:gz") as packed:
            packed.add(shop / "cifar-10-batches-bin", "cifar-10-batches-bin")
        data = (shop / entry.files[0].path).read_bytes()
        checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
        remote = replace(entry.files[0], checksum=checksum, size=len(data))
        for module in (LOAD, COMMANDS):
            changed = {**DATA_SETS, "cifar10": replace(entry, files=(remote,))}
            monkeypatch.setattr(module, "DATA_SETS", changed)
        folder = root / "cifar-10-batches-bin"
        folder.mkdir()
        (folder / "test_batch.bin").write_bytes(b"cifar-10-batches-bin/test_batch.bin")
        with pytest.raises(InputError, match=r"data_batch_1\.bin; run: gemfi data fetch cifar10"):
            load_split("cifar10", "train")
        assert "is here already" not in ran(capsys, "fetch", "cifar10", "--mirror", mirror)
        assert len(left(folder)) == 6
        assert "is here already" in ran(capsys, "fetch", "cifar10", "--mirror", mirror)

    def test_stopped_by_the_user(
        self, root: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stopped(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(COMMANDS, "fetch_file", stopped)
        assert main(["data", "fetch", "notmnist"]) == 130
        first, _ = capsys.readouterr().err.splitlines()
        assert first == f"gemfi: what was downloaded is kept in {root}; the same command resumes"

    def test_a_dead_server(
        self, root: Path, offered: DataSet, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fetch_module, "PAUSES", ())
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        said = refused(capsys, "fetch", "notmnist", "--mirror", address)
        assert f"{FILES[0]} is missing: sought it at {address}/{FILES[0]}: " in said
        assert "--mirror URL (or GEMFI_MIRROR)" in said
        assert left(root) == []

    def test_a_file_at_hand_that_differs_is_never_overwritten(
        self, root: Path, mirror: str, offered: DataSet, capsys: Capture
    ) -> None:
        (root / "notmnist").mkdir()
        mine = root / FILES[0]
        mine.write_bytes(b"mine")
        said = refused(capsys, "fetch", "notmnist", "--mirror", mirror)
        assert f"{mine} is not the published file: " in said
        assert "to replace it, delete it and run again" in said
        assert mine.read_bytes() == b"mine"
        assert left(root) == FILES[:1]

    def test_bad_arguments(self, root: Path, mirror: str, capsys: Capture) -> None:
        assert "which data set? known: mnist, " in refused(capsys, "fetch")
        assert "unknown data set 'emnist'" in refused(capsys, "fetch", "notmnist", "emnist")
        assert "http" in refused(capsys, "fetch", "notmnist", "--mirror", "ftp://a")
        assert left(root) == []

    def test_is_what_verify_calls_published(
        self, root: Path, capsys: Capture, offered: DataSet
    ) -> None:
        idx(root / "notmnist")
        said = ran(capsys, "verify", "notmnist")
        assert said.count("  ok       ") == 3
