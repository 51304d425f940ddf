"""numpy's own files, `.npy` and `.npz`, with numbers only: nothing is ever unpickled."""

from __future__ import annotations

import io
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.data.readers import base
from gemfi.data.readers.remote import File, opened
from gemfi.errors import InputError

_HEADERS: Final = {  # version -> reader; 3.0 is for structured arrays
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_BROKEN: Final = (  # what numpy and zipfile raise for files cut short or overwritten
    ValueError,
    OSError,
    EOFError,
    SyntaxError,
    TypeError,
    MemoryError,
    RecursionError,
    tokenize.TokenError,
    NotImplementedError,  # a way of packing that zipfile does not know
    RuntimeError,  # an encrypted member
    zipfile.BadZipFile,
    zlib.error,
)


def read_npy(path: base.PathLike) -> npt.NDArray[Any]:
    """Read an array of numbers."""
    data = base.read_bytes(path)
    return _read(io.BytesIO(data), len(data), str(path))


def read_npz(path: base.PathLike, keys: Sequence[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays under `keys`, in that order; None means all of them."""
    path = Path(path)
    with _opened(path) as (archive, members):
        keys = tuple(members) if keys is None else tuple(keys)
        for key in keys:
            if key not in members:
                raise _absent(path, repr(key), members)
        claimed = sum(members[key].file_size for key in keys)
        if claimed > base.MAX_BYTES:
            raise InputError(
                f"{path} claims {claimed:,} unpacked bytes, more than the {base.MAX_BYTES:,} "
                "that such a file may have"
            )
        arrays = {}
        for key in keys:
            where = f"{path}: {key!r}"
            with _broken_is(f"{where} is truncated or corrupt"), archive.open(members[key]) as file:
                arrays[key] = _read(file, members[key].file_size, where)
        return arrays


def stream_array(file: File, rows: int, span: base.Span | None = None) -> Iterator[base.Piece]:
    """The rows of an `.npy` file, or of `x` or `images` in an `.npz` archive, in pieces.

    Args:
        file: to read.
        rows: of a piece.
        span: the rows to read; None for all.
    """
    start = 0 if span is None else span[0]
    for x in stream_rows(file, rows, span=span):
        yield base.Piece([f"{file}[{start + row}]" for row in range(len(x))], x)
        start += len(x)


def stream_rows(
    path: base.PathLike | File,
    rows: int,
    keys: Sequence[str] = ("x", "images"),
    span: base.Span | None = None,
) -> Iterator[npt.NDArray[Any]]:
    """Some rows of an array after the other, read from the file as they are asked for.

    Args:
        path: an `.npy` file, or an `.npz` archive.
        rows: at a time.
        keys: of an archive, the first of these that it holds.
        span: the rows to read; None for all.
    """
    file = Path(path) if isinstance(path, str | os.PathLike) else path
    with _array(file, keys) as (stream, shape, dtype, where):
        size = dtype.itemsize * math.prod(shape[1:])  # of a row
        first, last = (0, shape[0]) if span is None else span
        if first:
            stream.seek(first * size, 1)
        for start in range(first, last, rows):
            count = min(rows, last - start)
            with _broken_is(f"{where} is truncated or corrupt"):
                data = stream.read(count * size)
            if len(data) < count * size:
                missing = count * size - len(data)
                raise InputError(f"{where} is truncated: {missing:,} bytes are missing")
            numbers = np.frombuffer(data, dtype).reshape(count, *shape[1:])
            yield numbers.astype(dtype.newbyteorder("="))


def count_rows(file: File) -> int:
    """The rows of an `.npy` file, by its header."""
    with _array(file, ()) as (_, shape, _, _):
        return shape[0]


def read_array_pictures(path: base.PathLike) -> base.Pictures:
    """Read uint8 images, an `.npy` file or `images` of an `.npz` archive, in any order of axes."""
    if Path(path).suffix.lower() == ".npy":
        return base.Pictures(base.channels_first(read_npy(path), str(path)))
    images = read_npz(path, ["images"])["images"]
    return base.Pictures(base.channels_first(images, f"{path}: 'images'"))


@contextmanager
def _broken_is(problem: str) -> Iterator[None]:
    """What a broken file makes numpy and zipfile raise, as an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(f"{problem}: {error}") from error


@contextmanager
def _opened(path: File) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """An npz archive and its members, by key."""
    size = 0
    with ExitStack() as stack:
        try:
            stream, size = stack.enter_context(opened(path))
            archive = stack.enter_context(zipfile.ZipFile(stream))
        except _BROKEN as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            known = f" ({size} bytes)" if size else ""
            raise InputError(f"cannot read {path}{known} as npz: {reason}") from error
        yield archive, {info.filename.removesuffix(".npy"): info for info in archive.infolist()}


def _absent(path: File, keys: str, members: Iterable[str]) -> InputError:
    return InputError(f"{path} has no array {keys}; it holds: {', '.join(members) or 'nothing'}")


@contextmanager
def _array(
    file: File, keys: Sequence[str]
) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype[Any], str]]:
    """The stream of an array from its first row on, its shape and type, and what to call it."""
    with ExitStack() as stack:
        with _broken_is(f"cannot read {file}"):
            stream, size, where = _stream(file, keys, stack)
        shape, fortran, dtype = _header(stream, size, where)
        if not shape or (fortran and len(shape) > 1):
            raise InputError(
                f"{where}: expected rows one after the other, got shape {shape}"
                f"{', columns first; save np.ascontiguousarray(x)' if fortran else ''}"
            )
        yield stream, shape, dtype, where


def _stream(file: File, keys: Sequence[str], stack: ExitStack) -> tuple[IO[bytes], int, str]:
    """The stream of an array, its size and what to call it."""
    if file.suffix.lower() == ".npy":
        return *stack.enter_context(opened(file)), str(file)
    archive, members = stack.enter_context(_opened(file))
    key = next((key for key in keys if key in members), None)
    if key is None:
        raise _absent(file, " or ".join(keys), members)
    stream = stack.enter_context(archive.open(members[key]))
    return stream, members[key].file_size, f"{file}: {key!r}"


def _read(stream: IO[bytes], size: int, where: str) -> npt.NDArray[Any]:
    """Read the header, compare what it claims with the `size` at hand, then read the numbers."""
    shape, fortran, dtype = _header(stream, size, where)
    with _broken_is(f"{where} is not a whole npy array"):
        data = stream.read()
    if len(data) != dtype.itemsize * math.prod(shape):
        raise InputError(f"{where} is truncated: {len(data)} bytes of numbers for shape {shape}")
    numbers = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    return numbers.astype(dtype.newbyteorder("="), order="C")  # a copy: writable


def _header(
    stream: IO[bytes], size: int, where: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type, if the `size` at hand is what they need."""
    with _broken_is(f"{where} is not a whole npy array"):
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise InputError(f"{where}: npy of version {version} is not read, only 1.0, 2.0")
        shape, fortran, dtype = _HEADERS[version](stream)
        if dtype.hasobject:
            raise InputError(
                f"{where} holds Python objects, which only unpickling could read; save it as "
                "numbers"
            )
        if dtype.kind not in "biuf":
            raise InputError(f"{where} holds {dtype}, expected numbers")
        needed, left = dtype.itemsize * math.prod(shape), size - stream.tell()
        if any(length < 0 for length in shape) or needed != left:
            raise InputError(
                f"{where}: shape {shape} of {dtype} needs {needed} bytes, but {left} follow the "
                "header"
            )
    return shape, fortran, dtype
