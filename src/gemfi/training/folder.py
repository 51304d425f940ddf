"""The folder of a run: its files, and one process in it at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gemfi._files import hold_lock
from gemfi.errors import CheckpointError, InputError

CHECKPOINT: Final = "checkpoint.safetensors"
LOG: Final = "log.jsonl"
LOCK: Final = ".lock"


@contextlib.contextmanager
def lock_run_dir(folder: Path) -> Iterator[None]:
    """Keep others out of the folder of a run, which is created; a second one is refused."""

    def taken() -> None:
        raise CheckpointError(
            f"another process is training in {folder}; wait for it, or use another folder"
        )

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(
            f"run_dir {folder} cannot be created: a file is in its place, or in that of a folder "
            "above it; give another one (--out, or GEMFI_RUNS)"
        ) from None
    with hold_lock(folder / LOCK, taken):
        yield
