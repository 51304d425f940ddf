"""numpy's own files, `.npy` and `.npz`, with numbers only: nothing is ever unpickled."""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.data.readers import base
from gemfi.errors import InputError

_KINDS: Final = "biuf"
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
    try:
        archive = zipfile.ZipFile(path)
    except _BROKEN as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        size = f" ({path.stat().st_size} bytes)" if path.is_file() else ""
        raise InputError(f"cannot read {path}{size} as npz: {reason}") from error
    with archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        chosen = tuple(members) if keys is None else tuple(keys)
        for key in chosen:
            if key not in members:
                held = ", ".join(members) or "nothing"
                raise InputError(f"{path} has no array {key!r}; it holds: {held}")
        claimed = sum(members[key].file_size for key in chosen)
        if claimed > base.MAX_BYTES:
            raise InputError(
                f"{path} claims {claimed:,} unpacked bytes, more than the {base.MAX_BYTES:,} "
                "that such a file may have"
            )
        return {key: _member(archive, members[key], f"{path}: {key!r}") for key in chosen}


def stream_rows(
    path: base.PathLike, rows: int, keys: Sequence[str] = ("x", "images")
) -> Iterator[npt.NDArray[Any]]:
    """Some rows of an array after the other, read from the file as they are asked for.

    Args:
        path: an `.npy` file, or an `.npz` archive.
        rows: at a time.
        keys: of an archive, the first of these that it holds.
    """
    path = Path(path)
    with ExitStack() as stack:
        try:
            stream, size, where = _opened(path, keys, stack)
        except _BROKEN as error:
            raise InputError(f"cannot read {path}: {error}") from error
        shape, fortran, dtype = _header(stream, size, where)
        if not shape or (fortran and len(shape) > 1):
            raise InputError(
                f"{where}: expected rows one after the other, got shape {shape}"
                f"{', columns first; save np.ascontiguousarray(x)' if fortran else ''}"
            )
        for start in range(0, shape[0], rows):
            count = min(rows, shape[0] - start)
            wanted = count * dtype.itemsize * math.prod(shape[1:])
            try:
                data = stream.read(wanted)
            except _BROKEN as error:
                raise InputError(f"{where} is truncated or corrupt: {error}") from error
            if len(data) < wanted:
                raise InputError(f"{where} is truncated: {wanted - len(data):,} bytes are missing")
            numbers = np.frombuffer(data, dtype).reshape(count, *shape[1:])
            yield numbers.astype(dtype.newbyteorder("="))


def _opened(path: Path, keys: Sequence[str], stack: ExitStack) -> tuple[IO[bytes], int, str]:
    """The stream of an array, its size and what to call it."""
    if path.suffix.lower() == ".npy":
        return stack.enter_context(path.open("rb")), path.stat().st_size, str(path)
    archive = stack.enter_context(zipfile.ZipFile(path))
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    key = next((key for key in keys if key in members), None)
    if key is None:
        held = ", ".join(members) or "nothing"
        raise InputError(f"{path} has no array {' or '.join(keys)}; it holds: {held}")
    stream = stack.enter_context(archive.open(members[key]))
    return stream, members[key].file_size, f"{path}: {key!r}"


def read_array_pictures(
    path: base.PathLike,
    *,
    images: str = "images",
    labels: str | None = None,
    num_classes: int | None = None,
) -> base.Pictures:
    """Read images, and labels if `labels` names them, from an `.npz` or a lone `.npy` file.

    Args:
        path: an `.npy` file holds the images alone.
        images: key of the images: uint8, (N, H, W), (N, H, W, C) or (N, C, H, W).
        labels: key of the labels, (N,).
        num_classes: labels must be in 0..num_classes - 1; it is needed with `labels`.
    """
    if Path(path).suffix.lower() == ".npy":
        if labels is not None:
            raise InputError(f"{path} is one array and has no key {labels!r}; labels need an npz")
        return base.Pictures(base.channels_first(read_npy(path), str(path)))
    if labels is None:
        x = read_npz(path, [images])[images]
        return base.Pictures(base.channels_first(x, f"{path}: {images!r}"))
    if num_classes is None:
        raise InputError(f"{path}: labels need num_classes, to check them against")
    found = read_npz(path, [images, labels])
    x, y = base.channels_first(found[images], f"{path}: {images!r}"), found[labels]
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise InputError(f"{path}: {labels!r} must be (N,) integers, got {y.shape} {y.dtype}")
    base.require_same_count(len(x), len(y), str(path))
    return base.Pictures(x, base.checked_labels(y, f"{path}: {labels!r}", high=num_classes - 1))


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> npt.NDArray[Any]:
    try:
        with archive.open(info) as stream:
            return _read(stream, info.file_size, where)
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(f"{where} is truncated or corrupt: {error}") from error


def _read(stream: IO[bytes], size: int, where: str) -> npt.NDArray[Any]:
    """Read the header, compare what it claims with the `size` at hand, then read the numbers."""
    shape, fortran, dtype = _header(stream, size, where)
    try:
        data = stream.read()
    except _BROKEN as error:
        raise InputError(f"{where} is not a whole npy array: {error}") from error
    if len(data) != dtype.itemsize * math.prod(shape):
        raise InputError(f"{where} is truncated: {len(data)} bytes of numbers for shape {shape}")
    numbers = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    return numbers.astype(dtype.newbyteorder("="), order="C")  # a copy: writable


def _header(
    stream: IO[bytes], size: int, where: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type, if the `size` at hand is what they need."""
    try:
        version = np.lib.format.read_magic(stream)
        shape, fortran, dtype = _HEADERS[version](stream)
        _check_header(shape, dtype, size - stream.tell(), where)
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"{where}: npy of version {error} is not read, only 1.0, 2.0") from error
    except _BROKEN as error:
        raise InputError(f"{where} is not a whole npy array: {error}") from error
    return shape, fortran, dtype


def _check_header(shape: tuple[int, ...], dtype: np.dtype[Any], size: int, where: str) -> None:
    if dtype.hasobject:
        raise InputError(
            f"{where} holds Python objects, which only unpickling could read; save it as numbers"
        )
    if dtype.kind not in _KINDS:
        raise InputError(f"{where} holds {dtype}, expected numbers")
    needed = dtype.itemsize * math.prod(shape)
    if any(length < 0 for length in shape) or needed != size:
        raise InputError(
            f"{where}: shape {shape} of {dtype} needs {needed} bytes, but {size} follow the header"
        )
