"""`gemfi data`: list, info, verify and corrupt, as a user runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemfi.cli import main
from gemfi.data import DATA_SETS, load_split
from gemfi_bench.corruptions import corrupt
from support.data_commands import NAMES, Capture, idx, left, ran, refused

pytestmark = pytest.mark.usefixtures("root")


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
        assert rows["mnist"].endswith("  test; no train")
        assert rows["notmnist"].endswith("  sample")
        assert rows["mnist-c"].endswith("  no")

    def test_some_published_corruptions(self, root: Path, capsys: Capture) -> None:
        (root / "mnist_c" / "fog").mkdir(parents=True)
        for name in ("test_images", "test_labels"):
            (root / "mnist_c" / "fog" / f"{name}.npy").write_bytes(b"")
        rows = {line.split()[0]: line for line in ran(capsys, "list").splitlines() if line}
        assert rows["mnist-c"].endswith("  1 of 15 published")

    def test_corruptions_that_were_written(self, root: Path, capsys: Capture) -> None:
        idx(root / "mnist")
        ran(capsys, "corrupt", "mnist", "--types", "fog", "shear")
        rows = {line.split()[0]: line for line in ran(capsys, "list").splitlines() if line}
        assert rows["mnist-c"].endswith("  2 of 15 written here")
        (root / "generated/mnist_c/fog").rename(root / "fog")
        (root / "mnist_c").mkdir()
        (root / "fog").rename(root / "mnist_c/fog")
        rows = {line.split()[0]: line for line in ran(capsys, "list").splitlines() if line}
        assert rows["mnist-c"].endswith("  1 of 15 published, 1 written here")

    @pytest.mark.parametrize("command", ["list", "info mnist", "fetch mnist", "verify"])
    def test_a_data_folder_that_is_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, command: str
    ) -> None:
        file = tmp_path / "file"
        file.write_bytes(b"")
        monkeypatch.setenv("GEMFI_DATA", str(file))
        said = refused(capsys, *command.split())
        assert said == f"gemfi: error: GEMFI_DATA is {file}, which is a file; name a folder"


class TestInfo:
    @pytest.mark.parametrize("name", DATA_SETS)
    def test_everything_a_user_must_know(self, capsys: Capture, name: str) -> None:
        said = ran(capsys, "info", name)
        entry, words = DATA_SETS[name], " ".join(said.split())
        assert f"{entry.full_title}: {entry.summary}" in said
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
        assert "MNIST-C" not in lines

    def test_corruptions_of_our_own(self, root: Path, capsys: Capture) -> None:
        idx(root / "mnist")
        ran(capsys, "corrupt", "mnist")
        said = ran(capsys, "verify", "mnist-c")
        assert "  our own corruptions, written here: nothing published to compare" in said

    def test_a_file_that_is_broken_ends_with_1(self, root: Path, capsys: Capture) -> None:
        idx(root / "fashion-mnist")
        path = root / "fashion-mnist" / f"{NAMES[0]}.gz"
        path.write_bytes(path.read_bytes()[:99])
        assert main(["data", "verify", "fashion-mnist"]) == 1
        out = capsys.readouterr().out
        assert f"  BROKEN   fashion-mnist/{NAMES[0]}.gz: cannot be unpacked" in out
        assert "  BROKEN   fashion-mnist/test: " in out


class TestCorrupt:
    def test_mnist(self, root: Path, capsys: Capture) -> None:
        idx(root / "mnist")
        said = ran(capsys, "corrupt", "mnist", "--types", "fog", "shear")
        folder = root / "generated" / "mnist_c"
        assert f"Wrote 4 files to {folder}: mnist/test, 6 of 10,000 under 2 corruptions." in said
        assert "our own corruptions, not the published arrays" in said
        assert left(folder) == [
            f"{name}/test_{kind}.npy" for name in ("fog", "shear") for kind in ("images", "labels")
        ]
        written = load_split("mnist-c", "fog")
        made = corrupt(load_split("mnist", "test").x, "fog", seed=0, family="mnist")
        assert (written.x == made).all()
        assert written.name == "mnist-c/fog, generated, 6 of 10,000"

    def test_elsewhere_with_another_seed(self, root: Path, tmp_path: Path, capsys: Capture) -> None:
        idx(root / "mnist")
        out = tmp_path / "mine"
        ran(capsys, "corrupt", "mnist", "--types", "fog", "--out", str(out), "--seed", "3")
        array = np.load(out / "fog" / "test_images.npy")
        assert array.shape == (6, 28, 28, 1)
        made = corrupt(load_split("mnist", "test").x, "fog", seed=3, family="mnist")
        assert (array[..., 0] == made[:, 0].numpy()).all()
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
        assert "corruption of mnist must be one of shot_noise, " in text
        assert [file for file in left(root) if not file.startswith(".gemfi/")] == before


@pytest.mark.parametrize("command", ["list", "fetch", "verify", "info", "corrupt"])
def test_help_is_there(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["data", *command.split(), "--help"])
    assert stopped.value.code == 0
    assert f"usage: gemfi data {command}".strip() in capsys.readouterr().out
