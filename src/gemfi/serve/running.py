"""Running the app: a socket, signals, an end that finishes what was begun, and several workers.

Workers accept from one socket, so that no connection is lost when one of them ends. The parent
passes signals on and replaces a worker that dies. Each has a monitor of its own, which may raise a
false alarm with an equal share of the chosen probability: so the promise holds for the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from gemfi.errors import GemfiError, InputError
from gemfi.serve.app import create_app
from gemfi.serve.connections import Connection, Listener
from gemfi.serve.logs import log, log_to_stderr
from gemfi.serve.schemas import ProblemError
from gemfi.serve.service import ModelSource, Service
from gemfi.serve.settings import Settings

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BACKLOG: Final = 2048
_GRACE: Final = 1.0  # seconds in which connections that stay open hear that the server stops
_TURN: Final = 0.2  # seconds between two looks at the workers
_REST: Final = 1.0  # seconds that a worker lives at least before another takes its place


def listen(host: str, port: int, *, beyond: bool = False) -> socket.socket:
    """A socket that listens; `beyond` allows that it is reached from beyond this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio sends answers at once and does not gather them (no Nagle).
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        is_local = ipaddress.ip_address(listening.getsockname()[0]).is_loopback
        if beyond or is_local:
            listening.listen(_BACKLOG)
            return listening
    except (OSError, OverflowError, TypeError) as error:  # the last of names that cannot be
        listening.close()
        raise InputError(f"cannot listen at {host}, port {port}: {error}") from error
    listening.close()
    raise InputError(
        f"{host} can be reached from beyond this machine: ask for a token (--token-file, or the "
        "variable GEMFI_TOKEN), or let everybody in (--without-token)"
    )


def address(listening: socket.socket, scheme: str = "http") -> str:
    """Where a socket can be reached, as a URL."""
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def note_signals(*names: str) -> list[int]:
    """A list that gains these signals as they come, those that the platform has."""
    came: list[int] = []
    for name in names:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda sig, _: came.append(sig))
    return came


# -- one process -----------------------------------------------------------------------------------


def run(
    app: FastAPI, listening: socket.socket, hangups: list[int], parent: int | None = None
) -> None:
    """Serve until SIGTERM or SIGINT, finish what was accepted, and return.

    The model is read anew when `hangups` gains a signal. A worker ends with its `parent`, a pid.
    """
    service: Service = app.state.service
    settings = service.settings
    config = uvicorn.Config(
        app,
        http=partial(Connection, settings, service.connections),  # type: ignore[arg-type]  # what makes one does
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        backlog=_BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.body_timeout + settings.answer_timeout) + 5,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    server = Server(config, service, hangups, parent)
    server.run([Listener(listening, service.connections)])


class Server(uvicorn.Server):
    """uvicorn's server, with an end that loses nothing.

    At the first signal the port is closed, so that nobody new comes. Requests on open connections
    that were begun are answered; for a moment those that follow hear 503, with `Connection: close`.
    Then idle connections are closed. A second signal ends it at once.
    """

    def __init__(
        self, config: uvicorn.Config, service: Service, hangups: list[int], parent: int | None
    ) -> None:
        super().__init__(config)
        self._service, self._hangups, self._parent = service, hangups, parent
        self._reloading: asyncio.Task[None] | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the end, on a loop that asks our own sockets, as uvloop would not."""
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(self.serve(sockets))

    def _make_loop(self) -> asyncio.AbstractEventLoop:
        """A loop whose servers wait no longer for a handshake of TLS than for a header."""
        loop: Any = asyncio.SelectorEventLoop()
        settings = self._service.settings
        if settings.tls_cert is not None:
            names = ("ssl_handshake_timeout", "ssl_shutdown_timeout")
            times = dict.fromkeys(names, settings.header_timeout)
            loop.create_server = partial(loop.create_server, **times)
        return loop  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while it runs; unlike uvicorn, the end by a signal is a success."""
        before = {sig: signal.signal(sig, self.handle_exit) for sig in _SIGNALS}
        if self._parent is not None:  # which hears Ctrl-C as well, and passes it on
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop, or stop at once if that was begun."""
        del frame
        self.force_exit = self.force_exit or self.should_exit
        self.should_exit = self._service.is_stopping = True
        log("stopping", signal=signal.Signals(sig).name)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: reload if that was asked for, and end with the parent."""
        if self._hangups and (self._reloading is None or self._reloading.done()):
            self._hangups.clear()
            self._reloading = asyncio.create_task(self._reload())
        if counter % 10 == 0 and self._service.metrics.is_shared:
            self._service.metrics_text()
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
        for listening in sockets or []:
            listening.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + _GRACE
        while self.server_state.connections and loop.time() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)
        log("stopped", requests=self.server_state.total_requests)


# -- several processes -----------------------------------------------------------------------------


def run_workers(source: ModelSource, settings: Settings, listening: socket.socket) -> int:
    """Serve with several processes until SIGTERM or SIGINT; returns the exit code.

    `source` must be one that can be pickled.
    """
    hangups, stops = note_signals("SIGHUP"), note_signals("SIGINT", "SIGTERM")
    passed_on = 0  # signals to stop
    with tempfile.TemporaryDirectory(prefix="gemfi-metrics-") as folder:
        shared = (source, settings, listening, Path(folder))
        workers = [_Worker(number, shared) for number in range(settings.workers)]
        while (alive := [worker for worker in workers if worker.is_alive()]) or not stops:
            wait([worker.sentinel for worker in alive], _TURN)
            if hangups:
                hangups.clear()
                _tell(alive, signal.SIGHUP)
            if len(stops) > passed_on:
                passed_on += 1
                listening.close()
                _tell(alive, signal.SIGTERM)
            dead = [worker for worker in workers if worker.is_due()]
            for worker in [] if stops else dead:
                number, code = worker.number, worker.exitcode
                log("worker ended", level=logging.ERROR, worker=number, exit_code=code)
                workers[number] = _Worker(number, shared)
    fine = {0, -signal.SIGTERM}  # the second of one that was still starting
    return int(any(worker.exitcode not in fine for worker in workers))


def _tell(workers: list[_Worker], sig: signal.Signals) -> None:
    for worker in workers:
        if worker.is_alive() and worker.pid is not None:
            os.kill(worker.pid, sig)


class _Worker(SpawnProcess):
    """A process that serves; it has been started."""

    def __init__(self, number: int, shared: tuple[Any, ...]) -> None:
        super().__init__(target=_work, args=(number, *shared))
        self.number, self._since = number, time.monotonic()
        self.start()

    def is_due(self) -> bool:
        """Whether another must take its place."""
        return not self.is_alive() and time.monotonic() > self._since + _REST


def _work(
    number: int, source: ModelSource, settings: Settings, listening: socket.socket, folder: Path
) -> None:
    """Be a worker; `folder` is for the metrics of all."""
    parent, hangups = os.getppid(), note_signals("SIGHUP")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_to_stderr(worker=number)
    false_alarm = settings.monitor_false_alarm / settings.workers
    try:
        bundle, policy = source()
        shared = replace(settings, monitor_false_alarm=false_alarm)
        app = create_app(bundle, shared, policy, source)
    except GemfiError as error:
        log("worker cannot start", level=logging.ERROR, reason=str(error))
        sys.exit(2)
    service: Service = app.state.service
    service.metrics.share(folder, number)
    service.tell_workers = partial(os.kill, parent, signal.SIGHUP)
    log("worker starts", pid=os.getpid())
    run(app, listening, hangups, parent)
