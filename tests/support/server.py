"""The real server process: started on a free port, asked until it answers, and stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 60.0
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class RunningServer:
    """A server process.

    Attributes:
        url: where it answers, such as `http://127.0.0.1:40123`.
        process: of the server.
        log: the file that has what it writes to standard error, a line of JSON a request.
    """

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def events(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def terminate(self) -> None:
        """Ask it to stop, and do not wait."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit code, once it has stopped."""
        return self.process.wait(STOP_SECONDS)


@contextmanager
def running_server(
    log: Path,
    *arguments: str,
    program: Sequence[str] = ("-m", "gemfi"),
    **variables: str,
) -> Iterator[RunningServer]:
    """`gemfi serve ... --port 0` as a process of its own; it is stopped at the end.

    Args:
        log: file for its standard error.
        arguments: of `gemfi serve`, such as `--demo`.
        program: what python runs.
        variables: of its environment, besides this one's.
    """
    command = [sys.executable, *program, "serve", *arguments, "--port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        try:
            yield RunningServer(_started(process, log), process, log)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _started(process: subprocess.Popen[str], log: Path) -> str:
    """Its address, as soon as it answers."""
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"https?://\S+:\d+", line)
    assert found, f"the server did not start: {line!r}, {log.read_text(encoding='utf-8')[-2000:]}"
    url, until = found.group(), time.monotonic() + START_SECONDS
    trusting = ssl._create_unverified_context() if url.startswith("https") else None  # noqa: S323
    while True:
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=5, context=trusting) as answer:  # noqa: S310
                assert answer.status == 200
                return url
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert process.poll() is None, log.read_text(encoding="utf-8")[-2000:]
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)
