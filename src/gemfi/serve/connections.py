"""Connections: how many there may be, and how long each may take over its part.

asyncio accepts whatever comes, and when no file descriptor is left it logs that thousands of times
a second. So the listening socket itself counts. At the limit, connections make room that have been
idle longest or have sent half a header; requests beyond it are answered 503, and beyond a small
margin new connections are closed. uvicorn (its `limit_concurrency` included) has no limit on the
time in which a header must come or an answer must be taken; `Connection` has.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
import time
from pathlib import Path
from typing import IO, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gemfi.errors import InputError
from gemfi.serve.logs import log
from gemfi.serve.schemas import ProblemError
from gemfi.serve.settings import Settings

_OWN: Final = 64  # descriptors for the log, the model's files and what libraries open
_MARGIN: Final = 16  # connections beyond the limit, which are there to hear 503
_SLOW: Final = 1.0  # seconds without a header after which a connection may have to make room
_PAUSE: Final = 0.05  # seconds
_GRACE: Final = 1.0  # seconds more than the app waits, since its error message is better


class ConnectionLimit:
    """Counts the connections of a process; beyond `limit` requests are refused."""

    def __init__(self, limit: int) -> None:
        self.limit, self.open = limit, 0
        self.leaving: set[Connection] = set()  # those that are being closed to make room
        self.waiting: dict[Connection, float] = {}  # for a request, since when, the longest first

    @classmethod
    def of(cls, settings: Settings) -> ConnectionLimit:
        """As many as were chosen, or as the limit of open files leaves room for."""
        if sys.platform == "win32":
            return cls(settings.max_connections)
        import resource  # noqa: PLC0415 - not on Windows

        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        others = _OWN + _MARGIN
        if files == resource.RLIM_INFINITY:
            files = others + settings.max_connections
        if files <= others:
            raise InputError(
                f"this process may open {files} files, and a server needs more than {others}: "
                "raise the limit (ulimit -n)"
            )
        return cls(min(settings.max_connections, files - others))

    @property
    def _staying(self) -> int:
        return self.open - len(self.leaving)

    @property
    def is_crowded(self) -> bool:
        """Whether there are more than there may be."""
        return self._staying > self.limit

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another, not even to tell it so."""
        return self._staying >= self.limit + _MARGIN

    def make_room(self) -> None:
        """At the limit, close the connections on which a request was awaited longest."""
        slow = time.monotonic() - _SLOW
        while self._staying >= self.limit and len(self.leaving) < 2 * _MARGIN and self.waiting:
            longest, since = next(iter(self.waiting.items()))
            if since > slow:
                return
            del self.waiting[longest]
            self.leaving.add(longest)
            longest.expire("another needs its place")


class _CountedSocket(socket.socket):
    """A connection that counts until it is closed."""

    limit: ConnectionLimit | None = None

    def close(self) -> None:
        """Close it, and count it no longer."""
        if self.limit is not None:
            self.limit.open -= 1
            self.limit = None
        super().close()


class Listener(socket.socket):
    """A listening socket that keeps to a limit; it takes the place of `listening`."""

    def __init__(self, listening: socket.socket, limit: ConnectionLimit) -> None:
        family, kind, protocol = listening.family, listening.type, listening.proto
        super().__init__(family, kind, protocol, fileno=listening.detach())
        self.limit = limit
        self._spare = _spare()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; a BlockingIOError lets asyncio ask again when one is ready."""
        try:
            plain, address = super().accept()
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE}:
                raise
            self._turn_away()
            raise BlockingIOError from None
        self.limit.make_room()
        if self.limit.is_full:
            plain.close()
            log("connection closed", level=logging.WARNING, reason="too many are open")
            raise BlockingIOError
        counted = _CountedSocket(self.family, self.type, self.proto, fileno=plain.detach())
        counted.limit = self.limit
        self.limit.open += 1
        return counted, address

    def close(self) -> None:
        """Close it."""
        self._spare.close()
        super().close()

    def _turn_away(self) -> None:
        """Close the first connection that waits, with the descriptor that is spared for this.

        If it stayed, the socket would be ready at once again, and the process would spin.
        """
        log("connection closed", level=logging.ERROR, reason="no file descriptor is left")
        self._spare.close()
        try:
            with contextlib.suppress(OSError):
                super().accept()[0].close()
            self._spare = _spare()
        except OSError:
            time.sleep(_PAUSE)


def _spare() -> IO[bytes]:
    """A file descriptor to let go when no other is left."""
    return Path(os.devnull).open("rb")


class Connection(H11Protocol):
    """uvicorn's connection, with a clock for each thing that the client must do.

    A header has `header_timeout` from its first byte, or from the start of the connection; a body
    has `body_timeout`, and so has an answer to be taken. Between requests uvicorn's own
    `timeout_keep_alive` counts. `uvicorn` are its own arguments.
    """

    def __init__(self, settings: Settings, limit: ConnectionLimit, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._settings, self._limit = settings, limit
        self._expected: tuple[str, int] | None = None  # of the client, and in which request
        self._clock: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and wait for a header."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._expect(None)
        self._limit.leaving.discard(self)
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take some bytes."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to take the last answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_later()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        """Close what was idle for too long, even if the client reads nothing."""
        super().timeout_keep_alive_handler()
        self._abort_later()

    def pause_writing(self) -> None:
        """Wait for the client to take what was written."""
        super().pause_writing()
        self._stalled = self._abort_later()

    def resume_writing(self) -> None:
        """Stop waiting: the client took it."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _watch(self) -> None:
        """See what the client must do next, if anything."""
        part = {h11.IDLE: "header", h11.SEND_BODY: "body"}.get(self.conn.their_state)
        if self.timeout_keep_alive_task is not None:
            part = "request"
        if part is None or self.transport.is_closing():
            self._expect(None)
        elif self._expected != (part, id(self.cycle)):
            self._expect((part, id(self.cycle)))

    def _expect(self, expected: tuple[str, int] | None) -> None:
        """Start the clock of what the client must do now."""
        if self._clock is not None:
            self._clock.cancel()
        self._expected, self._clock = expected, None
        self._limit.waiting.pop(self, None)
        part = "" if expected is None else expected[0]
        if part in {"header", "request"}:
            self._limit.waiting[self] = time.monotonic()
        if part in {"header", "body"}:  # uvicorn has a clock for idle connections
            header, body = self._settings.header_timeout, self._settings.body_timeout + _GRACE
            seconds = header if part == "header" else body
            self._clock = self.loop.call_later(seconds, self.expire, f"no {part} in {seconds:g} s")

    def expire(self, reason: str) -> None:
        """Close a connection whose client takes too long."""
        in_header = self._expected is not None and self._expected[0] == "header"
        if in_header and self.conn.trailing_data[0]:  # half of one
            self.transport.write(_late(reason))
        log("connection closed", level=logging.WARNING, reason=reason)
        self.transport.close()
        self._abort_later()

    def _abort_later(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self._settings.body_timeout, self.transport.abort)


def _late(reason: str) -> bytes:
    """The answer to half a header."""
    message = f"the header did not come in time: {reason}"
    answer = ProblemError(408, "slow_header", message, headers={"Connection": "close"}).response()
    headers = b"".join(b"%s: %s\r\n" % header for header in answer.raw_headers)
    return b"HTTP/1.1 408 Request Timeout\r\n%s\r\n%s" % (headers, answer.body)
