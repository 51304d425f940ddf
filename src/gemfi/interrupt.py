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
    """End what is being done, as Python does at Ctrl-C; the handler of a signal."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def graceful_interrupt() -> Iterator[threading.Event]:
    """Turn the first signal into an event that the loop reads between steps; the second interrupts.

    Signals are Ctrl-C and SIGTERM. A KeyboardInterrupt that the loop raises for the event is a
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

    previous = {each: signal.signal(each, handle) for each in _SIGNALS}
    try:
        yield interrupted
    except KeyboardInterrupt as stopped:
        if first and type(stopped) is KeyboardInterrupt:
            interrupt(first[0])
        raise
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM raise Terminated wherever it comes, as Ctrl-C raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
