"""Files that are elsewhere, as pyarrow names and reads them: `s3://bucket/folder/rows.parquet`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gemfi._files import require_module
from gemfi.errors import InputError


@dataclass(frozen=True)
class RemoteFile:
    """A file of a file system of pyarrow's; other processes can open it, too."""

    filesystem: Any
    path: str  # in the file system
    address: str  # for people

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        """Without its folder."""
        return PurePosixPath(self.path).name

    @property
    def suffix(self) -> str:
        """The ending of its name."""
        return PurePosixPath(self.path).suffix

    def open(self) -> IO[bytes]:
        """A stream of its bytes, in which one can seek."""
        stream: IO[bytes] = self.filesystem.open_input_file(self.path)
        return stream

    def fetched(self) -> IO[bytes]:
        """Its bytes in memory."""
        with self.open() as stream:
            return io.BytesIO(stream.read())


File = Path | RemoteFile


@contextmanager
def opened(file: File) -> Iterator[tuple[IO[bytes], int]]:
    """A stream of the bytes of a file, and how many there are."""
    with file.open("rb") if isinstance(file, Path) else file.open() as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        yield stream, size


def is_remote(path: Path | str) -> bool:
    """Whether a path names a file system, as `s3://` does."""
    return isinstance(path, str) and "://" in path


def list_remote(address: str) -> tuple[list[RemoteFile], bool]:
    """The file at an address, or all below a folder, by name; and whether it is a folder."""
    fs = require_module("pyarrow.fs", f"reading {address}")
    try:
        filesystem, root = fs.FileSystem.from_uri(address)
        found = filesystem.get_file_info(root)
        is_folder = found.type == fs.FileType.Directory
        below = [found]
        if is_folder:
            below = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    except (OSError, ValueError) as error:  # pyarrow's own are of these
        raise InputError(f"cannot read {address}: {error}") from error
    if found.type == fs.FileType.NotFound:
        raise InputError(f"{address} does not exist")
    name, length = address.partition("?")[0].rstrip("/"), len(root.rstrip("/"))
    paths = sorted(entry.path for entry in below if entry.is_file)
    return [RemoteFile(filesystem, path, name + path[length:]) for path in paths], is_folder
