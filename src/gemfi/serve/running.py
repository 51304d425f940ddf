"""Running the app: a socket, signals, and an end that finishes what was begun."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from gemfi.errors import InputError
from gemfi.serve.connections import Connection, Listener
from gemfi.serve.logs import log
from gemfi.serve.problems import ProblemError
from gemfi.serve.service import Service
from gemfi.serve.settings import Settings

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BACKLOG: Final = 2048
_GRACE: Final = 1.0
"""Seconds in which connections that stay open hear that the server stops."""


@dataclass(frozen=True)
class Tls:
    """A certificate and its key, in files.

    Attributes:
        cert: the certificate, and those that it was signed with.
        key: its private key, without a password.
    """

    cert: str
    key: str

    def __post_init__(self) -> None:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.cert, self.key, password="")  # rather than ask for one
        except OSError as error:  # which ssl.SSLError is, too
            raise InputError(
                f"cannot use the certificate {self.cert} with the key {self.key}: {error}"
            ) from error


def listen(host: str, port: int, *, beyond: bool = False) -> socket.socket:
    """A socket that listens.

    Args:
        host: address or name.
        port: 0 for any that is free.
        beyond: whether it may be reached from beyond this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio sends answers at once and does not gather them (no Nagle).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        if not beyond and not ipaddress.ip_address(found.getsockname()[0]).is_loopback:
            found.close()
            raise InputError(
                f"{host} can be reached from beyond this machine: ask for a token (--token-file, "
                "or the variable GEMFI_TOKEN), or let everybody in (--without-token)"
            )
        found.listen(_BACKLOG)
    except (OSError, OverflowError, TypeError) as error:  # the last of names that cannot be
        found.close()
        raise InputError(f"cannot listen at {host}, port {port}: {error}") from error
    return found


def address(listening: socket.socket, tls: Tls | None = None) -> str:
    """Where a socket can be reached, as a URL."""
    host, port = listening.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Hangup:
    """Remembers that SIGHUP came, from the moment that it is made."""

    def __init__(self) -> None:
        self.came = False
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, self._note)

    def _note(self, sig: int, frame: FrameType | None) -> None:
        self.came = True

    def take(self) -> bool:
        """Whether it came since this was asked last."""
        came, self.came = self.came, False
        return came


def run(
    app: FastAPI,
    listening: socket.socket,
    tls: Tls | None = None,
    hangup: Hangup | None = None,
    parent: int | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, finish what was accepted, and return.

    Args:
        app: of `create_app`.
        listening: from `listen`.
        tls: a certificate; None to speak HTTP.
        hangup: tells when to read the model anew.
        parent: process of which this is a worker, with which it ends.
    """
    service: Service = app.state.service
    settings = service.settings
    config = uvicorn.Config(
        app,
        http=partial(Connection, settings, service.gate),  # type: ignore[arg-type]  # what makes one does
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        backlog=_BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.body_timeout + settings.answer_timeout) + 5,
        ssl_certfile=None if tls is None else tls.cert,
        ssl_keyfile=None if tls is None else tls.key,
    )
    server = Server(config, service, hangup or Hangup(), parent)
    server.run([Listener(listening, service.gate)])


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose servers wait no longer for a handshake of TLS than for a header."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """Start to listen."""
        if options.get("ssl") is not None:
            seconds = self._settings.header_timeout
            options |= {"ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": seconds}
        return await super().create_server(*arguments, **options)


class Server(uvicorn.Server):
    """uvicorn's server, with an end that loses nothing.

    At the first signal the port is closed, so that nobody new comes. Requests on open connections
    that were begun are answered; for a moment those that follow hear 503, with `Connection: close`.
    Then idle connections are closed. A second signal ends it at once.

    Args:
        config: of uvicorn.
        service: that is told of the end.
        hangup: tells when to read the model anew.
        parent: process of which this is a worker, with which it ends.
    """

    def __init__(
        self, config: uvicorn.Config, service: Service, hangup: Hangup, parent: int | None
    ) -> None:
        super().__init__(config)
        self._service, self._hangup, self._parent = service, hangup, parent
        self._reloads: set[asyncio.Task[None]] = set()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the end, on a loop whose sockets are our own."""
        with asyncio.Runner(loop_factory=partial(_Loop, self._service.settings)) as runner:
            runner.run(self.serve(sockets))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while it runs; unlike uvicorn, the end by a signal is a success."""
        before = {each: signal.signal(each, self.handle_exit) for each in SIGNALS}
        if self._parent is not None:  # which hears Ctrl-C as well, and passes it on
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop, or stop at once if that was begun."""
        del frame
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        self._service.is_stopping = True
        log("stopping", signal=signal.Signals(sig).name)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: reload if that was asked for, and end with the parent."""
        if self._hangup.take():
            task = asyncio.create_task(self._reload())
            self._reloads.add(task)
            task.add_done_callback(self._reloads.discard)
        if counter % 10 == 0 and self._service.board is not None:
            self._service.metrics()
        if self._parent not in {None, os.getppid()}:
            self.handle_exit(signal.SIGTERM, None)
        return await super().on_tick(counter)

    async def _reload(self) -> None:
        try:
            await self._service.reload()
        except ProblemError:
            pass  # the service has logged it
        except Exception:  # noqa: BLE001 - whatever it is, the old model is served on
            log("not reloaded", level=logging.ERROR, error=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let connections end in order, then end the rest."""
        for server in self.servers:
            server.close()
        for each in sockets or []:
            each.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + _GRACE
        while self.server_state.connections and loop.time() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)
        log("stopped", requests=self.server_state.total_requests)
