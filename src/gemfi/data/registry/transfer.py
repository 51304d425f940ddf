"""One transfer over HTTP: from an address to a file, through its part, resumed where it can be."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request as web
from collections.abc import Iterator
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from gemfi._files import named, sync_folder, to_json, write_atomically
from gemfi._version import __version__
from gemfi.data.registry.archives import byte_bar
from gemfi.data.registry.checksums import difference
from gemfi.data.registry.record import RemoteFile
from gemfi.errors import DownloadError, InputError

_CHUNK: Final = 2**18
_CONTENT_RANGE: Final = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_PASSING: Final = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, TimeoutError)
_ELSEWHERE: Final = "give another source with --mirror URL (or GEMFI_MIRROR)"


class _BrokenOffError(Exception):
    """An attempt failed in a way that the next may not."""


class Transfer:
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
        differs = difference(self.remote, self.part, self.show)
        if differs is not None:
            raise self._refused(differs)
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
        with bar, named(self.part), self.part.open("ab" if start else "wb") as file:
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

    def _refused(self, differs: str) -> DownloadError:
        self._forget()
        return DownloadError(
            f"{self.remote.path} from {self.url} is not the published file: {differs}; what was "
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
