"""Archives whose files are there already, all or some, and what is written down of them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gemfi.errors import InputError
from gemfi_bench.data_sets.archives import problems, read_manifest, unpack
from support.archives import (
    CONTENTS,
    MEMBERS,
    WANTED,
    files_in,
    write,
)

pytestmark = pytest.mark.usefixtures("syncs")


@pytest.fixture
def root(occupied: Path) -> Path:
    return occupied


class TestWhatIsThere:
    def test_the_same_stays(self, tmp_path: Path, root: Path) -> None:
        archive = write(tmp_path / "a", "tar.gz", CONTENTS)
        unpack(archive, root, MEMBERS)
        (root / "labels.txt").unlink()  # as if the process had been killed between the two
        (root / "set/notes").write_bytes(b"of the user")
        before = (root / "set/train/a.bin").stat()
        unpack(archive, root, MEMBERS)
        assert (root / "set/train/a.bin").stat() == before
        assert (root / "labels.txt").read_bytes() == CONTENTS["labels.txt"]
        assert (root / "set/notes").read_bytes() == b"of the user"

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (b"other", r"a\.bin has 5 bytes, not 5,000"),
            (CONTENTS["set/train/a.bin"][::-1], r"a\.bin has the sha256 \w+, not \w+"),
        ],
    )
    def test_another_one_is_not_overwritten(
        self, tmp_path: Path, root: Path, change: bytes, said: str
    ) -> None:
        archive = write(tmp_path / "a", "tar", CONTENTS)
        (root / "set/train").mkdir(parents=True)
        for name in WANTED[:3]:
            (root / name).write_bytes(CONTENTS[name])
        (root / "set/train/a.bin").write_bytes(change)
        before = files_in(root)
        with pytest.raises(InputError, match=f"another version .*{said}; move it away"):
            unpack(archive, root, MEMBERS)
        assert files_in(root) == before

    def test_what_is_missing_is_added(self, tmp_path: Path, root: Path) -> None:
        archive = write(tmp_path / "a", "tar", CONTENTS)
        unpack(archive, root, MEMBERS)
        whole = files_in(root)
        (root / "set/notes").write_bytes(b"of the user")
        before = (root / WANTED[1]).stat()
        (root / "set/train/a.bin").unlink()
        unpack(archive, root, MEMBERS)
        assert (root / WANTED[1]).stat() == before
        (root / "set/notes").unlink()
        assert files_in(root) == whole
        shutil.rmtree(root / "set/train")
        unpack(archive, root, MEMBERS)
        assert files_in(root) == whole

    @pytest.mark.parametrize("blocked", ["set/train/a.bin", "set/train"])
    def test_something_else_in_its_place(self, tmp_path: Path, root: Path, blocked: str) -> None:
        """A folder where a file would be, and a file where a folder would be."""
        archive = write(tmp_path / "a", "tar", CONTENTS)
        (root / "set").mkdir()
        if blocked == "set/train":
            (root / blocked).write_bytes(b"mine")
        else:
            (root / blocked).mkdir(parents=True)
        before = files_in(root)
        with pytest.raises(InputError, match=r"another version .*a\.bin is missing"):
            unpack(archive, root, MEMBERS)
        assert files_in(root) == before


class TestManifest:
    @pytest.fixture
    def unpacked(self, tmp_path: Path, root: Path) -> Path:
        unpack(write(tmp_path / "a.zip", "zip", CONTENTS), root, MEMBERS)
        return root

    def test_names_everything(self, tmp_path: Path, unpacked: Path) -> None:
        archive = (tmp_path / "a.zip").read_bytes()
        written = json.loads((unpacked / ".gemfi/a.zip.json").read_bytes())
        assert (written["archive"], written["size"]) == ("a.zip", len(archive))
        assert written["sha256"] == hashlib.sha256(archive).hexdigest()
        manifest = read_manifest(unpacked, "a.zip")
        assert manifest is not None
        assert list(manifest) == sorted(WANTED)
        for name, mark in manifest.items():
            assert mark.size == len(CONTENTS[name])
            assert mark.sha256 == hashlib.sha256(CONTENTS[name]).hexdigest()

    def test_goes_by_the_path_below_the_data_folder(self, root: Path) -> None:
        (root / "one").mkdir()
        (root / "two").mkdir()
        unpack(write(root / "one/a.zip", "zip", {"x": b"1"}), root, ("x",))
        unpack(write(root / "two/a.zip", "zip", {"y": b"2"}), root, ("y",))
        one, two = read_manifest(root, "one/a.zip"), read_manifest(root, "two/a.zip")
        assert one is not None
        assert two is not None
        assert (list(one), list(two)) == (["x"], ["y"])

    def test_is_there_before_the_files(
        self, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So that what was unpacked can always be checked."""

        def killed(path: Path, target: Path) -> Path:
            raise KeyboardInterrupt

        archive = write(tmp_path / "a", "tar", CONTENTS)
        monkeypatch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            unpack(archive, root, MEMBERS)
        assert sorted(path.name for path in root.iterdir()) == [".gemfi", "other"]
        assert read_manifest(root, "a") is not None

    def test_no_problems(self, unpacked: Path) -> None:
        manifest = read_manifest(unpacked, "a.zip")
        assert manifest is not None
        assert problems(unpacked, manifest) == []

    def test_problems(self, unpacked: Path) -> None:
        manifest = read_manifest(unpacked, "a.zip")
        assert manifest is not None
        (unpacked / "set/train/a.bin").unlink()
        (unpacked / "set/test.bin").write_bytes(b"longer")
        (unpacked / "labels.txt").write_bytes(b"2 1 0\n")
        changed = problems(unpacked, manifest)
        assert changed[0].startswith("labels.txt has the sha256 ")
        assert changed[1:] == [
            "set/test.bin has 6 bytes, not 0",
            "set/train/a.bin is missing",
        ]

    def test_none(self, root: Path) -> None:
        assert read_manifest(root, "a.zip") is None

    @pytest.mark.parametrize(
        "changes",
        [
            {"files": ["x"]},
            {"files": {"x": {"size": 1}}},
            {"files": {"../x": {"size": 1, "sha256": ""}}},
            {"files": ...},  # not there
        ],
    )
    def test_damaged(self, unpacked: Path, changes: dict[str, Any]) -> None:
        path = unpacked / ".gemfi/a.zip.json"
        data = json.loads(path.read_bytes()) | changes
        path.write_text(json.dumps({key: data[key] for key in data if data[key] is not ...}))
        with pytest.raises(InputError, match=r"a\.zip\.json is damaged"):
            read_manifest(unpacked, "a.zip")

    def test_cut_off(self, unpacked: Path) -> None:
        os.truncate(unpacked / ".gemfi/a.zip.json", 20)
        with pytest.raises(InputError, match=r"a\.zip\.json is damaged"):
            read_manifest(unpacked, "a.zip")
