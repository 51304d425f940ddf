"""`gemfi data`: list, info, verify, corrupt and fetch, as a user runs them."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import importlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemfi.cli import main
from gemfi.data import DATA_SETS, DataSet, load
from gemfi.data.registry.download import fetch_file
from gemfi.data.registry.record import RemoteFile

COMMANDS = importlib.import_module("gemfi.cli.data")  # a function of the package has its name
LOAD = importlib.import_module("gemfi.data.registry.load")
NAMES = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and no mirror."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("GEMFI_DATA", str(folder))
    monkeypatch.delenv("GEMFI_MIRROR", raising=False)
    return folder


def idx(folder: Path, count: int = 6) -> None:
    """The test images of MNIST or a relative, few."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), np.uint8)
    for name, array in zip(NAMES, (images, np.arange(count, dtype=np.uint8) % 10), strict=True):
        head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        (folder / f"{name}.gz").write_bytes(gzip.compress(head + array.tobytes(), mtime=0))


def ran(capsys: Capture, *arguments: str) -> str:
    assert main(["data", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: Capture, *arguments: str, code: int = 2) -> str:
    """The one line on standard error."""
    assert main(["data", *arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gemfi: error: ")
    return line


def left(folder: Path) -> list[str]:
    """The files in a folder; the empty lock files, which stay by design, are not counted."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(f.relative_to(folder).as_posix() for f in files if f.suffix != ".lock")


class TestList:
    def test_every_set_and_the_folder(self, root: Path, capsys: Capture) -> None:
        said = ran(capsys, "list")
        rows = {line.split()[0]: line for line in said.splitlines() if line}
        for name, entry in DATA_SETS.items():
            assert "×".join(map(str, entry.shape)) in rows[name]
            assert rows[name].split()[2] == str(entry.num_classes)
            assert rows[name].endswith("  no")
        assert f"Data folder: {root} (GEMFI_DATA)." in said
        assert max(map(len, said.splitlines()[:13])) <= 100

    def test_without_the_variable(self, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        monkeypatch.delenv("GEMFI_DATA")
        monkeypatch.setenv("XDG_CACHE_HOME", "/none/such")
        monkeypatch.setenv("HOME", "/none/such")
        assert "(set GEMFI_DATA to use another)" in ran(capsys, "list")

    def test_what_is_here(self, root: Path, capsys: Capture) -> None:
        idx(root / "mnist")
        idx(root / "notmnist")
        rows = {line.split()[0]: line for line in ran(capsys, "list").splitlines() if line}
        assert rows["mnist"].endswith("  no train; test")
        assert rows["notmnist"].endswith("  sample")
        assert rows["mnist-c"].endswith("  no, but made from the test images when asked for")
        assert rows["cifar10-c"].endswith("  no")

    @pytest.mark.parametrize(("with_mnist", "says"), [(False, ""), (True, ", 14 made here")])
    def test_some_published_corruptions(
        self, root: Path, capsys: Capture, with_mnist: bool, says: str
    ) -> None:
        (root / "mnist_c" / "fog").mkdir(parents=True)
        for name in ("test_images", "test_labels"):
            (root / "mnist_c" / "fog" / f"{name}.npy").write_bytes(b"")
        if with_mnist:
            idx(root / "mnist")
        rows = {line.split()[0]: line for line in ran(capsys, "list").splitlines() if line}
        assert rows["mnist-c"].endswith(f"  1 of 15 published{says}")


class TestInfo:
    @pytest.mark.parametrize("name", DATA_SETS)
    def test_everything_a_user_must_know(self, capsys: Capture, name: str) -> None:
        said = ran(capsys, "info", name)
        entry, words = DATA_SETS[name], " ".join(said.split())
        assert f"{entry.title}: {entry.summary}" in said
        for text in (entry.licence, entry.citation, entry.homepage, entry.note):
            assert " ".join(text.split()) in words
        for remote in entry.files:
            assert remote.path in said
            assert remote.url in said
            assert remote.checksum is not None
            assert remote.checksum in said
        for part, record in entry.parts.items():
            assert part in said
            assert ", ".join(record.roles) in said
        assert all(len(line) <= 100 for line in said.splitlines() if "http" not in line)

    def test_the_sizes_of_the_splits(self, capsys: Capture) -> None:
        said = " ".join(ran(capsys, "info", "mnist").split())
        assert "train 50,000 train validation 5,000 validation (carved out of train)" in said
        assert "calibration 5,000 calibration (carved out of train) test 10,000 test, ood" in said
        assert "As a task: tuned on notmnist; judged against kmnist, fashion-mnist" in said

    def test_an_unknown_set(self, capsys: Capture) -> None:
        assert "unknown data set 'emnist'; known: mnist, " in refused(capsys, "info", "emnist")


class TestVerify:
    def test_nothing_here(self, root: Path, capsys: Capture) -> None:
        assert ran(capsys, "verify") == f"Nothing to verify: no data set is in {root}.\n"
        assert main(["data", "verify", "svhn"]) == 1
        said = capsys.readouterr()
        assert said.out == f"SVHN: not in {root}; gemfi data fetch svhn gets it\n"
        assert said.err == "gemfi: error: 1 of the lines above are not as they should be\n"

    def test_a_file_that_differs_ends_with_1(self, root: Path, capsys: Capture) -> None:
        idx(root / "mnist")
        assert main(["data", "verify"]) == 1
        captured = capsys.readouterr()
        assert captured.err == "gemfi: error: 2 of the lines above are not as they should be\n"
        lines = captured.out.splitlines()
        assert lines[0] == "MNIST"
        assert lines[1].startswith(f"  DIFFERS  mnist/{NAMES[0]}.gz: sha256 ")
        assert "  missing  mnist/train: not here" in lines
        assert "  unknown  mnist/test: 6 images, a part of the 10,000 published" in lines
        assert "MNIST-C" in lines  # made from MNIST's
        assert "  our own corruptions, made here: nothing published to compare them with" in lines

    def test_a_file_that_is_broken_ends_with_1(self, root: Path, capsys: Capture) -> None:
        idx(root / "fashion-mnist")
        path = root / "fashion-mnist" / f"{NAMES[0]}.gz"
        path.write_bytes(path.read_bytes()[:99])
        assert main(["data", "verify", "fashion-mnist"]) == 1
        out = capsys.readouterr().out
        assert f"  BROKEN   fashion-mnist/{NAMES[0]}.gz: cannot be unpacked" in out
        assert "  BROKEN   fashion-mnist/test: " in out

    def test_as_published(self, root: Path, capsys: Capture, offered: DataSet) -> None:
        idx(root / "notmnist")
        said = ran(capsys, "verify", "notmnist")
        assert said.count("  ok       ") == 3


class TestCorrupt:
    def test_mnist(self, root: Path, capsys: Capture) -> None:
        idx(root / "mnist")
        made = load("mnist-c", "fog")
        said = ran(capsys, "corrupt", "mnist", "--types", "fog", "shear")
        folder = root / "generated" / "mnist_c"
        assert f"Wrote 4 files to {folder}: mnist/test, 6 of 10,000 under 2 corruptions." in said
        assert "our own corruptions, not the published arrays" in said
        assert left(folder) == [
            f"{name}/test_{kind}.npy" for name in ("fog", "shear") for kind in ("images", "labels")
        ]
        (root / "mnist" / f"{NAMES[0]}.gz").unlink()  # so that it cannot be made again
        written = load("mnist-c", "fog")
        assert (written.x == made.x).all()
        assert written.name == made.name == "mnist-c/fog, generated, 6 of 10,000"

    def test_elsewhere_with_another_seed(self, root: Path, tmp_path: Path, capsys: Capture) -> None:
        idx(root / "mnist")
        out = tmp_path / "mine"
        ran(capsys, "corrupt", "mnist", "--types", "fog", "--out", str(out), "--seed", "3")
        array = np.load(out / "fog" / "test_images.npy")
        assert array.shape == (6, 28, 28, 1)
        assert (array[..., 0] != load("mnist-c", "fog").x[:, 0].numpy()).any()
        assert not (root / "generated").exists()

    def test_refusals_write_nothing(self, root: Path, capsys: Capture) -> None:
        assert "MNIST (test) is not here: no " in refused(capsys, "corrupt", "mnist")
        idx(root / "mnist")
        before = left(root)
        text = refused(capsys, "corrupt", "svhn")
        assert "no corruptions of 'svhn'; expected one of mnist, cifar10" in text
        text = refused(capsys, "corrupt", "mnist", "--seed", "1")
        assert "--seed 1 needs --out: " in text
        text = refused(capsys, "corrupt", "mnist", "--out", str(root / "mnist_c"))
        assert "is the place of the published files; choose another" in text
        text = refused(capsys, "corrupt", "mnist", "--types", "rust")
        assert "unknown corruption 'rust' of mnist; expected one of shot_noise" in text
        assert [file for file in left(root) if not file.startswith(".gemfi/")] == before


# --- fetch -------------------------------------------------------------------------------------


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
    monkeypatch.setattr(COMMANDS, "fetch_file", partial(fetch_file, pauses=(), progress=False))
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
        assert len(load("notmnist", "sample")) == 6

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
        assert f"{FILES[0]} from {mirror}/{FILES[0]} is not the published file: expected " in said
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
        assert left(root) == [f"{FILES[0]}.part", f"{FILES[0]}.part.meta"]
        monkeypatch.setattr(Handler, "cut", None)
        ran(capsys, "fetch", "notmnist", "--mirror", mirror)
        assert left(root) == FILES

    def test_a_dead_server(self, root: Path, offered: DataSet, capsys: Capture) -> None:
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


@pytest.mark.parametrize("command", ["", *COMMANDS.DATA_COMMANDS])
def test_help_is_there(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["data", *command.split(), "--help"])
    assert stopped.value.code == 0
    assert f"usage: gemfi data {command}".strip() in capsys.readouterr().out
