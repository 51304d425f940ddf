"""Checksums of files, and how a file differs from the published one."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

from gemfi.data.registry.archives import byte_bar
from gemfi.data.registry.record import DIGESTS, RemoteFile, split_checksum
from gemfi.errors import InputError

_CHUNK: Final = 2**18


def checksum_of(path: Path, kind: str, progress: bool | None = None) -> str:
    """The checksum of a file, as a `RemoteFile` has it: `kind:digits`.

    Example:
        >>> checksum_of(Path("mnist/t10k-labels-idx1-ubyte.gz"), "md5")
        'md5:ec29112dd5afa0611ce80d1b7f02629c'
    """
    if kind not in DIGESTS:
        raise InputError(f"a checksum is one of {', '.join(DIGESTS)}, got {kind!r}")
    show = sys.stderr.isatty() if progress is None else progress
    digest = hashlib.new(kind, usedforsecurity=False)
    bar = byte_bar(f"checking {path.name}", show, path.stat().st_size)
    with bar, path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            bar.update(len(chunk))
    return f"{kind}:{digest.hexdigest()}"


def difference(remote: RemoteFile, path: Path, show: bool) -> str | None:
    """How a file differs from what was published, as far as that is known."""
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"expected {remote.size:,} bytes, found {size:,}"
    if remote.checksum is None:
        return None
    found = checksum_of(path, split_checksum(remote.checksum)[0], show)
    return None if found == remote.checksum else f"expected {remote.checksum}, found {found}"
