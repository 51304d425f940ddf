"""What the tests of archives share."""

from __future__ import annotations

import gzip
import io
import random
import stat
import tarfile
import zipfile
from pathlib import Path

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


def assert_untouched(root: Path) -> None:
    assert [path.name for path in root.iterdir()] == ["other"]
