"""The idx format of MNIST and its relatives, plain or gzipped (Y. LeCun, C. Cortes, C. Burges).

offset 0   two zero bytes
offset 2   the type of a number
offset 3   the number of dimensions, d
offset 4   d sizes, 4 bytes each, big-endian
then       the numbers, big-endian, the last dimension fastest
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gemfi.data.readers import base
from gemfi.errors import InputError

_TYPES: Final = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_DIMENSIONS: Final = 32  # numpy 1.26 takes no more
_HEADER: Final = 4 + 4 * _MAX_DIMENSIONS  # bytes, at most
_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31  # zlib reads the gzip wrapping, and checks its CRC


def read_idx(path: base.PathLike) -> npt.NDArray[Any]:
    """Read an idx file, gzipped or not, into an array of native byte order.

    Whether it is gzipped is seen from its first bytes: browsers unpack `.gz` without renaming.

    Example:
        >>> read_idx("train-images-idx3-ubyte.gz").shape
        (60000, 28, 28)
    """
    raw = base.read_bytes(path)
    zipped = raw[:2] == _GZIP
    start = _gunzip(raw, _HEADER, path) if zipped else raw
    dtype, shape = _header(start, path)
    offset = 4 + 4 * len(shape)
    expected = offset + dtype.itemsize * math.prod(shape)
    if expected > base.MAX_BYTES:
        raise InputError(
            f"{path}: its header claims {expected:,} bytes (shape {shape}), more than the "
            f"{base.MAX_BYTES:,} that such a file may have"
        )
    data = _gunzip(raw, expected + 1, path) if zipped else raw
    if len(data) < expected:
        raise InputError(
            f"{path} is truncated at offset {len(data)}: shape {shape} of {dtype.name} needs "
            f"{expected} bytes{' unpacked' if zipped else ''}"
        )
    if len(data) > expected:
        extra = "at least 1 byte" if zipped else f"{len(data) - expected} bytes"
        raise InputError(
            f"{path} has {extra} after offset {expected}, where its data ends (shape {shape} of "
            f"{dtype.name})"
        )
    numbers = np.frombuffer(data, dtype, offset=offset).reshape(shape)
    return numbers.astype(dtype.newbyteorder("="))  # a copy: writable


def read_idx_pictures(
    images: base.PathLike, labels: base.PathLike, *, num_classes: int
) -> base.Pictures:
    """Read a pair of idx files, as MNIST has them: (N, H, W) images and (N,) labels.

    Args:
        images: the `idx3-ubyte` file.
        labels: the `idx1-ubyte` file.
        num_classes: labels must be in 0..num_classes - 1.
    """
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or x.dtype != np.uint8:
        raise InputError(f"{images}: expected images, (N, H, W) uint8, got {x.shape} {x.dtype}")
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise InputError(f"{labels}: expected labels, (N,) integers, got {y.shape} {y.dtype}")
    base.require_same_count(len(x), len(y), f"{images} and {labels}")
    y = base.checked_labels(y, str(labels), high=num_classes - 1)
    return base.Pictures(base.channels_first(x, str(images)), y)


def _header(data: bytes, path: base.PathLike) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if len(data) < 4:
        raise InputError(f"{path} is truncated at offset {len(data)}: an idx file begins with 4")
    zeros, code, rank = struct.unpack_from(">HBB", data)
    if zeros != 0 or code not in _TYPES or not 1 <= rank <= _MAX_DIMENSIONS:
        raise InputError(
            f"{path} is not an idx file: it begins with {data[:4].hex(' ')}, expected 00 00, a "
            f"type of {', '.join(f'{known:02x}' for known in _TYPES)}, and 1 to "
            f"{_MAX_DIMENSIONS} dimensions"
        )
    if len(data) < 4 + 4 * rank:
        raise InputError(
            f"{path} is truncated at offset {len(data)}: a header of {rank} dimensions has "
            f"{4 + 4 * rank} bytes"
        )
    return np.dtype(_TYPES[code]), struct.unpack_from(f">{rank}I", data, 4)


def _gunzip(raw: bytes, limit: int, path: base.PathLike) -> bytes:
    """Unpack at most `limit` bytes; every member's CRC and length are checked on the way."""
    unpacked = b""
    while raw and len(unpacked) < limit:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = stream.decompress(raw, limit - len(unpacked))
        except zlib.error as error:
            raise InputError(f"{path} is a corrupt gzip file: {error}") from error
        unpacked = unpacked + part if unpacked else part
        if stream.eof:
            raw = stream.unused_data.lstrip(b"\0")  # gzip allows padding with zeros
        elif len(unpacked) < limit:
            raise InputError(
                f"{path} is a truncated gzip file: it ends at byte {len(raw)} of its data, after "
                f"{len(unpacked)} unpacked bytes"
            )
    return unpacked
