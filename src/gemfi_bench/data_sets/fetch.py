"""Downloads: resumed after a break, checked, and in place whole or not at all.

While `a/b.gz` is fetched, it is `a/b.gz.part`. An empty `a/.b.gz.lock` stays behind (see
`gemfi._files`).
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tqdm import tqdm

from gemfi._files import hold_lock, named, require_module
from gemfi._version import __version__
from gemfi.data.registry.entries import RemoteFile, split_checksum
from gemfi.errors import DownloadError, InputError
from gemfi_bench.data_sets.archives import read_manifest, unpack

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
    """Bring a file into the data folder, or find it there; returns where it is.

    A file that is there must be the published one; it is never overwritten. An archive is
    unpacked into the data folder and deleted; files that are missing of an unpacked one are added.

    Args:
        remote: the file.
        root: the data folder; it is made if need be.
        needs: of an archive, the files that must come out of it: `DataSet.needs`.
        mirror: a base URL; the file is sought at `<mirror>/<path of the file>`.
        progress: whether to show a bar; None: if standard error is a terminal.
    """
    target = root / remote.path
    url = remote.url if mirror is None else _mirrored(mirror, remote.path)
    place = root if remote.unpacks else target

    def is_here() -> bool:
        if remote.unpacks:
            return is_unpacked(remote, root, needs)
        return target.exists() and _is_published(remote, target)

    def waiting() -> None:
        if progress is not False:
            print(f"waiting for another process to fetch {target.name}", file=sys.stderr)

    if is_here():
        return place
    target.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(target.with_name(f".{target.name}.lock"), waiting):
        if is_here():  # it came in the meantime
            return place
        if not (target.exists() and _is_published(remote, target)):  # an archive placed by hand
            _Download(remote, url, target, progress).run()
        if remote.unpacks:
            unpack(target, root, remote.unpacks)
            target.unlink()
    return place


def is_unpacked(remote: RemoteFile, root: Path, needs: tuple[str, ...] = ()) -> bool:
    """Whether the members of an archive are there, what reading needs, and all of its manifest."""
    unpacked = read_manifest(root, remote.path) or ()
    return all((root / name).exists() for name in (*remote.unpacks, *needs, *unpacked))


def checksum_of(path: Path, kind: str) -> str:
    """The checksum of a file, as a `RemoteFile` has it: `md5:ec29...`."""
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def _is_published(remote: RemoteFile, target: Path) -> bool:
    """True, or an error: what is there is never overwritten."""
    if not target.is_file():
        raise InputError(f"{target} is not a file: move it away, and run again to download it")
    differs = _difference(remote, target)
    if differs:
        raise InputError(
            f"{target} is not the published file: {differs}; to replace it, delete it and run again"
        )
    return True


def _difference(remote: RemoteFile, path: Path) -> str | None:
    """How a file differs from the published one, if it does."""
    expected, found = f"{remote.size:,} bytes", f"{path.stat().st_size:,}"
    if path.stat().st_size == remote.size:
        expected, found = remote.checksum, checksum_of(path, split_checksum(remote.checksum)[0])
    return None if found == expected else f"expected {expected}, found {found}"


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


@dataclass(frozen=True)
class _Download:
    """One file, fetched from where an earlier download broke off.

    The checksum of the whole tells whether the rest belongs to the same file as the first part.
    """

    remote: RemoteFile
    url: str
    target: Path
    progress: bool | None

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part")

    @property
    def received(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def run(self) -> None:
        """Download the file, check it, and put it in its place."""
        requests = require_module("requests", "downloading data sets")
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - optional

        for pause in (*PAUSES, None):
            try:
                self._attempt(requests)
                break
            except (requests.ConnectionError, requests.Timeout, HTTPError) as error:
                if pause is None:
                    raise self._given_up(str(error)) from error
                time.sleep(pause)
            except requests.RequestException as error:
                raise self._missing(str(error)) from error
        with self.part.open("rb+") as file:
            os.fsync(file.fileno())
        differs = _difference(self.remote, self.part)
        if differs:
            self.part.unlink()
            raise self._other_file(f"{differs}. What was downloaded is deleted: run again, or")
        self.part.replace(self.target)

    def _attempt(self, requests: Any) -> None:
        """Ask once: for the rest where there is a part, else, or if the server will not, for all.

        A part that is whole, or too long, is left to the checksum.
        """
        start, size = self.received, self.remote.size
        if start >= size:
            return None
        # A server that compresses would send other bytes than the published ones.
        headers = {"User-Agent": f"gemfi/{__version__}", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        proxies = {"http": "", "https": ""} if _is_local(self.url) else None
        with requests.get(
            self.url, headers=headers, stream=True, timeout=TIMEOUT, proxies=proxies
        ) as answer:
            status = f"HTTP {answer.status_code} {answer.reason}"
            if answer.status_code >= 500:
                raise requests.ConnectionError(status)
            if answer.status_code not in {200, 206}:
                raise self._missing(status)
            begin = answer.headers.get("Content-Range", "").partition("-")[0]
            if answer.status_code == 206 and begin != f"bytes {start}":
                self.part.unlink()  # it sends another piece than the one that was asked for
                return self._attempt(requests)
            self._receive(answer, start if answer.status_code == 206 else 0)
        if self.received < size:
            raise requests.ConnectionError("the connection was closed")
        return None

    def _receive(self, answer: Any, start: int) -> None:
        """Write an answer to the part, from `start` on, and no more than the published size."""
        size, length = self.remote.size, answer.headers.get("Content-Length")
        if length is not None and start + int(length) != size:
            self.part.unlink(missing_ok=True)
            raise self._other_file(
                f"expected {size:,} bytes, the server has {start + int(length):,};"
            )
        bar = tqdm(
            desc=self.target.name,
            total=size,
            initial=start,
            disable=None if self.progress is None else not self.progress,
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

    def _other_file(self, why: str) -> DownloadError:
        return DownloadError(
            f"{self.remote.path} from {self.url} is not the published file: {why} {_ELSEWHERE}"
        )

    def _missing(self, reason: str) -> DownloadError:
        return DownloadError(
            f"{self.remote.path} is missing: sought it at {self.url}: {' '.join(reason.split())}; "
            f"{_ELSEWHERE}, or place the file at {self.target}"
        )

    def _given_up(self, reason: str) -> DownloadError:
        attempts = f"{len(PAUSES) + 1} attempts"
        if not self.received:
            return self._missing(f"{reason} ({attempts})")
        return DownloadError(
            f"{self.url} broke off at {self.received:,} of {self.remote.size:,} bytes "
            f"({' '.join(reason.split())}; {attempts}); the part is kept at {self.part}: run again "
            f"to resume, or {_ELSEWHERE}"
        )


def _is_local(url: str) -> bool:
    """Whether an address is of this very machine, to which no proxy leads."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")
