"""Archives: the members that a data set needs are unpacked, all of them or none.

What was unpacked is written down in `.gemfi/<archive>.json` in the data folder, so that the files
can be checked long after the archive was deleted. An archive goes by its path below the data
folder, such as `cifar/cifar-10.tar.gz`, or by its name if it lies elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Self

from tqdm import tqdm

from gemfi._files import named, sync_folder, to_json, write_atomically
from gemfi.errors import InputError

MAX_BYTES: Final = 8 * 2**30
"""What an archive may unpack to."""

_CHUNK: Final = 2**20
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = b"PK"
_CORRUPT: Final = (  # what the readers of the standard library raise on damaged bytes
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    ValueError,
    OSError,
)


@dataclass(frozen=True)
class FileMark:
    """What tells a file from a changed one."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What came out of an archive.

    Attributes:
        archive: its path below the data folder, or its name if it was elsewhere.
        size: its bytes.
        sha256: its checksum.
        files: path below the data folder -> mark.
    """

    archive: str
    size: int
    sha256: str
    files: Mapping[str, FileMark]


@dataclass(frozen=True)
class _Entry:
    """A line of an archive's table of contents; of what is neither file nor folder, `other`."""

    name: str
    kind: str
    size: int
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: Path, root: Path, members: tuple[str, ...], progress: bool | None = None
) -> list[Path]:
    """Unpack members of a tar, tar.gz or zip archive; which of these it is shows in its bytes.

    Everything is unpacked into a hidden folder in `root` first. Only when all members are there
    does each move to its place, in one step. Of a member that is at its place already, the files
    that are there must equal those of the archive, and stay; the missing ones are added, each in
    one step. Nothing is overwritten.

    Two processes must not unpack the same archive into the same folder at once; `fetch_file`
    takes care of that.

    Args:
        archive: the file; it is not deleted.
        root: the data folder.
        members: the files and folders to unpack, as paths below `root` and in the archive.
        progress: whether to show a bar; None: if standard error is a terminal.

    Returns:
        The paths of the members.
    """
    _require_members(members)
    show = sys.stderr.isatty() if progress is None else progress
    root.mkdir(parents=True, exist_ok=True)
    temporary = root / f".{archive.name}.unpacking"
    if temporary.exists():  # of a process that was killed
        shutil.rmtree(temporary)
    temporary.mkdir()
    try:
        files = _extract(archive, temporary, members, show)
        present = [member for member in members if (root / member).exists()]
        inside = [name for name in files if _is_below(name, present)]
        absent = {name for name in inside if _may_be_added(root / name)}
        _require_same(archive, root, {name: files[name] for name in inside if name not in absent})
        if sys.platform != "win32":
            os.sync()  # once: a call for each of 100,000 files takes minutes
        _write_manifest(archive, root, files)
        moving = [*(member for member in members if member not in present), *sorted(absent)]
        for name in moving:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).rename(root / name)
        for folder in {(root / name).parent for name in moving}:
            sync_folder(folder)
    finally:
        shutil.rmtree(temporary)
    return [root / member for member in members]


def read_manifest(root: Path, archive_name: str) -> Manifest | None:
    """What `unpack` wrote down of an archive; None if it did not unpack it into `root`."""
    path = _manifest_path(root, archive_name)
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_bytes())
        files = {
            _safe(name): FileMark(int(mark["size"]), str(mark["sha256"]))
            for name, mark in data["files"].items()
        }
        return Manifest(
            str(data["archive"]),
            int(data["size"]),
            str(data["sha256"]),
            dict(sorted(files.items())),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({type(error).__name__}: {error}): delete what was unpacked from "
            f"{archive_name}, and this file, and fetch it again"
        ) from error


def check_manifest(root: Path, manifest: Manifest, progress: bool | None = None) -> list[str]:
    """Compare the files with the manifest: one line for each that is missing or has changed.

    Files that the manifest does not name are not looked at.
    """
    show = sys.stderr.isatty() if progress is None else progress
    return _problems(root, manifest.files, show)


