"""Archives: what comes out of them, and what is refused."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from gemfi.errors import InputError
from gemfi_bench.data_sets import archives
from gemfi_bench.data_sets.archives import unpack
from support.archives import (
    CONTENTS,
    KINDS,
    MEMBERS,
    WANTED,
    assert_untouched,
    files_in,
    write,
    write_odd,
)

pytestmark = pytest.mark.usefixtures("syncs")


@pytest.fixture
def root(occupied: Path) -> Path:
    return occupied


class TestUnpack:
    @pytest.mark.parametrize("kind", KINDS)
    def test_only_the_members(self, tmp_path: Path, root: Path, kind: str) -> None:
        archive = write(tmp_path / "archive", kind, CONTENTS)  # the name says nothing
        unpack(archive, root, MEMBERS)
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
        unpack(archive, root, ("set/train/a.bin",))
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


class TestRefused:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("name", ["/set/x", "../set/x", "set/../../x", "set/.."])
    def test_a_path_that_leads_out(self, tmp_path: Path, root: Path, kind: str, name: str) -> None:
        archive = write(tmp_path / "a", kind, CONTENTS | {name: b"bad"})
        before = files_in(tmp_path)
        with pytest.raises(InputError, match=r"not safe to unpack.*lead out"):
            unpack(archive, root, MEMBERS)
        assert_untouched(root)
        assert files_in(tmp_path) == before

    @pytest.mark.parametrize(
        "type_", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
    )
    @pytest.mark.parametrize("kind", ["tar", "tar.gz"])
    def test_links_and_devices(self, tmp_path: Path, root: Path, kind: str, type_: bytes) -> None:
        archive = write_odd(tmp_path / "a", kind, "set/odd", type_)
        with pytest.raises(InputError, match="'set/odd' is neither a file nor a folder"):
            unpack(archive, root, ("set",))
        assert_untouched(root)

    def test_a_link_in_a_zip_is_a_file(self, tmp_path: Path, root: Path) -> None:
        unpack(write_odd(tmp_path / "a", "zip", "set/odd"), root, ("set",))
        assert not (root / "set/odd").is_symlink()
        assert (root / "set/odd").read_bytes() == b"/etc/passwd"

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

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("contents", [{"README": b"x"}, {"set-extra/a": b"x"}, {"set/": b""}])
    def test_a_member_that_is_not_there(
        self, tmp_path: Path, root: Path, kind: str, contents: dict[str, bytes]
    ) -> None:
        archive = write(tmp_path / "a", kind, contents | {"labels.txt": b"1"})
        with pytest.raises(InputError, match="a lacks set, or anything in it"):
            unpack(archive, root, MEMBERS)
        assert_untouched(root)

    def test_an_encrypted_zip(self, tmp_path: Path, root: Path) -> None:
        data = bytearray(write(tmp_path / "a", "zip", {"set/a": b"x"}).read_bytes())
        data[data.index(b"PK\x01\x02") + 8] |= 1
        data[6] |= 1
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(InputError, match=r"set/a'.* is encrypted"):
            unpack(tmp_path / "a", root, ("set",))
        assert_untouched(root)

    def test_a_missing_archive_is_an_os_error(self, tmp_path: Path, root: Path) -> None:
        with pytest.raises(FileNotFoundError):
            unpack(tmp_path / "a", root, ("set",))
        assert_untouched(root)

    @pytest.mark.parametrize("kind", KINDS)
    def test_cut_off(self, tmp_path: Path, root: Path, kind: str) -> None:
        """Only InputError: the caller has compared the checksum, so this is the second guard."""
        whole = write(tmp_path / "whole", kind, CONTENTS).read_bytes()
        for size in range(0, 5000, 97):
            (tmp_path / "a").write_bytes(whole[:size])
            with pytest.raises(InputError, match=r"/a .*(not a whole|lacks)"):
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

    def test_a_disk_that_is_full_is_an_os_error(
        self, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(archives, "write_atomically", full)
        with pytest.raises(OSError, match="No space left"):
            unpack(write(tmp_path / "a", "tar", CONTENTS), root, MEMBERS)
        assert_untouched(root)
