"""Archives: what comes out of them, and what is refused."""

from __future__ import annotations

import gzip
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from gemfi.data.registry import archives
from gemfi.data.registry.archives import unpack
from gemfi.errors import InputError
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