def byte_bar(title: str, show: bool, total: int | None = None, initial: int = 0) -> Any:
    """A bar that counts bytes, and goes when it is done."""
    options = {"unit": "B", "unit_scale": True, "unit_divisor": 1024, "leave": False}
    return tqdm(desc=title, total=total, initial=initial, disable=not show, **options)


def _manifest_path(root: Path, archive_name: str) -> Path:
    return root / ".gemfi" / f"{_safe(archive_name)}.json"


def _write_manifest(archive: Path, root: Path, files: Mapping[str, FileMark]) -> None:
    name = archive.relative_to(root).as_posix() if archive.is_relative_to(root) else archive.name
    mark = _mark_of(archive)
    manifest = Manifest(name, mark.size, mark.sha256, dict(sorted(files.items())))
    text = to_json(asdict(manifest), indent=2)
    write_atomically(_manifest_path(root, name), f"{text}\n".encode())


def _mark_of(path: Path) -> FileMark:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileMark(file.tell(), digest)


def _problems(root: Path, files: Mapping[str, FileMark], show: bool) -> list[str]:
    problems = []
    for name, mark in tqdm(files.items(), desc="checking", disable=not show, leave=False):
        path = root / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif path.stat().st_size != mark.size:
            problems.append(f"{name} has {path.stat().st_size:,} bytes, not {mark.size:,}")
        elif (found := _mark_of(path).sha256) != mark.sha256:
            problems.append(f"{name} has the sha256 {found}, not {mark.sha256}")
    return problems


def _may_be_added(path: Path) -> bool:
    """Whether there is nothing at a path, nor a file where a folder above it must be."""
    above = next(folder for folder in path.parents if folder.exists())
    return not (path.exists() or path.is_symlink()) and above.is_dir()


def _require_same(archive: Path, root: Path, files: Mapping[str, FileMark]) -> None:
    """Raise if what is at its place already is not what the archive holds."""
    problems = _problems(root, files, show=False)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InputError(
            f"{root} holds another version of what {archive} unpacks to: {problems[0]}{more}; "
            "move it away, or delete it, and run again"
        )


def _require_members(members: tuple[str, ...]) -> None:
    if not members:
        raise InputError("name at least one member of the archive to unpack")
    for index, member in enumerate(members):
        others = members[:index] + members[index + 1 :]
        if _safe(member) != member or _is_below(member, others):
            raise InputError(
                f"the members to unpack must be clean paths, none below another, got {members}"
            )


def _is_below(name: str, members: list[str] | tuple[str, ...]) -> bool:
    return any(name == member or name.startswith(f"{member}/") for member in members)


