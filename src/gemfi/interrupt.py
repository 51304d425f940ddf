"""Ctrl-C and SIGTERM between steps, and never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM, as batch systems and containers send it: whoever handles Ctrl-C handles it too."""


def interrupt(number: int, _frame: FrameType | None = None) -> NoReturn:
    """The handler of a signal: raise what Python raises at Ctrl-C."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def graceful_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into an event; the second one interrupts at once.

    The loop reads the event between steps. The KeyboardInterrupt that it then raises becomes a
    Terminated if the signal was SIGTERM. Outside the main thread, where Python delivers no signals,
    the event is never set.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    first: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            interrupt(number, frame)
        first.append(number)
        interrupted.set()

    previous = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield interrupted
    except KeyboardInterrupt as stopped:
        if first and type(stopped) is KeyboardInterrupt:
            interrupt(first[0])
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM raise Terminated at once, as Ctrl-C raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
