"""Files: written whole or not at all, as JSON that every parser reads, and read with a reason."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemfi.errors import CheckpointError


def read_json(path: Path, remedy: str) -> Any:
    """What a file of JSON holds, or an error that names it.

    Args:
        path: of a file that gemfi has written.
        remedy: what to do about a damaged one, such as "run gemfi bench again".
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"cannot read {path}: {error}; {remedy}") from error


def to_json(value: Any, **options: Any) -> str:
    """Strict JSON: a number that is not finite (a metric that is not defined) becomes null."""
    return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def write_atomically(path: Path, data: bytes) -> None:
    """Write bytes so that a reader, or a crash, sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut; Windows has no such call for folders."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