def _safe(name: str) -> str:
    """A path in its shortest form; raises if it could lead out of the folder that it is for."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    strange = {"\\", "\0"} | ({":"} if os.name == "nt" else set())
    if name.startswith("/") or ".." in parts or strange & set(name):
        raise InputError(f"the path {name!r} could lead out of the data folder")
    return "/".join(parts)


def _extract(
    archive: Path, folder: Path, members: tuple[str, ...], show: bool
) -> dict[str, FileMark]:
    """Unpack what is below `members` into an empty folder."""
    files: dict[str, FileMark] = {}
    tops: dict[str, None] = {}  # an ordered set
    total = 0
    with (
        contextlib.closing(_entries(archive)) as entries,
        byte_bar(f"unpacking {archive.name}", show) as bar,
    ):
        for entry in entries:
            name = _name_of(entry, archive)
            tops[name.split("/")[0]] = None
            if not _is_below(name, members):
                continue
            total += entry.size
            if total > MAX_BYTES:
                raise InputError(
                    f"{archive}: with {entry.name!r} it claims {total:,} bytes, more than the "
                    f"{MAX_BYTES:,} that an archive may unpack to"
                )
            if _place(entry, folder / name, archive):
                files[name] = _copy(entry, folder / name, archive, bar)
    for member in members:
        if not any(_is_below(name, (member,)) for name in files):
            raise InputError(
                f"{archive} lacks {member}, or anything in it; at its top are "
                f"{', '.join(list(tops)[:8]) or 'no files'}: is it the right archive?"
            )
    return files


def _name_of(entry: _Entry, archive: Path) -> str:
    try:
        return _safe(entry.name)
    except InputError as error:
        raise InputError(f"{archive} is not safe to unpack: {error}") from error


def _place(entry: _Entry, path: Path, archive: Path) -> bool:
    """Make the folder that an entry is, or is in; returns whether it is a file."""
    if entry.kind == "other":
        raise InputError(
            f"{archive} is not safe to unpack: {entry.name!r} is neither a file nor a folder"
        )
    is_file = entry.kind == "file"
    try:
        (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{archive} holds {entry.name!r} as a file and as a folder") from error
    if is_file and path.exists():
        raise InputError(f"{archive} holds {entry.name!r} twice, perhaps in other capitals")
    return is_file


def _copy(entry: _Entry, path: Path, archive: Path, bar: Any) -> FileMark:
    digest = hashlib.sha256()
    size = 0
    with named(path), path.open("xb") as file:
        for chunk in _chunks(entry, archive):
            size += len(chunk)
            digest.update(chunk)
            file.write(chunk)
            bar.update(len(chunk))
    if size != entry.size:
        raise InputError(
            f"{archive} is corrupt or truncated: {entry.name!r} has {size:,} of {entry.size:,} "
            "bytes; delete it and fetch it again"
        )
    return FileMark(size, digest.hexdigest())


def _chunks(entry: _Entry, archive: Path) -> Iterator[bytes]:
    with _reading(archive, f" in {entry.name!r}"):
        source = entry.open()
        if source is None:
            raise tarfile.ReadError("it has no contents")
        with source:
            while chunk := source.read(_CHUNK):
                yield chunk


@contextlib.contextmanager
def _reading(archive: Path, where: str = "") -> Iterator[None]:
    """Name the archive when its bytes cannot be read."""
    try:
        yield
    except _CORRUPT as error:
        raise InputError(
            f"{archive} is not a whole tar, tar.gz or zip archive{where}: "
            f"{error or type(error).__name__}; delete it and fetch it again"
        ) from error


def _entries(archive: Path) -> Generator[_Entry, None, None]:
    with archive.open("rb") as raw:
        start = raw.read(2)
        raw.seek(0)
        with _reading(archive):
            yield from _zip_entries(raw) if start == _ZIP else _tar_entries(raw, start == _GZIP)


def _zip_entries(raw: IO[bytes]) -> Iterator[_Entry]:
    with zipfile.ZipFile(raw) as archive:
        for info in archive.infolist():
            mode = stat.S_IFMT(info.external_attr >> 16)  # 0 where it was not made on Unix
            kind = "folder" if info.is_dir() else "file" if mode in {0, stat.S_IFREG} else "other"
            if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise zipfile.BadZipFile(f"{info.filename!r} is neither stored nor deflated")
            if info.flag_bits & 1:
                raise zipfile.BadZipFile(f"{info.filename!r} is encrypted")
            yield _Entry(info.filename, kind, info.file_size, partial(archive.open, info))


def _tar_entries(raw: IO[bytes], zipped: bool) -> Iterator[_Entry]:
    mode = "r:gz" if zipped else "r:"
    with tarfile.open(fileobj=raw, mode=mode, tarinfo=_StrictInfo) as archive:  # type: ignore[call-overload]
        for info in archive:
            kind = "folder" if info.isdir() else "file" if info.isreg() else "other"
            yield _Entry(info.name, kind, info.size, partial(archive.extractfile, info))
        while archive.fileobj.read(_CHUNK):  # to the end, where gzip has its checksum
            pass


class _StrictInfo(tarfile.TarInfo):
    """A header that must be sound. By itself, tarfile takes a damaged one for the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            info = super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise  # the mark of the end
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} at offset {archive.offset}") from error
        if info.size < 0:
            raise tarfile.ReadError(f"negative size at offset {archive.offset}")
        return info
