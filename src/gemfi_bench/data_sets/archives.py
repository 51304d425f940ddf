"""Archives: the members that a data set needs are unpacked, all of them or none.

What was unpacked is written down in `.gemfi/<archive>.json` in the data folder, so that the files
can be checked long after the archive was deleted.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from gemfi._files import named, sync_folder, to_json, write_atomically
from gemfi.data.registry.entries import is_below
from gemfi.errors import InputError

MAX_BYTES: Final = 8 * 2**30
"""What an archive may unpack to."""

_CORRUPT: Final = (  # what the standard library raises; RuntimeError where a file is encrypted
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
)


@dataclass(frozen=True)
class FileMark:
    """What tells a file from a changed one."""

    size: int
    sha256: str


Manifest = dict[str, FileMark]
"""Path below the data folder -> mark, of what came out of an archive."""


def unpack(archive: Path, root: Path, members: tuple[str, ...]) -> None:
    """Unpack members of a tar or zip archive, whose checksum its caller has compared.

    Everything is unpacked into a hidden folder in `root` first. Only when all members are there
    does each move to its place, in one step. Of a member that is there already, the files must
    equal those of the archive, and stay; missing ones are added. Two processes must not unpack the
    same archive into the same folder at once: `fetch_file` takes care of that.

    Args:
        archive: the file; it is not deleted.
        root: the data folder.
        members: the files and folders to unpack, as paths below `root` and in the archive.
    """
    root.mkdir(parents=True, exist_ok=True)
    temporary = root / f".{archive.name}.unpacking"
    if temporary.exists():  # of a process that was killed
        shutil.rmtree(temporary)
    temporary.mkdir()
    try:
        with named(temporary):
            _extract(archive, temporary, members)
        paths = sorted(path for path in temporary.rglob("*") if path.is_file())
        files = {path.relative_to(temporary).as_posix(): _mark(path) for path in paths}
        for member in members:
            if not any(is_below(name, (member,)) for name in files):
                raise InputError(f"{archive} lacks {member}, or anything in it")
        present = [member for member in members if (root / member).exists()]
        inside = [name for name in files if is_below(name, present)]
        absent = [name for name in inside if _may_be_added(root / name)]
        changed = problems(root, {name: files[name] for name in inside if name not in absent})
        if changed:
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            raise InputError(
                f"{root} holds another version of what {archive} unpacks to: {changed[0]}{more}; "
                "move it away, or delete it, and run again"
            )
        if sys.platform != "win32":
            os.sync()  # once: a call for each of 100,000 files takes minutes
        _write_manifest(archive, root, files)
        moving = [*(member for member in members if member not in present), *absent]
        for name in moving:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).rename(root / name)
        for folder in {(root / name).parent for name in moving}:
            sync_folder(folder)
    finally:
        shutil.rmtree(temporary)


def read_manifest(root: Path, archive_name: str) -> Manifest | None:
    """What `unpack` wrote down of an archive; None if it did not unpack it into `root`.

    `archive_name` is its path below the data folder, or its name if it lay elsewhere.
    """
    path = root / ".gemfi" / f"{archive_name}.json"
    if not path.exists():
        return None
    try:
        files = json.loads(path.read_bytes())["files"]
        return {
            _inside(name): FileMark(int(mark["size"]), str(mark["sha256"]))
            for name, mark in sorted(files.items())
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({type(error).__name__}: {error}): delete what was unpacked from "
            f"{archive_name}, and this file, and fetch it again"
        ) from error


def problems(root: Path, files: Mapping[str, FileMark]) -> list[str]:
    """Compare files with their marks: one line for each that is missing or has changed."""
    lines = []
    for name, mark in files.items():
        path = root / name
        if not path.is_file():
            lines.append(f"{name} is missing")
        elif path.stat().st_size != mark.size:
            lines.append(f"{name} has {path.stat().st_size:,} bytes, not {mark.size:,}")
        elif (sha256 := _mark(path).sha256) != mark.sha256:
            lines.append(f"{name} has the sha256 {sha256}, not {mark.sha256}")
    return lines


def _write_manifest(archive: Path, root: Path, files: Manifest) -> None:
    name = archive.relative_to(root).as_posix() if archive.is_relative_to(root) else archive.name
    marks = {file: asdict(mark) for file, mark in files.items()}
    text = to_json({"archive": name, **asdict(_mark(archive)), "files": marks}, indent=2)
    write_atomically(root / ".gemfi" / f"{name}.json", f"{text}\n".encode())


def _mark(path: Path) -> FileMark:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileMark(file.tell(), digest)


def _may_be_added(path: Path) -> bool:
    """Whether there is nothing at a path, nor a file where a folder above it must be."""
    above = next(folder for folder in path.parents if folder.exists())
    return not (path.exists() or path.is_symlink()) and above.is_dir()


def _inside(name: str) -> str:
    if name.startswith("/") or ".." in PurePosixPath(name).parts:
        raise ValueError(f"{name!r} could lead out of the data folder")
    return name


def _extract(archive: Path, folder: Path, members: tuple[str, ...]) -> None:
    """Unpack the files below `members`; a link in a zip becomes a file with its address."""

    def copy(name: str, source: IO[bytes]) -> None:
        target = folder / PurePosixPath(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, target.open("wb") as file:
            shutil.copyfileobj(source, file)

    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                infos = packed.infolist()
                infos = [info for info in infos if _is_wanted(archive, info.filename, members)]
                _check_size(archive, sum(info.file_size for info in infos))
                for info in infos:
                    if not info.is_dir():
                        copy(info.filename, packed.open(info))
            return
        with tarfile.open(archive) as packed_tar:
            entries = [info for info in packed_tar if _is_wanted(archive, info.name, members)]
            _check_size(archive, sum(entry.size for entry in entries))
            for entry in entries:
                source = packed_tar.extractfile(entry) if entry.isreg() else None
                if source is not None:
                    copy(entry.name, source)
                elif not entry.isdir():
                    raise InputError(
                        f"{archive} is not safe to unpack: {entry.name!r} is neither a file nor a "
                        "folder"
                    )
    except _CORRUPT as error:
        raise InputError(
            f"{archive} is not a whole tar or zip archive: {error or type(error).__name__}; delete "
            "it and fetch it again"
        ) from error


def _is_wanted(archive: Path, name: str, members: tuple[str, ...]) -> bool:
    try:
        return is_below(PurePosixPath(_inside(name)).as_posix(), members)
    except ValueError as error:
        raise InputError(f"{archive} is not safe to unpack: {error}") from error


def _check_size(archive: Path, total: int) -> None:
    if total > MAX_BYTES:
        raise InputError(
            f"{archive} claims {total:,} bytes, more than the {MAX_BYTES:,} that an archive may "
            "unpack to"
        )
