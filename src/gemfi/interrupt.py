"""Ctrl-C and SIGTERM between steps, and never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM, as batch systems and containers send it: whoever handles Ctrl-C handles it too."""


def interrupt(number: int, _frame: FrameType | None = None) -> NoReturn:
    """The handler of a signal: raise what Python raises at Ctrl-C."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Handle signals in a block of the main thread; Python delivers none to the others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def terminable() -> AbstractContextManager[None]:
    """Let SIGTERM raise Terminated at once, as Ctrl-C raises KeyboardInterrupt."""
    return _handling(interrupt, signal.SIGTERM)


@contextmanager
def graceful_interrupt() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into an event; the second one interrupts at once.

    The loop reads the event between steps. The KeyboardInterrupt that it then raises becomes a
    Terminated if the signal was SIGTERM.
    """
    interrupted, first = threading.Event(), list[int]()

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            interrupt(number, frame)
        first.append(number)
        interrupted.set()

    with _handling(handle, signal.SIGINT, signal.SIGTERM):
        try:
            yield interrupted
        except KeyboardInterrupt as stopped:
            if first and type(stopped) is KeyboardInterrupt:
                interrupt(first[0])
            raise
