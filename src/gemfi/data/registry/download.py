"""Downloads: resumed after a break, checked, and in place whole or not at all.

While it is fetched, `a/b.gz` is `a/b.gz.part`, with `a/b.gz.part.meta` that says which version of
the file it is a part of, so that no two versions are ever joined. An empty `a/.b.gz.lock` stays
behind (see `gemfi._files`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from gemfi._files import hold_lock
from gemfi.data.registry.archives import read_manifest, unpack
from gemfi.data.registry.checksums import difference
from gemfi.data.registry.record import RemoteFile
from gemfi.data.registry.transfer import Transfer
from gemfi.errors import InputError

TIMEOUT: Final = 30.0  # seconds
PAUSES: Final = (1.0, 4.0)  # seconds


@dataclass(frozen=True)
class Fetched:
    """What `fetch_file` did.

    Attributes:
        path: the file; of an archive, the data folder that holds its members.
        downloaded: bytes that were received this time.
        already_there: whether nothing had to be downloaded.
        resumed_from: bytes of an earlier download that were kept.
        verified: whether this call compared the file with a published checksum.
    """

    path: Path
    downloaded: int
    already_there: bool
    resumed_from: int
    verified: bool


def fetch_file(
    remote: RemoteFile,
    root: Path,
    *,
    needs: tuple[str, ...] = (),
    mirror: str | None = None,
    progress: bool | None = None,
    timeout: float = TIMEOUT,
    pauses: tuple[float, ...] = PAUSES,
) -> Fetched:
    """Bring a file into the data folder, or find it there.

    A file that is there must be the published one; it is never overwritten. An archive is
    unpacked and deleted; `is_unpacked` says when it counts as there, and what is missing of it is
    added. One that was placed by hand where its download would be is checked and unpacked.

    Args:
        remote: the file.
        root: the data folder; it is made if need be.
        needs: of an archive, the files that must come out of it: `DataSet.needs`.
        mirror: a base URL; the file is sought at `<mirror>/<path of the file>`.
        progress: whether to show a bar; None: if standard error is a terminal.
        timeout: seconds to wait for a connection, and for the next bytes.
        pauses: seconds between the attempts, of which there is one more.

    Raises:
        DownloadError: it cannot be had, or what came is not what was published.
        InputError: the address is none, or a file that is there already is another one.
    """
    target = _below(root, remote)
    url = _source(remote, mirror)
    show = sys.stderr.isatty() if progress is None else progress
    find = partial(_found, remote, root, target, needs, show)
    found = find()
    if found is not None:
        return found
    target.parent.mkdir(parents=True, exist_ok=True)

    def waiting() -> None:
        if progress is not False:
            print(f"waiting for another process to fetch {target.name}", file=sys.stderr)

    with hold_lock(target.with_name(f".{target.name}.lock"), waiting):
        download = Transfer(remote, url, target, show=show, timeout=timeout)
        return find() or _bring(download, remote, root, target, pauses)  # it may have come


def is_unpacked(remote: RemoteFile, root: Path, needs: tuple[str, ...] = ()) -> bool:
    """Whether an archive was unpacked whole.

    Its members must be there, the files that reading needs, and, where `.gemfi` tells what was
    unpacked, all of that. Only `gemfi data verify` looks into the files.

    Args:
        remote: the archive.
        root: the data folder.
        needs: files that must come out of it: `DataSet.needs`.
    """
    manifest = read_manifest(root, remote.path)
    unpacked = () if manifest is None else manifest.files
    return all((root / name).exists() for name in (*remote.unpacks, *needs, *unpacked))


def _bring(
    download: Transfer, remote: RemoteFile, root: Path, target: Path, pauses: tuple[float, ...]
) -> Fetched:
    """Download a file, unless it is an archive that waits to be unpacked; then unpack it."""
    already_there = target.exists()
    if already_there:
        _require_published(remote, target, download.show)
    else:
        download.run(pauses)
    if remote.unpacks:
        unpack(target, root, remote.unpacks, progress=download.show)
        target.unlink()
    path = root if remote.unpacks else target
    verified = remote.checksum is not None
    return Fetched(path, download.received, already_there, download.kept or 0, verified)


def _below(root: Path, remote: RemoteFile) -> Path:
    parts = remote.path.split("/")
    if "\\" in remote.path or {"", ".", ".."} & set(parts):
        raise InputError(f"the path of a file must lead below the data folder, got {remote.path!r}")
    return root.joinpath(*parts)


def _source(remote: RemoteFile, mirror: str | None) -> str:
    """The address of a file, at its publisher's or at the mirror."""
    if mirror is None:
        _require_web(remote.url, f"the address of {remote.path}")
        return remote.url
    _require_web(mirror, "a mirror")
    if {"?", "#"} & set(mirror):
        raise InputError(f"a mirror is a base URL, without ? and #, got {mirror!r}")
    return f"{mirror.rstrip('/')}/{quote(remote.path)}"


def _require_web(url: str, what: str) -> None:
    try:
        parts, _ = urlsplit(url), urlsplit(url).port
    except ValueError as error:
        raise InputError(f"{what} is not a URL: {error}") from error
    if "@" in parts.netloc:  # not repeated here: it may hold a password
        raise InputError(f"{what} holds a user name; gemfi sends none: use a URL without")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"{what} must begin with http:// or https:// and a host, got {url!r}")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise InputError(f"{what} holds characters that a URL must write as %.., got {url!r}")


def _found(
    remote: RemoteFile, root: Path, target: Path, needs: tuple[str, ...], show: bool
) -> Fetched | None:
    """What is said of a file that is there; None if it is not."""
    if remote.unpacks:
        is_here = is_unpacked(remote, root, needs)
        return Fetched(root, 0, True, 0, verified=False) if is_here else None
    if not target.exists():
        return None
    _require_published(remote, target, show)
    return Fetched(target, 0, True, 0, verified=remote.checksum is not None)


def _require_published(remote: RemoteFile, target: Path, show: bool) -> None:
    if not target.is_file():
        raise InputError(f"{target} is not a file: move it away, and run again to download it")
    differs = difference(remote, target, show)
    if differs is not None:
        text = f"{target} is not the published file: {differs}"
        raise InputError(f"{text}; to replace it, delete it and run again")
