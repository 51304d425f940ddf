"""Formats in which publishers give data sets: idx (MNIST), records (CIFAR) and MATLAB v5 (SVHN)."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.data.readers import base
from gemfi.errors import InputError

# idx: two zero bytes, the type of a number, the number of dimensions d; d sizes of 4 bytes; then
# the numbers, the last dimension fastest. Everything is big-endian.
_IDX_TYPES: Final = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_DIMENSIONS: Final = 32  # numpy 1.26 takes no more
_IDX_HEADER: Final = 4 + 4 * _MAX_DIMENSIONS  # bytes, at most
_GZIP: Final = b"\x1f\x8b"


def read_idx(path: base.PathLike) -> npt.NDArray[Any]:
    """Read an idx file, gzipped or not, into an array of native byte order.

    Whether it is gzipped is seen from its first bytes: browsers unpack `.gz` without renaming.

    Example:
        >>> read_idx("train-images-idx3-ubyte.gz").shape
        (60000, 28, 28)
    """
    raw = base.read_bytes(path)
    zipped = raw[:2] == _GZIP
    dtype, shape = _idx_header(_gunzip(raw, _IDX_HEADER, path) if zipped else raw, path)
    offset = 4 + 4 * len(shape)
    expected = offset + dtype.itemsize * math.prod(shape)
    what = f"shape {shape} of {dtype.name} needs {expected:,} bytes"
    if expected > base.MAX_BYTES:
        raise InputError(f"{path}: {what}, more than the {base.MAX_BYTES:,} that it may have")
    data = _gunzip(raw, expected + 1, path) if zipped else raw
    if len(data) != expected:
        state = "is truncated" if len(data) < expected else "goes on after its numbers"
        count = f"{len(data):,} or more" if zipped and len(data) > expected else f"{len(data):,}"
        raise InputError(f"{path} {state}: {what}, and there are {count}")
    numbers = np.frombuffer(data, dtype, offset=offset).reshape(shape)
    return numbers.astype(dtype.newbyteorder("="))  # a copy: writable


def read_idx_pictures(
    images: base.PathLike, labels: base.PathLike, *, num_classes: int
) -> base.Pictures:
    """Read a pair of idx files, as MNIST has them: (N, H, W) images and (N,) labels."""
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or x.dtype != np.uint8:
        raise InputError(f"{images}: expected images, (N, H, W) uint8, got {x.shape} {x.dtype}")
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise InputError(f"{labels}: expected labels, (N,) integers, got {y.shape} {y.dtype}")
    base.require_same_count(len(x), len(y), f"{images} and {labels}")
    y = base.checked_labels(y, str(labels), high=num_classes - 1)
    return base.Pictures(base.channels_first(x, str(images)), y)


def _idx_header(data: bytes, path: base.PathLike) -> tuple[np.dtype[Any], tuple[int, ...]]:
    zeros, code, rank = struct.unpack(">HBB", data[:4].ljust(4, b"\xff"))
    if zeros != 0 or code not in _IDX_TYPES or not 1 <= rank <= _MAX_DIMENSIONS:
        raise InputError(
            f"{path} is not an idx file: it begins with {data[:4].hex(' ')}, expected 00 00, a "
            f"type of {', '.join(f'{known:02x}' for known in _IDX_TYPES)}, and 1 to "
            f"{_MAX_DIMENSIONS} dimensions"
        )
    if len(data) < 4 + 4 * rank:
        raise InputError(f"{path} is truncated: its header of {4 + 4 * rank} bytes is not whole")
    return np.dtype(_IDX_TYPES[code]), struct.unpack_from(f">{rank}I", data, 4)


def _gunzip(raw: bytes, limit: int, path: base.PathLike) -> bytes:
    """Unpack at most `limit` bytes; checksums are compared on the way."""
    try:
        with gzip.open(io.BytesIO(raw)) as stream:
            return stream.read(limit)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is a truncated or corrupt gzip file: {error}") from error


# CIFAR's binary files: records of label bytes (CIFAR-100: coarse, then fine) and 3,072 bytes of
# pixels, the red, green and blue planes of 32×32.
_PIXELS: Final = 3 * 32 * 32
_MAX_CIFAR: Final = 512 * 2**20  # the largest published file has 155 MB


def read_cifar10(*paths: base.PathLike) -> base.Pictures:
    """Read `.bin` files of CIFAR-10, one after the other: records of 3,073 bytes."""
    return _read_records(paths, (10,))


def read_cifar100(*paths: base.PathLike) -> base.Pictures:
    """Read `.bin` files of CIFAR-100: records of 3,074 bytes; labels are the fine ones."""
    return _read_records(paths, (20, 100))


def _read_records(paths: tuple[base.PathLike, ...], classes: tuple[int, ...]) -> base.Pictures:
    """Images and the last label of each record; `classes` has a number for each label byte."""
    parts = []
    size = len(classes) + _PIXELS
    for path in paths:
        data = np.frombuffer(base.read_bytes(path, _MAX_CIFAR), np.uint8)
        count, remainder = divmod(len(data), size)
        if remainder:
            raise InputError(
                f"{path}: {len(data)} bytes are {count} records of {size} bytes and {remainder} "
                f"bytes more, from offset {count * size}; the file is truncated, or of another "
                "CIFAR"
            )
        records = data.reshape(count, size)
        for column, num_classes in enumerate(classes):
            base.checked_labels(records[:, column], str(path), high=num_classes - 1)
        parts.append(records)
    records = np.concatenate(parts)
    images = records[:, len(classes) :].reshape(-1, 3, 32, 32).copy()
    return base.Pictures(images, records[:, len(classes) - 1].astype(np.int64))


# MATLAB v5: 128 bytes of header, of which the last four are the version and the order of bytes (IM:
# little-endian); then elements. An element is a type and a size, 4 bytes each, and its data; one of
# up to 4 bytes may share its first 8 bytes with type and size. A matrix is an element of elements:
# flags, sizes, name, numbers in Fortran order; or such an element packed with zlib.
#
# The format is read here, and not with scipy: `scipy.io.loadmat` 1.17 ends the process with a
# segmentation fault where the type of a matrix or of its numbers is damaged.
_MAT_HEADER: Final = 128
_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_BYTE_ORDERS: Final = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}  # at offset 124: version 1.0
_V73: Final = (b"\x00\x02IM", b"\x02\x00MI")
_MATRIX, _COMPRESSED = 14, 15
_MAT_TYPES: Final = {  # of numbers in a file
    **dict(enumerate(("i1", "u1", "i2", "u2", "i4", "u4", "f4"), start=1)),
    9: "f8",
    12: "i8",
    13: "u8",
}
_OTHER_CLASSES: Final = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse"}
_NUMERIC_CLASSES: Final = range(6, 16)
_COMPLEX: Final = 0x0800

Element = tuple[int, bytes]
"""Type and data."""
_EMPTY: Final[Element] = (0, b"")


class _CorruptError(Exception):
    """What is wrong with a MATLAB file, without its name."""


def read_svhn(path: base.PathLike) -> base.Pictures:
    """Read SVHN's `X` (32, 32, 3, N) and `y` (N, 1), where 10 means the digit zero.

    A file with a part of the images is as good as a whole one: `len` of the result says how many
    there are, so name it as what it is.
    """
    variables = read_mat(path, ("X", "y"))
    images, labels = variables["X"], variables["y"]
    if images.ndim == 3:
        images = images[..., None]  # MATLAB drops a last dimension of 1
    if images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3) or images.ndim != 4:
        raise InputError(
            f"{path}: X must be uint8 of shape (32, 32, 3, N), got {images.dtype} {images.shape}"
        )
    if labels.ndim != 2 or 1 not in labels.shape:
        raise InputError(f"{path}: y must have shape (N, 1), got {labels.shape}")
    base.require_same_count(images.shape[3], labels.size, str(path))
    digits = base.checked_labels(labels.reshape(-1), f"{path}: y", low=1, high=10)
    return base.Pictures(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits % 10)


def read_mat(path: base.PathLike, names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """Read the numeric arrays `names` of a MATLAB v5 file (`save -v6` or `-v7`)."""
    data = base.read_bytes(path)
    order = _byte_order(data, path)
    arrays: dict[str, npt.NDArray[Any]] = {}
    others = []
    try:
        for element in _elements(data[_MAT_HEADER:], order):
            name, flags, shape, numbers = _matrix(element, order)
            if name not in names:
                others.append(name[:40])
                continue
            kind = flags & 0xFF
            if kind not in _NUMERIC_CLASSES or flags & _COMPLEX:
                got = "complex" if flags & _COMPLEX else _OTHER_CLASSES.get(kind, kind)
                raise InputError(f"{path}: {name} must be an array of numbers, got {got}")
            arrays[name] = _array(name, shape, numbers, order)
    except _CorruptError as error:
        raise InputError(f"{path} is truncated or corrupt: {error}") from error
    for name in names:
        if name not in arrays:
            held = ", ".join(sorted([*arrays, *others])[:20]) or "nothing"
            raise InputError(f"{path} has no variable {name}; it holds: {held}")
    return arrays


def _byte_order(data: bytes, path: base.PathLike) -> str:
    if _HDF5 in (data[:8], data[512:520]) or data[124:128] in _V73:
        raise InputError(
            f"{path} is a MATLAB 7.3 file (HDF5), which is not read; SVHN is published as "
            "version 5: save it again with save(..., '-v7')"
        )
    if data[124:128] not in _BYTE_ORDERS:
        raise InputError(
            f"{path} is not a MATLAB version 5 file: offset 124 of {len(data)} bytes holds "
            f"'{data[124:128].hex(' ')}', expected 00 01 49 4d"
        )
    return _BYTE_ORDERS[data[124:128]]


def _elements(data: bytes, order: str) -> Iterator[Element]:
    at = 0
    while at < len(data):
        if at + 8 > len(data):
            raise _CorruptError(f"{len(data) - at} bytes are no element")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start = at + 8
        if kind >> 16:  # a small one
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            if size > 4:
                raise _CorruptError(f"a small element of {size} bytes")
        if start + size > len(data):
            raise _CorruptError(f"an element of {size:,} bytes, with {len(data) - start:,} left")
        yield kind, data[start : start + size]
        padding = 0 if kind == _COMPRESSED else -(start + size) % 8
        at = start + size + padding


def _unpacked(content: bytes, order: str) -> Element:
    """The matrix in a packed element."""
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(content, base.MAX_BYTES)
    except zlib.error as error:
        raise _CorruptError(str(error)) from error
    if not stream.eof:  # then its checksum was compared
        raise _CorruptError(f"a packed element ends too early, after {len(data):,} bytes")
    return next(_elements(data, order), _EMPTY)


def _matrix(element: Element, order: str) -> tuple[str, int, tuple[int, ...], Iterator[Element]]:
    """Name, flags, shape and the elements that are left, of which the first are the numbers."""
    kind, content = element
    if kind == _COMPRESSED:
        kind, content = _unpacked(content, order)
    if kind != _MATRIX:
        raise _CorruptError(f"an element of type {kind}, expected a matrix")
    parts = _elements(content, order)
    (_, flags), (_, sizes), (_, name) = (next(parts, _EMPTY) for _ in range(3))
    count = len(sizes) // 4
    if len(flags) != 8 or len(sizes) % 4 or not 2 <= count <= _MAX_DIMENSIONS:
        raise _CorruptError("a matrix without flags or sizes")
    shape = struct.unpack(f"{order}{count}i", sizes)
    return name.decode("latin-1"), struct.unpack(f"{order}II", flags)[0], shape, parts


def _array(
    name: str, shape: tuple[int, ...], parts: Iterator[Element], order: str
) -> npt.NDArray[Any]:
    kind, content = next(parts, _EMPTY)
    if kind not in _MAT_TYPES:
        raise _CorruptError(f"{name} has numbers of type {kind}")
    dtype = np.dtype(order + _MAT_TYPES[kind])
    if min(shape) < 0 or len(content) != math.prod(shape) * dtype.itemsize:
        raise _CorruptError(f"{name} of shape {shape} with {len(content)} bytes")
    values = np.frombuffer(content, dtype)
    return values.reshape(shape, order="F").astype(dtype.newbyteorder("="), copy=False)
