"""Files and folders: whole or not at all, sealed, locked, in their place; optional packages."""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import filelock
import platformdirs

from gemfi.errors import CheckpointError, InputError, WriteError

_FULL: Final = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}  # a quota's


def read_json(path: Path, remedy: str) -> Any:
    """What a file of JSON holds; the error for a damaged one names it and ends in `remedy`."""
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
    """
    try:
        value = json.loads(
            text, parse_int=_small_integer, parse_float=_finite_float, parse_constant=_not_a_number
        )
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST}") from None
    level = [value]
    for _ in range(DEEPEST + 1):
        inside: list[Any] = []
        for part in level:
            if isinstance(part, str):
                part.encode()  # a ValueError, for half a surrogate pair
            elif isinstance(part, dict):
                inside += [*part, *part.values()]
            elif isinstance(part, list):
                inside += part
        if not inside:
            return value
        level = inside
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
    """Name the file in the error of a full disk: the system's own does not say which it was."""
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


CHECKSUM: Final = "checksum"
"""The first entry of the JSON text."""

UNSEALED: Final = "0" * 64
"""What stands there until the file is sealed."""

_LENGTH: Final = 8  # bytes of the header's length, at the beginning of every safetensors file
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Seal:
    """How the files of one kind are sealed and checked.

    Attributes:
        key: of the JSON text among the metadata.
        remedy: what to do about a damaged file, for messages.
        largest: bytes of a header; a larger one is not read.
        read: a JSON text to its value; raises a ValueError.
    """

    key: str
    remedy: str
    largest: int = sys.maxsize
    read: Callable[[str | bytes], Any] = strict_json

    def seal(self, data: bytes) -> bytes:
        """The bytes of a file with the checksum in the place of the zeros."""
        place = self._place().search(data, 0, header_end(data))
        assert place is not None  # noqa: S101 - the caller has just written it
        digest = hashlib.sha256(data).hexdigest().encode()
        return data[: place.start(1)] + digest + data[place.end(1) :]

    def header(self, file: IO[bytes], path: Path) -> bytes:
        """The bytes of the header, which are not to be trusted yet."""
        size = path.stat().st_size
        length = int.from_bytes(file.read(_LENGTH), "little")
        if size < _LENGTH or length > min(size - _LENGTH, self.largest):
            claimed = "" if size < _LENGTH else f" whose header claims {length:,} bytes"
            raise CheckpointError(
                f"{path} is no safetensors file, or a truncated one: {size:,} bytes{claimed}; "
                f"{self.remedy}"
            )
        return file.read(length)

    def metadata(self, raw: bytes, path: Path) -> dict[str, Any]:
        """All metadata of a header; empty where there are none."""
        metadata = self.parsed(raw, path).get("__metadata__")
        return metadata if isinstance(metadata, dict) else {}

    def parsed(self, text: str | bytes, path: Path) -> dict[str, Any]:
        """A JSON object from a file."""
        try:
            value = self.read(text)
        except (ValueError, RecursionError) as error:  # the second where it is nested too deeply
            raise CheckpointError(
                f"{path} is damaged, or no safetensors file: its header is no JSON that can be "
                f"used: {error}; {self.remedy}"
            ) from error
        if not isinstance(value, dict):
            raise CheckpointError(f"{path} is damaged: its header is no mapping; {self.remedy}")
        return value

    def check(self, file: IO[bytes], raw: bytes, path: Path) -> None:
        """Refuse a file, read up to the end of its header `raw`, whose checksum is another."""
        place = self._place().search(raw)
        digest = hashlib.sha256(len(raw).to_bytes(_LENGTH, "little"))
        stated = None
        if place is not None:
            stated = place.group(1).decode()
            raw = raw[: place.start(1)] + UNSEALED.encode() + raw[place.end(1) :]
        digest.update(raw)
        while block := file.read(_BLOCK):
            digest.update(block)
        if digest.hexdigest() != stated:
            raise CheckpointError(
                f"{path} is damaged: its bytes do not have the checksum that it states; "
                f"{self.remedy}"
            )

    def _place(self) -> re.Pattern[bytes]:
        """Where the checksum stands in a header."""
        key = re.escape(self.key.encode())
        return re.compile(rb'"%s":"\{\\"%s\\": \\"([0-9a-f]{64})\\"' % (key, CHECKSUM.encode()))


def header_end(data: bytes) -> int:
    """Where the header of a safetensors file ends."""
    return _LENGTH + int.from_bytes(data[:_LENGTH], "little")


@contextmanager
def hold_lock(path: Path, taken: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock at `path`, which ends with its process, and wait while another one has it.

    Args:
        path: of the lock; its folder must exist.
        taken: called once if it must be waited for. An exception that it raises ends the waiting.
    """
    with try_lock(path) as is_mine:
        if is_mine:
            yield
            return
    taken()
    with filelock.FileLock(path).acquire(poll_interval=0.1):
        yield


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock at `path` in the block if it is free; whether it was."""
    lock, is_mine = filelock.FileLock(path), True
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        is_mine = False
    try:
        yield is_mine
    finally:
        lock.release()


DATA_VARIABLE = "GEMFI_DATA"
RUNS_VARIABLE = "GEMFI_RUNS"


def data_root() -> Path:
    """The folder of the data sets, in the platform's cache; it may not exist yet."""
    return _named(DATA_VARIABLE) or platformdirs.user_cache_path("gemfi", False) / "data"


def runs_root() -> Path:
    """The folder of the runs, in the platform's place for data; it may not exist yet."""
    return _named(RUNS_VARIABLE) or platformdirs.user_data_path("gemfi", False) / "runs"


def _named(variable: str) -> Path | None:
    value = os.environ.get(variable)
    if not value:
        return None
    path = Path(value).expanduser()
    nearest = next((place for place in (path, *path.parents) if os.path.exists(place)), path)  # noqa: PTH110
    if nearest.exists() and not nearest.is_dir():
        what = "which is a file" if nearest == path else f"but {nearest} is a file"
        raise InputError(f"{variable} is {path}, {what}; name a folder")
    return path


_PLACES: Final = {  # module -> its package, and the extra of gemfi that it is part of
    "PIL": ("pillow", "data"),
    "jinja2": ("jinja2", "bench"),
    "pooch": ("pooch", "data"),
    "requests": ("requests", "data"),
    "matplotlib": ("matplotlib", "plot"),
    "onnx": ("onnx", "onnx"),
    "onnxscript": ("onnxscript", "onnx"),
    "onnxruntime": ("onnxruntime", "onnx"),
    "fastapi": ("fastapi", "serve"),
    "uvicorn": ("uvicorn", "serve"),
    "python_multipart": ("python-multipart", "serve"),
}


def require_module(name: str, purpose: str) -> Any:
    """Import an optional dependency, or say how to install it.

    Args:
        name: of the module.
        purpose: what needs it, in words.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        package, extra = _PLACES.get(root, (root, None))
        advice = package if extra is None else f"'.[{extra}]' in the clone of gemfi"
        raise InputError(f"{purpose} needs {package}: pip install {advice} ({error})") from error
