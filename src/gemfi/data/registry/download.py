"""Downloads: resumed after a break, checked, and in place whole or not at all.

While it is fetched, `a/b.gz` is `a/b.gz.part`, with `a/b.gz.part.meta` that says which version of
the file it is a part of, so that no two versions are ever joined. An empty `a/.b.gz.lock` stays
behind: other processes may be waiting for that very file, and to delete it under them is not safe
on network file systems. The lock itself is the operating system's and ends with its process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
import urllib.request as web
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit

from gemfi._version import __version__
from gemfi.data.registry.archives import byte_bar, sync_folder, unpack
from gemfi.data.registry.record import DIGESTS, RemoteFile, split_checksum
from gemfi.errors import DownloadError, InputError
from gemfi.files import to_json, write_atomically

TIMEOUT: Final = 30.0  # seconds
PAUSES: Final = (1.0, 4.0)  # seconds
_POLL: Final = 0.1  # seconds between two looks at a lock
_CHUNK: Final = 2**18
_CONTENT_RANGE: Final = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_PASSING: Final = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, TimeoutError)
_ELSEWHERE: Final = "give another source with --mirror URL (or GEMFI_MIRROR)"

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


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
    mirror: str | None = None,
    progress: bool | None = None,
    timeout: float = TIMEOUT,
    pauses: tuple[float, ...] = PAUSES,
) -> Fetched:
    """Bring a file into the data folder, or find it there.

    A file that is there must be the published one; it is never overwritten. An archive is
    unpacked and deleted; it counts as there when all members are. One that was placed by hand
    where its download would be is checked and unpacked.

    Args:
        remote: the file.
        root: the data folder; it is made if need be.
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
    found = _found(remote, root, target, show)
    if found is not None:
        return found
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target, quiet=progress is False):
        found = _found(remote, root, target, show)  # it may have been waited for
        if found is not None:
            return found
        download = _Download(remote, url, target, show=show, timeout=timeout)
        already_there = target.exists()  # an archive that was not unpacked yet
        if already_there:
            _require_published(remote, target, show)
        else:
            download.run(pauses)
        if remote.unpacks:
            unpack(target, root, remote.unpacks, progress=show)
            target.unlink()
    path = root if remote.unpacks else target
    verified = remote.checksum is not None
    return Fetched(path, download.received, already_there, download.kept or 0, verified)


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


def _found(remote: RemoteFile, root: Path, target: Path, show: bool) -> Fetched | None:
    """What is said of a file that is there; None if it is not."""
    if remote.unpacks:
        is_here = all((root / member).exists() for member in remote.unpacks)
        return Fetched(root, 0, True, 0, verified=False) if is_here else None
    if not target.exists():
        return None
    _require_published(remote, target, show)
    return Fetched(target, 0, True, 0, verified=remote.checksum is not None)


def _difference(remote: RemoteFile, path: Path, show: bool) -> str | None:
    """How a file differs from what was published, as far as that is known."""
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"expected {remote.size:,} bytes, found {size:,}"
    if remote.checksum is None:
        return None
    found = checksum_of(path, split_checksum(remote.checksum)[0], show)
    return None if found == remote.checksum else f"expected {remote.checksum}, found {found}"


def _require_published(remote: RemoteFile, target: Path, show: bool) -> None:
    if not target.is_file():
        raise InputError(f"{target} is not a file: move it away, and run again to download it")
    difference = _difference(remote, target, show)
    if difference is not None:
        text = f"{target} is not the published file: {difference}"
        raise InputError(f"{text}; to replace it, delete it and run again")


@contextlib.contextmanager
def _alone(target: Path, *, quiet: bool) -> Iterator[None]:
    """Hold the lock of a file; waits, and says so once, while another process has it."""
    with target.with_name(f".{target.name}.lock").open("ab") as file:
        if not _try_lock(file):
            if not quiet:
                print(f"waiting for another process to fetch {target.name}", file=sys.stderr)
            while not _try_lock(file):
                time.sleep(_POLL)
        yield


def _try_lock(file: IO[bytes]) -> bool:
    """Lock a file unless another process has it; it ends when the file is closed."""
    try:
        if sys.platform == "win32":
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


class _BrokenOffError(Exception):
    """An attempt failed in a way that the next may not."""


