"""Locks between processes: the operating system's own, which end with the process that has them.

The file of a lock is empty and stays: another process may be waiting for that very file, and to
delete it under one is not safe on network file systems.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_POLL: Final = 0.1  # seconds between two looks at a lock


@contextlib.contextmanager
def alone(path: Path, taken: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at `path`, and wait for it if another process has it.

    Args:
        path: of the lock; its folder must exist.
        taken: called once if it must be waited for. An exception that it raises ends the waiting.
    """
    with path.open("ab") as file:
        if not try_lock(file):
            taken()
            while not try_lock(file):
                time.sleep(_POLL)
        yield


def try_lock(file: IO[bytes]) -> bool:
    """Lock a file unless another process has it; the lock ends when the file is closed."""
    try:
        if sys.platform == "win32":
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
