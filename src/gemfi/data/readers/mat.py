"""SVHN's cropped digits, `{train,test,extra}_32x32.mat` (Y. Netzer et al., 2011), MATLAB v5.

The format is read here, and not with scipy: `scipy.io.loadmat` 1.17 ends the process with a
segmentation fault for some files with a changed byte. Only arrays of numbers are read.

    offset 0     text, then at 124 the version and the order of bytes (IM: little-endian)
    offset 128   elements: a type and a size (4 bytes each), then the data; either a matrix, or a
                 matrix packed with zlib
    a matrix     elements again, padded to 8 bytes: flags, sizes, name, numbers (Fortran order);
                 one of up to 4 bytes shares its 8 bytes with its type and size
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.data.readers import base
from gemfi.errors import InputError

_HEADER: Final = 128
_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_V5: Final = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}  # at offset 124: version 1.0
_V73: Final = (b"\x00\x02IM", b"\x02\x00MI")
_MATRIX, _COMPRESSED = 14, 15
_INT8, _INT32, _UINT32 = 1, 5, 6
_TYPES: Final = {  # MATLAB's types of numbers in a file
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_OTHER_CLASSES: Final = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse"}
_NUMERIC_CLASSES: Final = range(6, 16)
_COMPLEX: Final = 0x08
_HEAD: Final = 1024  # bytes that hold flags, sizes and name of any matrix that is read
_MAX_DIMENSIONS: Final = 32


def read_svhn(path: base.PathLike) -> base.Pictures:
    """Read `X` (32, 32, 3, N) and `y` (N, 1), where 10 means the digit zero.

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
    """Read the numeric arrays `names` of a MATLAB v5 file (`save -v6` or `-v7`); read-only."""
    data = base.read_bytes(path)
    reader = _Reader(data, _byte_order(data, path), str(path))
    found: dict[str, npt.NDArray[Any]] = {}
    others = []
    for at, kind, content in reader.elements():
        head, packed = reader.head(at, kind, content)
        matrix = reader.matrix(at, head)
        if matrix.name in names:
            found[matrix.name] = reader.numbers(at, matrix, content, packed)
        else:
            others.append(matrix.name[:40])
    for name in names:
        if name not in found:
            held = ", ".join(sorted([*found, *others])[:20]) or "nothing"
            raise InputError(f"{path} has no variable {name}; it holds: {held}")
    return found


def _byte_order(data: bytes, path: base.PathLike) -> str:
    if _HDF5 in (data[:8], data[512:520]) or data[124:128] in _V73:
        raise InputError(
            f"{path} is a MATLAB 7.3 file (HDF5), which is not read; SVHN is published as "
            "version 5: save it again with save(..., '-v7')"
        )
    if len(data) < _HEADER:
        raise InputError(
            f"{path} is truncated at offset {len(data)}: a MATLAB header has {_HEADER} bytes"
        )
    if data[124:128] not in _V5:
        raise InputError(
            f"{path} is not a MATLAB version 5 file: offset 124 holds {data[124:128].hex(' ')}, "
            "expected 00 01 49 4d"
        )
    return _V5[data[124:128]]


@dataclass(frozen=True)
class _Matrix:
    name: str
    shape: tuple[int, ...]
    kind: int  # MATLAB's class
    is_complex: bool
    numbers_at: int  # in the matrix


