"""Downloads: resumed after a break, checked, and in place whole or not at all.

pooch compares checksums and puts the file in its place. While it is fetched, `a/b.gz` is
`a/b.gz.part`. An empty `a/.b.gz.lock` stays behind (see `gemfi._files`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tqdm import tqdm

from gemfi._files import hold_lock, named, require_module
from gemfi._version import __version__
from gemfi.data.registry.archives import read_manifest, unpack
from gemfi.data.registry.entries import RemoteFile, split_checksum
from gemfi.errors import DownloadError, InputError

TIMEOUT: Final = 30.0  # seconds to wait for a connection, and for the next bytes
PAUSES: Final = (1.0, 4.0)  # seconds between the attempts, of which there is one more
_CHUNK: Final = 2**18
_ELSEWHERE: Final = "give another source with --mirror URL (or GEMFI_MIRROR)"


def fetch_file(
    remote: RemoteFile,
    root: Path,
    *,
    needs: tuple[str, ...] = (),
    mirror: str | None = None,
    progress: bool | None = None,
) -> Path:
    """Bring a file into the data folder, or find it there.

    A file that is there must be the published one; it is never overwritten. An archive is
    unpacked and deleted, and what is missing of it is added. One that was placed by hand where its
    download would be is checked and unpacked.

    Args:
        remote: the file.
        root: the data folder; it is made if need be.
        needs: of an archive, the files that must come out of it: `DataSet.needs`.
        mirror: a base URL; the file is sought at `<mirror>/<path of the file>`.
        progress: whether to show a bar; None: if standard error is a terminal.

    Returns:
        The file; of an archive, the data folder that holds its members.

    Raises:
        DownloadError: it cannot be had, or what came is not what was published.
        InputError: the mirror is no address, or a file that is there already is another one.
    """
    target = root / remote.path
    url = remote.url if mirror is None else _mirrored(mirror, remote.path)
    place = root if remote.unpacks else target

    def is_here() -> bool:
        if remote.unpacks:
            return is_unpacked(remote, root, needs)
        if target.exists():
            _require_published(remote, target)
        return target.exists()

    def waiting() -> None:
        if progress is not False:
            print(f"waiting for another process to fetch {target.name}", file=sys.stderr)

    if is_here():
        return place
    target.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(target.with_name(f".{target.name}.lock"), waiting):
        if is_here():  # it came in the meantime
            return place
        if target.exists():
            _require_published(remote, target)
        else:
            show = sys.stderr.isatty() if progress is None else progress
            _download(remote, url, target, show)
        if remote.unpacks:
            unpack(target, root, remote.unpacks)
            target.unlink()
    return place


def is_unpacked(remote: RemoteFile, root: Path, needs: tuple[str, ...] = ()) -> bool:
    """Whether an archive was unpacked whole.

    Its members must be there, the files that reading needs, and, where `.gemfi` tells what was
    unpacked, all of that. Only `gemfi data verify` looks into the files.

    Args:
        remote: the archive.
        root: the data folder.
        needs: files that must come out of it: `DataSet.needs`.
    """
    unpacked = read_manifest(root, remote.path) or ()
    return all((root / name).exists() for name in (*remote.unpacks, *needs, *unpacked))


def checksum_of(path: Path, kind: str) -> str:
    """The checksum of a file, as a `RemoteFile` has it: `kind:digits`.

    Example:
        >>> checksum_of(Path("mnist/t10k-labels-idx1-ubyte.gz"), "md5")
        'md5:ec29112dd5afa0611ce80d1b7f02629c'
    """
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def _require_published(remote: RemoteFile, target: Path) -> None:
    if not target.is_file():
        raise InputError(f"{target} is not a file: move it away, and run again to download it")
    size, checksum = target.stat().st_size, remote.checksum
    differs = f"expected {remote.size:,} bytes, found {size:,}" if size != remote.size else None
    if differs is None and (here := checksum_of(target, split_checksum(checksum)[0])) != checksum:
        differs = f"expected {checksum}, found {here}"
    if differs is not None:
        raise InputError(
            f"{target} is not the published file: {differs}; to replace it, delete it and run again"
        )


def _mirrored(mirror: str, path: str) -> str:
    """The address of a file at a mirror."""
    try:
        parts, _ = urlsplit(mirror), urlsplit(mirror).port
    except ValueError as error:
        raise InputError(f"a mirror is not a URL: {error}") from error
    if "@" in parts.netloc:  # not repeated here: it may hold a password
        raise InputError("a mirror holds a user name; gemfi sends none: use a URL without")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"a mirror must begin with http:// or https:// and a host, got {mirror!r}")
    if {"?", "#", " "} & set(mirror) or not (mirror.isascii() and mirror.isprintable()):
        raise InputError(
            f"a mirror is a base URL, without ? and #, and with %.. for other characters, got "
            f"{mirror!r}"
        )
    return f"{mirror.rstrip('/')}/{quote(path)}"


def _download(remote: RemoteFile, url: str, target: Path, show: bool) -> None:
    """Download a file, check it, and put it in its place."""
    pooch = require_module("pooch", "downloading data sets")
    pooch.get_logger().setLevel(logging.WARNING)  # its notes repeat what we say
    try:
        pooch.retrieve(
            url,
            known_hash=remote.checksum,
            fname=target.name,
            path=target.parent,
            downloader=_Downloader(remote, target, show=show),
        )
    except ValueError as error:  # the checksum is another one
        raise DownloadError(
            f"{remote.path} from {url} is not the published file: {' '.join(str(error).split())} "
            f"What was downloaded is deleted: run again, or {_ELSEWHERE}"
        ) from error


class _Downloader:
    """Downloads for pooch, and goes on where an earlier download broke off.

    That the rest belongs to the same file as the first part, the checksum of the whole says.

    Args:
        remote: the file.
        target: where it goes in the end; the part stands beside it.
        show: whether to show a bar.
    """

    def __init__(self, remote: RemoteFile, target: Path, *, show: bool) -> None:
        self.remote, self.target, self.show = remote, target, show
        self.part = target.with_name(f"{target.name}.part")

    def __call__(self, url: str, output_file: str, _pooch: Any) -> None:
        """Called by pooch, which then compares the checksum and moves the file."""
        requests = require_module("requests", "downloading data sets")
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - optional

        for pause in (*PAUSES, None):
            try:
                self._attempt(requests, url)
                break
            except (requests.ConnectionError, requests.Timeout, HTTPError) as error:
                if pause is None:
                    raise self._given_up(url, str(error)) from error
                time.sleep(pause)
            except requests.RequestException as error:
                raise self._missing(url, str(error)) from error
        with self.part.open("rb+") as file:
            os.fsync(file.fileno())
        self.part.replace(output_file)

    def _attempt(self, requests: Any, url: str) -> None:
        """Ask once: for the rest where there is a part, else, or if the server will not, for all.

        A part that is whole, or too long, is left to the checksum.
        """
        start, size = self._size(), self.remote.size
        if start >= size:
            return None
        # A server that compresses would send other bytes than the published ones.
        headers = {"User-Agent": f"gemfi/{__version__}", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        proxies = {"http": "", "https": ""} if _is_local(url) else None
        with requests.get(
            url, headers=headers, stream=True, timeout=TIMEOUT, proxies=proxies
        ) as answer:
            status = f"HTTP {answer.status_code} {answer.reason}"
            if answer.status_code >= 500:
                raise requests.ConnectionError(status)
            if answer.status_code not in {200, 206}:
                raise self._missing(url, status)
            begin = answer.headers.get("Content-Range", "").partition("-")[0]
            if answer.status_code == 206 and begin != f"bytes {start}":
                self.part.unlink()  # it sends another piece than the one that was asked for
                return self._attempt(requests, url)
            self._receive(answer, start if answer.status_code == 206 else 0, url)
        if self._size() < size:
            raise requests.ConnectionError("the connection was closed")
        return None

    def _receive(self, answer: Any, start: int, url: str) -> None:
        """Write an answer to the part, from `start` on, and no more than the published size."""
        size, length = self.remote.size, answer.headers.get("Content-Length")
        if length is not None and start + int(length) != size:
            self.part.unlink(missing_ok=True)
            raise DownloadError(
                f"{self.remote.path} from {url} is not the published file: expected {size:,} "
                f"bytes, the server has {start + int(length):,}; {_ELSEWHERE}"
            )
        bar = tqdm(
            desc=self.target.name,
            total=size,
            initial=start,
            disable=not self.show,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            leave=False,
        )
        with bar, named(self.part), self.part.open("ab" if start else "wb") as file:
            for chunk in answer.raw.stream(_CHUNK, decode_content=False):
                file.write(chunk)
                bar.update(len(chunk))
                if file.tell() > size:
                    break  # the checksum will refuse it; more of it would only fill the disk

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _missing(self, url: str, reason: str) -> DownloadError:
        return DownloadError(
            f"{self.remote.path} is missing: sought it at {url}: {' '.join(reason.split())}; "
            f"{_ELSEWHERE}, or place the file at {self.target}"
        )

    def _given_up(self, url: str, reason: str) -> DownloadError:
        attempts = f"{len(PAUSES) + 1} attempts"
        if not self._size():
            return self._missing(url, f"{reason} ({attempts})")
        return DownloadError(
            f"{url} broke off at {self._size():,} of {self.remote.size:,} bytes "
            f"({' '.join(reason.split())}; {attempts}); the part is kept at {self.part}: run again "
            f"to resume, or {_ELSEWHERE}"
        )


def _is_local(url: str) -> bool:
    """Whether an address is of this very machine, to which no proxy leads."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")