class _Download:
    """From an address to a file, through its part."""

    def __init__(
        self, remote: RemoteFile, url: str, target: Path, *, show: bool, timeout: float
    ) -> None:
        self.remote, self.url, self.target = remote, url, target
        self.show, self.timeout = show, timeout
        self.part = target.with_name(f"{target.name}.part")
        self.meta = target.with_name(f"{target.name}.part.meta")
        self.total = remote.size  # None while it is not known
        self.received = 0
        self.kept: int | None = None  # of an earlier run; None before the first answer

    def run(self, pauses: tuple[float, ...]) -> None:
        """Download, in several attempts if need be, check, and move to the target."""
        for pause in (*pauses, None):
            try:
                self._attempt()
                break
            except _BrokenOffError as error:
                if pause is None:
                    raise self._given_up(str(error), len(pauses) + 1) from error
                time.sleep(pause)
        difference = _difference(self.remote, self.part, self.show)
        if difference is not None:
            raise self._refused(difference)
        with self.part.open("rb+") as file:
            os.fsync(file.fileno())
        self.part.replace(self.target)
        self.meta.unlink(missing_ok=True)
        sync_folder(self.target.parent)

    def _attempt(self) -> None:
        """Ask once: for the rest if it can be had, else, or if the server will not, for all."""
        start, version = self._resume_point()
        with self._ask(start, version) as answer:
            if answer.status == 200:
                return self._receive(answer, 0, None)
            if answer.status >= 500:
                raise _BrokenOffError(f"HTTP {answer.status} {answer.reason}")
            if not start or answer.status not in {206, 416}:
                raise self._missing(f"HTTP {answer.status} {answer.reason}")
            span = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            first, last = span.groups() if span else (None, None)
            total = int(last) if last not in {None, "*"} else None
            same = version is None or _version(answer.headers) in {None, version}
            if answer.status == 206 and first == str(start) and same:
                return self._receive(answer, start, total)
            if answer.status == 416 and total == start and self.remote.checksum is not None:
                self.kept = start  # it is whole; the checksum decides
                return None
        self._forget()
        return self._attempt()

    def _resume_point(self) -> tuple[int, str | None]:
        """The bytes that can be kept, and the version that they are of.

        With neither a version nor a checksum, two files could be joined unseen: none are kept.
        """
        size = self.part.stat().st_size if self.part.exists() else 0
        try:
            known = json.loads(self.meta.read_bytes()) if self.meta.exists() else {}
            version = known["version"] if known.get("url") == self.url else None
        except (ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{self.meta} is damaged: delete it and run again") from error
        return (0 if version is None and self.remote.checksum is None else size), version

    def _ask(self, start: int, version: str | None) -> Any:
        request = web.Request(self.url, headers={"User-Agent": f"gemfi/{__version__}"})  # noqa: S310
        if start:
            request.add_header("Range", f"bytes={start}-")
            if version is not None:
                request.add_header("If-Range", version)
        try:
            return _opener().open(request, timeout=self.timeout)
        except HTTPError as error:
            return error  # an answer as well
        except URLError as error:
            if isinstance(error.reason, _PASSING):
                raise _BrokenOffError(str(error.reason)) from error
            raise self._missing(str(error.reason)) from error
        except (OSError, HTTPException) as error:
            raise _BrokenOffError(str(error)) from error

    def _receive(self, answer: HTTPResponse, start: int, total: int | None) -> None:
        """Write the answer to the part, from `start` on."""
        published = self.remote.size
        if total is None and answer.length is not None:
            total = start + answer.length
        if total is not None and published not in {None, total}:
            raise self._refused(f"expected {published:,} bytes, the server has {total:,}")
        self.total = published if total is None else total
        if self.total is None and self.remote.checksum is None and not answer.chunked:
            raise self._missing("it comes without a length, so that nobody can tell if it is whole")
        self.kept = start if self.kept is None else min(start, self.kept)
        size = start
        bar = byte_bar(self.target.name, self.show, self.total, start)
        with bar, self.part.open("ab" if start else "wb") as file:
            if not start:
                mark = {"url": self.url, "version": _version(answer.headers)}
                write_atomically(self.meta, to_json(mark).encode())
            for chunk in _chunks(answer):
                file.write(chunk)
                bar.update(len(chunk))
                size += len(chunk)
                self.received += len(chunk)
                if self.total is not None and size > self.total:
                    break  # it is too long, which the check will say
        if self.total is not None and size < self.total:
            raise _BrokenOffError("the connection was closed")

    def _forget(self) -> None:
        self.part.unlink(missing_ok=True)
        self.meta.unlink(missing_ok=True)

    def _missing(self, reason: str) -> DownloadError:
        return DownloadError(
            f"{self.remote.path} is missing: sought it at {self.url}: {' '.join(reason.split())}; "
            f"{_ELSEWHERE}, or place the file at {self.target}"
        )

    def _refused(self, difference: str) -> DownloadError:
        self._forget()
        return DownloadError(
            f"{self.remote.path} from {self.url} is not the published file: {difference}; what was "
            f"downloaded is deleted: run again, or {_ELSEWHERE}"
        )

    def _given_up(self, reason: str, attempts: int) -> DownloadError:
        size, _ = self._resume_point()
        if not size:
            return self._missing(f"{reason} ({attempts} attempts)")
        total = "an unknown number of" if self.total is None else f"{self.total:,}"
        return DownloadError(
            f"{self.url} broke off at {size:,} of {total} bytes ({reason}; {attempts} attempts); "
            f"the part is kept at {self.part}: run again to resume, or {_ELSEWHERE}"
        )


def _version(headers: Message) -> str | None:
    """What names the version of a file; a weak ETag does not tell bytes apart."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _chunks(answer: HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := answer.read1(_CHUNK):
            yield chunk
    except (OSError, HTTPException) as error:
        raise _BrokenOffError(str(error)) from error


class _Proxies(web.ProxyHandler):
    """The proxies of the system, but none on the way to this very machine."""

    def proxy_open(self, req: web.Request, proxy: str, scheme: str) -> Any:
        host = urlsplit(f"//{req.host}").hostname or ""
        if host in {"localhost", "::1"} or host.startswith("127."):
            return None
        return super().proxy_open(req, proxy, scheme)


def _opener() -> web.OpenerDirector:
    """Opens http and https and nothing else, also when redirected."""
    opener = web.OpenerDirector()
    kinds = (web.HTTPHandler, web.HTTPSHandler, web.HTTPRedirectHandler, web.HTTPErrorProcessor)
    for kind in (_Proxies, web.UnknownHandler, web.HTTPDefaultErrorHandler, *kinds):
        opener.add_handler(kind())
    return opener