@dataclass(frozen=True)
class _Reader:
    data: bytes
    order: str
    path: str

    def fail(self, at: int, problem: str) -> InputError:
        return InputError(f"{self.path} is truncated or corrupt: {problem}, at offset {at}")

    def elements(self) -> Iterator[tuple[int, int, memoryview]]:
        """(offset, type, data) of each element of the file."""
        view, at = memoryview(self.data), _HEADER
        while at < len(view):
            if len(view) < at + 8:
                raise self.fail(at, f"{len(view) - at} bytes are no element")
            kind, size = struct.unpack_from(f"{self.order}II", view, at)
            if at + 8 + size > len(view):
                raise self.fail(at, f"an element of {size} bytes, with {len(view) - at - 8} left")
            yield at, kind, view[at + 8 : at + 8 + size]
            at += 8 + size

    def head(self, at: int, kind: int, content: memoryview) -> tuple[memoryview, int | None]:
        """The beginning of the matrix and, of a packed one, its whole size once unpacked."""
        if kind == _MATRIX:
            return content[:_HEAD], None
        if kind != _COMPRESSED:
            raise self.fail(at, f"an element of type {kind}, expected {_MATRIX} or {_COMPRESSED}")
        head, _ = self.unpacked(at, content, _HEAD + 8)
        if len(head) < 8:
            raise self.fail(at, "a packed element without a matrix")
        inner, size = struct.unpack_from(f"{self.order}II", head)
        if inner != _MATRIX or size > base.MAX_BYTES:
            raise self.fail(at, f"a packed element of type {inner} and {size:,} bytes")
        return memoryview(head)[8:], size

    def unpacked(self, at: int, content: memoryview, limit: int) -> tuple[bytes, bool]:
        """Up to `limit` bytes, and whether that was all (then its checksum is right)."""
        stream = zlib.decompressobj()
        try:
            return stream.decompress(content, limit), stream.eof
        except zlib.error as error:
            raise self.fail(at, str(error)) from error

    def part(self, at: int, data: memoryview, start: int) -> tuple[int, int, int, int]:
        """(type, first byte, size, start of the next) of an element in a matrix."""
        if start + 8 > len(data):
            raise self.fail(at, "a matrix that ends too early")
        (word,) = struct.unpack_from(f"{self.order}I", data, start)
        if word >> 16:  # a small one
            if word >> 16 > 4:
                raise self.fail(at, f"a small element of {word >> 16} bytes")
            return word & 0xFFFF, start + 4, word >> 16, start + 8
        (size,) = struct.unpack_from(f"{self.order}I", data, start + 4)
        return word, start + 8, size, start + 8 + size + -size % 8

    def matrix(self, at: int, head: memoryview) -> _Matrix:
        """Flags, sizes and name."""
        kind, first, size, after = self.part(at, head, 0)
        if kind != _UINT32 or size != 8 or after > len(head):
            raise self.fail(at, "a matrix without flags")
        (flags,) = struct.unpack_from(f"{self.order}I", head, first)
        kind, first, size, after = self.part(at, head, after)
        count, odd = divmod(size, 4)
        if kind != _INT32 or odd or not 2 <= count <= _MAX_DIMENSIONS or after > len(head):
            raise self.fail(at, "a matrix without sizes")
        shape = struct.unpack_from(f"{self.order}{count}i", head, first)
        if min(shape) < 0:
            raise self.fail(at, f"a matrix of shape {shape}")
        kind, first, size, after = self.part(at, head, after)
        if kind != _INT8 or after > len(head):
            raise self.fail(at, "a matrix without a name")
        name = bytes(head[first : first + size]).decode("latin-1")
        return _Matrix(name, shape, flags & 0xFF, bool(flags >> 8 & _COMPLEX), after)

    def numbers(
        self, at: int, matrix: _Matrix, content: memoryview, packed: int | None
    ) -> npt.NDArray[Any]:
        """The array; its size is compared with its shape before it is made."""
        if matrix.kind not in _NUMERIC_CLASSES or matrix.is_complex:
            got = "complex" if matrix.is_complex else _OTHER_CLASSES.get(matrix.kind, matrix.kind)
            raise InputError(f"{self.path}: {matrix.name} must be an array of numbers, got {got}")
        if packed is not None:
            whole, complete = self.unpacked(at, content, packed + 9)
            if len(whole) != packed + 8 or not complete:
                raise self.fail(at, f"{len(whole)} unpacked bytes, expected {packed + 8}")
            content = memoryview(whole)[8:]
        kind, first, size, _ = self.part(at, content, matrix.numbers_at)
        count = math.prod(matrix.shape)
        if kind not in _TYPES or first + size > len(content):
            raise self.fail(at, f"{matrix.name} with {size} bytes of type {kind}")
        dtype = np.dtype(self.order + _TYPES[kind])
        if size != count * dtype.itemsize:
            raise self.fail(at, f"{matrix.name} of shape {matrix.shape} with {size} bytes")
        values = np.frombuffer(content, dtype, count, first)
        return values.reshape(matrix.shape, order="F").astype(dtype.newbyteorder("="), copy=False)
