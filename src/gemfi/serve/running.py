"""Running the app: a socket, signals, and an end that finishes what was begun."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from gemfi.errors import InputError
from gemfi.serve.logs import log
from gemfi.serve.service import Service

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_GRACE: Final = 1.0
"""Seconds in which connections that stay open hear that the server stops."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 for any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio sends answers at once and does not gather them (no Nagle).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(2048)
    except (OSError, OverflowError, TypeError) as error:  # the last of names that cannot be
        found.close()
        raise InputError(f"cannot listen at {host}, port {port}: {error}") from error
    return found


def address(listening: socket.socket) -> str:
    """Where a socket can be reached, as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: FastAPI, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, finish what was accepted, and return.

    Args:
        app: of `create_app`.
        listening: from `listen`.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=75,
    )
    Server(config, app.state.service).run([listening])


class Server(uvicorn.Server):
    """uvicorn's server, with an end that loses nothing.

    At the first signal the port is closed, so that nobody new comes. Requests on open connections
    that were begun are answered; for a moment those that follow hear 503, with `Connection: close`.
    Then idle connections are closed. A second signal ends it at once.

    Args:
        config: of uvicorn.
        service: that is told of the end.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while it runs; unlike uvicorn, the end by a signal is a success."""
        before = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS}
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
