"""Running the app: a socket, signals, an end that finishes what was begun, and several workers.

Workers accept from one socket, so that no connection is lost when one of them ends. The parent
passes signals on: SIGTERM and Ctrl-C end all of them in order, SIGHUP lets each read the model
anew. A worker that dies is replaced. Each has a monitor of its own, which sees only what that
worker answers and may raise a false alarm with an equal share of the chosen probability; so the
promise holds for the server, and drift takes the longer to be seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import multiprocessing
import os
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from gemfi.serve.problems import ProblemError
from gemfi.serve.service import ModelSource, Service
from gemfi.serve.settings import Settings

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BACKLOG: Final = 2048
_GRACE: Final = 1.0  # seconds in which connections that stay open hear that the server stops
_TURN: Final = 0.2  # seconds between two looks at the workers
_REST: Final = 1.0  # seconds that a worker lives at least before another takes its place


@dataclass(frozen=True)
class Tls:
    """Files with a certificate (and those that signed it) and its private key without password."""

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
    """A socket that listens; `beyond` allows that it is reached from beyond this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio sends answers at once and does not gather them (no Nagle).
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        if not beyond and not ipaddress.ip_address(listening.getsockname()[0]).is_loopback:
            listening.close()
            raise InputError(
                f"{host} can be reached from beyond this machine: ask for a token (--token-file, "
                "or the variable GEMFI_TOKEN), or let everybody in (--without-token)"
            )
        listening.listen(_BACKLOG)
    except (OSError, OverflowError, TypeError) as error:  # the last of names that cannot be
        listening.close()
        raise InputError(f"cannot listen at {host}, port {port}: {error}") from error
    return listening


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


# -- one process -----------------------------------------------------------------------------------


def run(
    app: FastAPI,
    listening: socket.socket,
    tls: Tls | None = None,
    hangup: Hangup | None = None,
    parent: int | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, finish what was accepted, and return.

    Args:
        app: made by `create_app`.
        listening: made by `listen`.
        tls: a certificate; None to speak HTTP.
        hangup: tells when to read the model anew.
        parent: id of the process of which this is a worker, and with which it ends.
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
        ssl_certfile=None if tls is None else tls.cert,
        ssl_keyfile=None if tls is None else tls.key,
    )
    server = Server(config, service, hangup or Hangup(), parent)
    server.run([Listener(listening, service.connections)])


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


@dataclass(frozen=True)
class Job:
    """What every worker does; `source` can be pickled."""

    source: ModelSource
    settings: Settings
    tls: Tls | None
    workers: int


def run_workers(job: Job, listening: socket.socket) -> int:
    """Serve with several processes until SIGTERM or SIGINT; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="gemfi-metrics-") as folder:
        return _Parent(job, listening, Path(folder)).run()


class _Parent:
    """Starts the workers, passes signals on, and replaces those that die."""

    def __init__(self, job: Job, listening: socket.socket, folder: Path) -> None:
        self._job, self._listening, self._folder = job, listening, folder
        self._hangup = Hangup()
        self._asked_to_stop = self._told_to_stop = 0
        self._started = [0.0] * job.workers
        self._workers: list[SpawnProcess] = []

    def run(self) -> int:
        for sig in _SIGNALS:
            signal.signal(sig, self._note_stop)
        self._workers = [self._start(number) for number in range(self._job.workers)]
        while self._alive() or not self._asked_to_stop:
            wait([worker.sentinel for worker in self._alive()], _TURN)
            self._pass_signals_on()
            if not self._asked_to_stop:
                self._replace_dead()
        fine = {0, -signal.SIGTERM}  # the second of one that was still starting
        return int(any(worker.exitcode not in fine for worker in self._workers))

    def _alive(self) -> list[SpawnProcess]:
        return [worker for worker in self._workers if worker.is_alive()]

    def _note_stop(self, sig: int, frame: FrameType | None) -> None:
        self._asked_to_stop += 1

    def _pass_signals_on(self) -> None:
        if self._hangup.take():
            self._signal(signal.SIGHUP)
        if self._asked_to_stop > self._told_to_stop:
            self._told_to_stop += 1
            self._listening.close()
            self._signal(signal.SIGTERM)

    def _signal(self, sig: signal.Signals) -> None:
        for worker in self._alive():
            if worker.pid is not None:
                os.kill(worker.pid, sig)

    def _start(self, number: int) -> SpawnProcess:
        arguments = (self._job, number, self._listening, self._folder)
        process = multiprocessing.get_context("spawn").Process(target=_work, args=arguments)
        process.start()
        self._started[number] = time.monotonic()
        return process

    def _replace_dead(self) -> None:
        for number, worker in enumerate(self._workers):
            if worker.is_alive() or time.monotonic() < self._started[number] + _REST:
                continue
            log("worker ended", level=logging.ERROR, worker=number, exit_code=worker.exitcode)
            self._workers[number] = self._start(number)


def _work(job: Job, number: int, listening: socket.socket, folder: Path) -> None:
    """Be a worker; `folder` is for the metrics of all."""
    parent, hangup = os.getppid(), Hangup()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_to_stderr(worker=number)
    false_alarm = job.settings.monitor_false_alarm / job.workers
    try:
        bundle, policy = job.source()
        settings = replace(job.settings, monitor_false_alarm=false_alarm)
        app = create_app(bundle, settings, policy, job.source)
    except GemfiError as error:
        log("worker cannot start", level=logging.ERROR, reason=str(error))
        sys.exit(2)
    service: Service = app.state.service
    service.metrics.share(folder, number)
    service.tell_workers = partial(os.kill, parent, signal.SIGHUP)
    log("worker starts", pid=os.getpid())
    run(app, listening, job.tls, hangup, parent)
