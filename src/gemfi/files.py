"""Files: written whole or not at all, as JSON that every parser reads, and read with a reason."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from gemfi.errors import CheckpointError, WriteError

_FULL: Final = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}  # a quota's


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


DEEPEST: Final = 32
"""Lists and mappings inside of each other that `strict_json` takes."""
_INT64: Final = 2**63


def strict_json(text: str | bytes) -> Any:
    """JSON of a stranger, or a ValueError that says what is wrong with it.

    What comes back can be used without care: integers are of 64 bits, other numbers are finite,
    texts can be encoded, and nothing is nested deeper than `DEEPEST`.

    Args:
        text: of JSON.
    """
    try:
        found = json.loads(
            text, parse_int=_small_integer, parse_float=_finite_float, parse_constant=_not_a_number
        )
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST}") from None
    level = [found]
    for _ in range(DEEPEST + 1):
        _check_texts(level)
        level = [inner for each in level for inner in _parts(each)]
        if not level:
            return found
    raise ValueError(f"it is nested deeper than {DEEPEST}")


def _small_integer(digits: str) -> int:
    value = int(digits) if len(digits) <= 20 else _INT64
    if not -_INT64 <= value < _INT64:
        raise ValueError(f"an integer of {len(digits)} digits is beyond 64 bits")
    return value


def _finite_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def _check_texts(values: list[Any]) -> None:
    for each in values:
        if isinstance(each, str) and not each.isascii():
            each.encode()  # a ValueError, for half a surrogate pair


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
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file that takes the place of `path` at the end of the block.

    If anything fails, on a full disk for example, `path` stays as it was and nothing else is left.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with named(path):
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def appending(path: Path) -> Iterator[IO[bytes]]:
    """A file that grows at its end, for good at the end of the block: it lasts through a power cut.

    What a full disk has left of a record stays in the file: its reader must know a whole one.
    """
    with named(path), path.open("ab") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Name the file in the error of a full disk: the system's own does not say which it was.

    Args:
        path: of what is being written, as its user knows it.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.errno not in _FULL or isinstance(error, WriteError):
            raise
        failed = WriteError(
            f"cannot write {path}: {os.strerror(error.errno)}; make room there and run again"
        )
        failed.errno = error.errno
        raise failed from error


def sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut; Windows has no such call for folders."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
