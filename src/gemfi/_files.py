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
from contextlib import contextmanager, suppress
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


def strict_json(text: str | bytes) -> Any:
    """JSON of a stranger, or a ValueError that says what is wrong with it.

    Integers are of 64 bits, other numbers finite, texts can be encoded, and nothing is nested
    deeper than `DEEPEST`.
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
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"an integer of {len(digits)} digits is beyond 64 bits")
    return int(digits)


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


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON whole or not at all, a line a value."""
    write_atomically(path, to_json(value, indent=1).encode() + b"\n")


def write_atomically(path: Path, data: bytes) -> None:
    """Write bytes so that a reader, or a crash, sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file that takes the place of `path` at the end of the block.

    If anything fails, `path` stays as it was and nothing else is left.
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
    """A file that grows at its end, written through to the disk at the end of the block.

    A full disk may leave part of a record in it: its reader must know a whole one.
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
        text = f"cannot write {path}: {os.strerror(error.errno)}; make room there and run again"
        failed = WriteError(text)
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


CHECKSUM: Final = "checksum"  # the first entry of the JSON text
UNSEALED: Final = "0" * 64  # what stands there until the file is sealed
_LENGTH: Final = 8  # bytes of the header's length, at the beginning of every safetensors file


@dataclass(frozen=True)
class Seal:
    """How safetensors files of one kind are sealed with a checksum of their bytes, and checked."""

    key: str  # of the JSON text among the metadata
    remedy: str  # what to do about a damaged file, for messages
    largest: int = sys.maxsize  # bytes of a header; a larger one is not read
    read: Callable[[str | bytes], Any] = strict_json  # raises a ValueError

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
        while block := file.read(1 << 20):
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

    `taken` is called once if it must be waited for; what it raises ends the waiting.
    """
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        taken()
        lock.acquire(poll_interval=0.1)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock at `path` in the block if it is free; whether it was."""
    lock = filelock.FileLock(path)
    with suppress(filelock.Timeout):
        lock.acquire(timeout=0)
    try:
        yield lock.is_locked
    finally:
        lock.release()


DATA_VARIABLE = "GEMFI_DATA"


def data_root() -> Path:
    """The folder of the data sets, in the platform's cache; it may not exist yet."""
    return _folder(DATA_VARIABLE, platformdirs.user_cache_path("gemfi", False) / "data")


def runs_root() -> Path:
    """The folder of the runs, in the platform's place for data; it may not exist yet."""
    return _folder("GEMFI_RUNS", platformdirs.user_data_path("gemfi", False) / "runs")


def _folder(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    if not value:
        return default
    path = Path(value).expanduser()
    nearest = next((place for place in (path, *path.parents) if os.path.exists(place)), path)  # noqa: PTH110
    if nearest.exists() and not nearest.is_dir():
        what = "which is a file" if nearest == path else f"but {nearest} is a file"
        raise InputError(f"{variable} is {path}, {what}; name a folder")
    return path


_EXTRAS: Final = {  # of gemfi: the modules that each brings
    "bench": ("jinja2",),
    "data": ("PIL", "requests"),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "plot": ("matplotlib",),
    "ray": ("ray",),
    "serve": ("fastapi", "prometheus_client", "python_multipart", "uvicorn"),
}


def require_module(name: str, purpose: str) -> Any:
    """Import an optional dependency for a purpose, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        package = "pillow" if root == "PIL" else root.replace("_", "-")
        extras = [extra for extra, modules in _EXTRAS.items() if root in modules]
        advice = f"'.[{extras[0]}]' in the clone of gemfi" if extras else package
        raise InputError(f"{purpose} needs {package}: pip install {advice} ({error})") from error
