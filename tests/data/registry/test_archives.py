from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gemfi.data.registry import archives
from gemfi.data.registry.archives import check_manifest, read_manifest, unpack
from gemfi.errors import InputError

KINDS = ["tar", "tar.gz", "zip"]
RANDOM = random.Random(0)  # noqa: S311
CONTENTS = {
    "set/train/a.bin": RANDOM.randbytes(5000),
    "set/train/b.bin": RANDOM.randbytes(512),
    "set/test.bin": b"",
    "set-extra/c.bin": b"not wanted",
    "labels.txt": b"0 1 2\n",
    "README": b"read me\n",
}
MEMBERS = ("set", "labels.txt")
WANTED = [name for name in CONTENTS if name.startswith("set/") or name == "labels.txt"]


def write(path: Path, kind: str, contents: dict[str, bytes]) -> Path:
    """An archive with these files, in this order."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in contents.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        return path
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            archive.addfile(info, io.BytesIO(data))
    data = packed.getvalue()
    path.write_bytes(gzip.compress(data, mtime=0) if kind == "tar.gz" else data)
    return path


def write_odd(path: Path, kind: str, name: str, type_: bytes = tarfile.SYMTYPE) -> Path:
    """An archive with a good file, and one that is no file."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("set/good", b"good")
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "/etc/passwd")
        return path
    with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
        good = tarfile.TarInfo("set/good")
        archive.addfile(good)
        odd = tarfile.TarInfo(name)
        odd.type, odd.linkname = type_, "/etc/passwd"
        archive.addfile(odd)
    return path


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(autouse=True)
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
def root(tmp_path: Path) -> Path:
    """A data folder that holds something already."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "other").write_bytes(b"untouched")
    return folder


def assert_untouched(root: Path) -> None:
    assert [path.name for path in root.iterdir()] == ["other"]


class TestUnpack:
    @pytest.mark.parametrize("kind", KINDS)
    def test_only_the_members(self, tmp_path: Path, root: Path, kind: str) -> None:
        archive = write(tmp_path / "archive", kind, CONTENTS)  # the name says nothing
        assert unpack(archive, root, MEMBERS) == [root / "set", root / "labels.txt"]
        found = files_in(root)
        del found[".gemfi/archive.json"]
        assert found == {name: CONTENTS[name] for name in WANTED} | {"other": b"untouched"}
        assert sorted(p.name for p in root.iterdir()) == [".gemfi", "labels.txt", "other", "set"]
        assert archive.exists()

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_member_deep_down_goes_where_it_was(
        self, tmp_path: Path, root: Path, kind: str
    ) -> None:
        archive = write(tmp_path / "a", kind, {f"./{name}": CONTENTS[name] for name in CONTENTS})
        assert unpack(archive, root, ("set/train/a.bin",)) == [root / "set/train/a.bin"]
        assert list(files_in(root / "set")) == ["train/a.bin"]

    def test_into_a_folder_that_is_not_there_yet(self, tmp_path: Path) -> None:
        unpack(write(tmp_path / "a", "zip", CONTENTS), tmp_path / "new/data", MEMBERS)
        assert (tmp_path / "new/data/labels.txt").read_bytes() == CONTENTS["labels.txt"]

    def test_links_that_are_not_asked_for_do_not_matter(self, tmp_path: Path, root: Path) -> None:
        unpack(write_odd(tmp_path / "a", "tar", "latest"), root, ("set",))
        assert not (root / "latest").exists()

    def test_what_a_killed_process_left_is_removed(self, tmp_path: Path, root: Path) -> None:
        stale = root / ".a.unpacking/set/train"
        stale.mkdir(parents=True)
        (stale / "half.bin").write_bytes(b"half")
        unpack(write(tmp_path / "a", "tar", CONTENTS), root, MEMBERS)
        assert not (root / "set/train/half.bin").exists()
        assert not (root / ".a.unpacking").exists()

    def test_the_files_last_before_they_move(
        self, tmp_path: Path, root: Path, syncs: list[str]
    ) -> None:
        unpack(write(tmp_path / "a", "tar", CONTENTS), root, MEMBERS)
        assert syncs == ["sync", "rename set", "rename labels.txt"]

    @pytest.mark.parametrize("show", [True, False])
    def test_bar(
        self, tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str], show: bool
    ) -> None:
        unpack(write(tmp_path / "a", "tar", CONTENTS), root, MEMBERS, progress=show)
        assert ("unpacking a" in capsys.readouterr().err) is show


class TestRefused:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "name", ["/set/x", "../set/x", "set/../../x", "set\\..\\..\\x", "set/.."]
    )
    def test_a_path_that_leads_out(self, tmp_path: Path, root: Path, kind: str, name: str) -> None:
        archive = write(tmp_path / "a", kind, CONTENTS | {name: b"bad"})
        before = files_in(tmp_path)
        with pytest.raises(InputError, match=r"not safe to unpack.*lead out"):
            unpack(archive, root, MEMBERS)
        assert_untouched(root)
        assert files_in(tmp_path) == before

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_link(self, tmp_path: Path, root: Path, kind: str) -> None:
        archive = write_odd(tmp_path / "a", kind, "set/odd")
        with pytest.raises(InputError, match="'set/odd' is neither a file nor a folder"):
            unpack(archive, root, ("set",))
        assert_untouched(root)

    @pytest.mark.parametrize("type_", [tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
    def test_hard_links_and_devices(self, tmp_path: Path, root: Path, type_: bytes) -> None:
        archive = write_odd(tmp_path / "a", "tar", "set/odd", type_)
        with pytest.raises(InputError, match="'set/odd' is neither a file nor a folder"):
            unpack(archive, root, ("set",))
        assert_untouched(root)

    @pytest.mark.parametrize("kind", KINDS)
    def test_more_than_the_limit(
        self, tmp_path: Path, root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        archive = write(tmp_path / "a", kind, CONTENTS)
        wanted = sum(len(CONTENTS[name]) for name in WANTED)
        monkeypatch.setattr(archives, "MAX_BYTES", wanted - 1)
        with pytest.raises(InputError, match=f"claims {wanted:,} bytes, more than the"):
            unpack(archive, root, MEMBERS)
        assert_untouched(root)
        monkeypatch.setattr(archives, "MAX_BYTES", wanted)
        unpack(archive, root, MEMBERS)

    def test_a_claim_of_more_than_the_limit(self, tmp_path: Path, root: Path) -> None:
        info = tarfile.TarInfo("set/big")
        info.size = 2**40
        (tmp_path / "a").write_bytes(info.tobuf() + bytes(1024))
        with pytest.raises(InputError, match=r"claims 1,099,511,627,776 bytes"):
            unpack(tmp_path / "a", root, ("set",))
        assert_untouched(root)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("contents", [{"README": b"x"}, {"set-extra/a": b"x"}, {"set/": b""}])
    def test_a_member_that_is_not_there(
        self, tmp_path: Path, root: Path, kind: str, contents: dict[str, bytes]
    ) -> None:
        archive = write(tmp_path / "a", kind, contents | {"labels.txt": b"1"})
        with pytest.raises(InputError, match=r"a lacks set, .*top are \S+, labels\.txt"):
            unpack(archive, root, MEMBERS)
        assert_untouched(root)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("names", [["set/a", "set/a/b"], ["set/a/b", "set/a"]])
    def test_a_file_that_is_a_folder(
        self, tmp_path: Path, root: Path, kind: str, names: list[str]
    ) -> None:
        archive = write(tmp_path / "a", kind, dict.fromkeys(names, b"x"))
        with pytest.raises(InputError, match=r"as a file and as a folder|twice"):
            unpack(archive, root, ("set",))
        assert_untouched(root)

    def test_a_file_that_comes_twice(self, tmp_path: Path, root: Path) -> None:
        write(tmp_path / "a", "tar", {"set/a": b"1", "./set/a": b"2"})
        with pytest.raises(InputError, match=r"'\./set/a' twice"):
            unpack(tmp_path / "a", root, ("set",))
        assert_untouched(root)

    @pytest.mark.parametrize(
        "members", [(), ("set", "set/train"), ("set", "set"), ("../set",), ("/set",), ("set/",)]
    )
    def test_members_that_make_no_sense(
        self, tmp_path: Path, root: Path, members: tuple[str, ...]
    ) -> None:
        archive = write(tmp_path / "a", "zip", CONTENTS)
        with pytest.raises(InputError, match=r"member|lead out"):
            unpack(archive, root, members)
        assert_untouched(root)

    def test_an_encrypted_zip(self, tmp_path: Path, root: Path) -> None:
        data = bytearray(write(tmp_path / "a", "zip", {"set/a": b"x"}).read_bytes())
        data[data.index(b"PK\x01\x02") + 8] |= 1
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InputError, match="'set/a' is encrypted"):
            unpack(tmp_path / "a", root, ("set",))

    def test_a_zip_that_python_could_read_and_we_do_not(self, tmp_path: Path, root: Path) -> None:
        with zipfile.ZipFile(tmp_path / "a", "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("set/a", b"x")
        with pytest.raises(InputError, match="neither stored nor deflated"):
            unpack(tmp_path / "a", root, ("set",))

    def test_a_missing_archive_is_an_os_error(self, tmp_path: Path, root: Path) -> None:
        with pytest.raises(FileNotFoundError):
            unpack(tmp_path / "a", root, ("set",))
        assert_untouched(root)


class TestDamage:
    @pytest.mark.parametrize("kind", KINDS)
    def test_cut_off_anywhere(self, tmp_path: Path, root: Path, kind: str) -> None:
        whole = write(tmp_path / "whole", kind, CONTENTS).read_bytes()
        end = len(whole.rstrip(b"\0")) + 1 if kind == "tar" else len(whole)
        for size in [*range(0, end, 97), *(range(0, end, 512)), end - 1]:
            (tmp_path / "a").write_bytes(whole[:size])
            with pytest.raises(InputError, match=r"/a .*(not a whole|corrupt|lacks)"):
                unpack(tmp_path / "a", root, MEMBERS)
            assert_untouched(root)

    @pytest.mark.parametrize("kind", KINDS)
    def test_flipped_bits(self, tmp_path: Path, root: Path, kind: str) -> None:
        """Only InputError; with a checksum inside, a success has the right contents."""
        whole = write(tmp_path / "whole", kind, CONTENTS).read_bytes()
        chance = random.Random(1)  # noqa: S311
        refused = 0
        for _ in range(150):
            data = bytearray(whole)
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            (tmp_path / "a").write_bytes(data)
            try:
                unpack(tmp_path / "a", root, MEMBERS)
            except InputError:
                refused += 1
                assert_untouched(root)
                continue
            found = files_in(root)
            if kind != "tar":
                assert {name: found.get(name) for name in WANTED} == {
                    name: CONTENTS[name] for name in WANTED
                }
            for name in found:
                if name != "other":
                    (root / name).unlink()
            for folder in ("set/train", "set", ".gemfi"):
                (root / folder).rmdir()
        assert refused > 15  # or this would not have tested much

    def test_a_damaged_header_is_not_the_end(self, tmp_path: Path, root: Path) -> None:
        data = bytearray(write(tmp_path / "a", "tar", CONTENTS).read_bytes())
        data[data.index(b"set/test.bin")] ^= 1
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InputError, match="bad checksum at offset"):
            unpack(tmp_path / "a", root, ("set",))
        assert_untouched(root)

    def test_gzip_checks_its_sum(self, tmp_path: Path, root: Path) -> None:
        data = bytearray(write(tmp_path / "a", "tar.gz", CONTENTS).read_bytes())
        data[-5] ^= 1
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InputError, match="CRC check failed"):
            unpack(tmp_path / "a", root, MEMBERS)
        assert_untouched(root)

    @pytest.mark.parametrize(
        "data",
        [b"", b"<html>Not found</html>", gzip.compress(b"no tar", mtime=0)],
        ids=["empty", "page", "gzip"],
    )
    def test_no_archive(self, tmp_path: Path, root: Path, data: bytes) -> None:
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InputError, match=r"/a is not a whole .*delete it and fetch it again"):
            unpack(tmp_path / "a", root, MEMBERS)
        assert_untouched(root)

    def test_a_negative_size_does_not_loop(self, tmp_path: Path, root: Path) -> None:
        header = bytearray(tarfile.TarInfo("set/a").tobuf())
        header[124:136] = b"\xff" * 10 + b"\xfe\x00"  # -512, as GNU writes it
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        (tmp_path / "a").write_bytes(bytes(header) + bytes(1024))
        with pytest.raises(InputError, match="negative size"):
            unpack(tmp_path / "a", root, ("set",))

    def test_a_zip_that_claims_another_size(self, tmp_path: Path, root: Path) -> None:
        data = bytearray(write(tmp_path / "a", "zip", {"set/a": b"12345"}).read_bytes())
        data[data.index(b"PK\x01\x02") + 24] += 1
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InputError, match=r"corrupt .*'set/a' has 5 of 6 bytes"):
            unpack(tmp_path / "a", root, ("set",))
        assert_untouched(root)

    def test_a_disk_that_is_full_is_an_os_error(
        self, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(archives, "write_atomically", full)
        with pytest.raises(OSError, match="No space left"):
            unpack(write(tmp_path / "a", "tar", CONTENTS), root, MEMBERS)
        assert_untouched(root)


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
            (None, r"a\.bin is missing"),
        ],
    )
    def test_another_one_is_not_overwritten(
        self, tmp_path: Path, root: Path, change: bytes | None, said: str
    ) -> None:
        archive = write(tmp_path / "a", "tar", CONTENTS)
        (root / "set/train").mkdir(parents=True)
        for name in WANTED[:3]:
            (root / name).write_bytes(CONTENTS[name])
        (root / "set/train/a.bin").unlink()
        if change is not None:
            (root / "set/train/a.bin").write_bytes(change)
        before = files_in(root)
        with pytest.raises(InputError, match=f"another version .*{said}; move it away"):
            unpack(archive, root, MEMBERS)
        assert files_in(root) == before


class TestManifest:
    @pytest.fixture
    def unpacked(self, tmp_path: Path, root: Path) -> Path:
        unpack(write(tmp_path / "a.zip", "zip", CONTENTS), root, MEMBERS)
        return root

    def test_names_everything(self, tmp_path: Path, unpacked: Path) -> None:
        archive = (tmp_path / "a.zip").read_bytes()
        manifest = read_manifest(unpacked, "a.zip")
        assert manifest is not None
        assert (manifest.archive, manifest.size) == ("a.zip", len(archive))
        assert manifest.sha256 == hashlib.sha256(archive).hexdigest()
        assert list(manifest.files) == sorted(WANTED)
        for name, mark in manifest.files.items():
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
        assert (list(one.files), list(two.files)) == (["x"], ["y"])

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
        assert check_manifest(unpacked, manifest) == []

    def test_problems(self, unpacked: Path) -> None:
        manifest = read_manifest(unpacked, "a.zip")
        assert manifest is not None
        (unpacked / "set/train/a.bin").unlink()
        (unpacked / "set/test.bin").write_bytes(b"longer")
        (unpacked / "labels.txt").write_bytes(b"2 1 0\n")
        problems = check_manifest(unpacked, manifest)
        assert problems[0].startswith("labels.txt has the sha256 ")
        assert problems[1:] == [
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
            {"size": "many"},
            {"sha256": ...},  # not there
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

    def test_a_name_that_leads_out(self, root: Path) -> None:
        with pytest.raises(InputError, match="lead out"):
            read_manifest(root, "../a")
