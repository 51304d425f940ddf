"""Several processes behind one port: each has the model, and one above them starts and ends them.

The workers accept from one socket, so that none is lost when one of them ends. The parent passes
signals on: SIGTERM and Ctrl-C end all of them in order, SIGHUP lets each read the model anew. A
worker that dies is replaced. Metrics of all are on a `Board`. Each has a monitor of its own, which
sees only what that worker answers and may raise a false alarm with an equal share of the chosen
probability; so the promise holds for the server, and drift takes the longer to be seen.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import Final

from gemfi.errors import GemfiError
from gemfi.serve.app import create_app
from gemfi.serve.board import Board
from gemfi.serve.logs import log, log_to_stderr
from gemfi.serve.running import SIGNALS, Hangup, Tls, run
from gemfi.serve.service import ModelSource
from gemfi.serve.settings import Settings

_TURN: Final = 0.2  # seconds between two looks at the workers
_REST: Final = 1.0  # seconds that a worker lives at least before another takes its place


@dataclass(frozen=True)
class Job:
    """What every worker does.

    Attributes:
        source: where it reads the model; can be pickled.
        settings: of the server.
        tls: a certificate, or None.
        workers: how many there are.
    """

    source: ModelSource
    settings: Settings
    tls: Tls | None
    workers: int


def run_workers(job: Job, listening: socket.socket) -> int:
    """Serve with several processes until SIGTERM or SIGINT; returns the exit code.

    Args:
        job: what each does.
        listening: from `listen`.
    """
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
        for each in SIGNALS:
            signal.signal(each, self._note_stop)
        self._workers = [self._start(number) for number in range(self._job.workers)]
        while any(each.is_alive() for each in self._workers) or not self._asked_to_stop:
            wait([each.sentinel for each in self._workers if each.is_alive()], _TURN)
            self._pass_signals_on()
            if not self._asked_to_stop:
                self._replace_dead()
        fine = {0, -signal.SIGTERM}  # the second of one that was still starting
        return int(any(each.exitcode not in fine for each in self._workers))

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
        for each in self._workers:
            if each.is_alive() and each.pid is not None:
                os.kill(each.pid, sig)

    def _start(self, number: int) -> SpawnProcess:
        arguments = (self._job, number, self._listening, self._folder)
        process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
        process.start()
        self._started[number] = time.monotonic()
        return process

    def _replace_dead(self) -> None:
        for number, each in enumerate(self._workers):
            if each.is_alive() or time.monotonic() < self._started[number] + _REST:
                continue
            log("worker ended", level=logging.ERROR, worker=number, exit_code=each.exitcode)
            self._workers[number] = self._start(number)


def work(job: Job, number: int, listening: socket.socket, folder: Path) -> None:
    """Be a worker.

    Args:
        job: what to do.
        number: of this worker.
        listening: that all share.
        folder: for the metrics of all.
    """
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
    app.state.service.board = Board(folder, number)
    app.state.service.tell_workers = partial(os.kill, parent, signal.SIGHUP)
    log("worker starts", pid=os.getpid())
    run(app, listening, job.tls, hangup, parent)
