"""A large tensor that is written a few rows at a time, by a process that may be killed.

Two files beside the one that is wanted: `.part` begins like it and grows at its end; `.blocks` has
a line for each block of rows that is in it for certain, with a checksum. Who comes after a kill
keeps the blocks that are whole, cuts off the rest, and goes on. When all rows are there, `.part` is
the file: a safetensors file as `write_tensors` writes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from gemfi._files import appending, sync_folder, write_atomically
from gemfi.training.stored import digest_line, tensor_bytes

NAME: Final = "features"
"""The tensor in the file."""

_ITEM: Final = 4  # bytes of a number
_ALIGNED: Final = 8  # bytes; the header of a safetensors file is filled up with spaces
_UNKNOWN: Final = "0" * 32  # as long as a digest, in whose place it stands


class Growing:
    """Float32 rows (N, D) on their way into a file. One process at a time: hold a lock.

    Args:
        file: that is wanted, ending in `.safetensors`.
        rows: N.
        width: D.
        name: of what is stored, for who looks into the file.
    """

    def __init__(self, file: Path, rows: int, width: int, name: str = "") -> None:
        self.file, self.rows, self.width = file, rows, width
        self.part, self.journal = file.with_suffix(".part"), file.with_suffix(".blocks")
        self.done = 0  # rows that are in the file for certain
        self._header = _header(rows, width, name)
        self._digest = hashlib.blake2b(
            digest_line(NAME, torch.float32, (rows, width)), digest_size=16
        )
        self._resume()

    def append(self, rows: Tensor) -> None:
        """Add the next rows (B, D) for good: they last through a kill, and a power cut."""
        block = tensor_bytes(rows.contiguous())
        with appending(self.part) as file:
            file.write(block)
        # after the rows: a line for a block that is not there would be found out, but cost a block
        with appending(self.journal) as file:
            file.write(_line(len(rows), block))
        self._digest.update(block)
        self.done += len(rows)

    def finish(self) -> None:
        """Put the checksum in its place, and the file in its own."""
        place = self._header.index(_UNKNOWN.encode())
        with self.part.open("r+b") as file:
            file.seek(place)
            file.write(self._digest.hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        self.part.replace(self.file)
        sync_folder(self.file.parent)
        self.journal.unlink()

    def _resume(self) -> None:
        """Keep the blocks that are whole, from the first on; everything else begins anew."""
        kept = self._whole_blocks() if self.part.exists() and self.journal.exists() else []
        if not kept:
            write_atomically(self.part, self._header)
        os.truncate(self.part, len(self._header) + self.done * self.width * _ITEM)
        write_atomically(self.journal, b"".join(kept))

    def _whole_blocks(self) -> list[bytes]:
        """Their lines, up to the first that is not there as its line says; counted and summed."""
        kept: list[bytes] = []
        with self.part.open("rb") as file:
            if file.read(len(self._header)) != self._header:
                return kept
            for line in self.journal.read_bytes().splitlines(keepends=True):
                count = line.split(b" ")[0]
                rows = int(count) if count.isdigit() else 0
                if not 0 < rows <= self.rows - self.done:
                    break
                block = file.read(rows * self.width * _ITEM)
                if _line(rows, block) != line:  # torn, or the line itself is
                    break
                self._digest.update(block)
                self.done += rows
                kept.append(line)
        return kept


def _header(rows: int, width: int, name: str) -> bytes:
    """The beginning of a safetensors file with one tensor."""
    described = {
        "__metadata__": {"digest": _UNKNOWN, "name": name},
        NAME: {
            "dtype": "F32",
            "shape": [rows, width],
            "data_offsets": [0, rows * width * _ITEM],
        },
    }
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text


def _line(rows: int, block: bytes | memoryview) -> bytes:
    return f"{rows} {hashlib.blake2b(block, digest_size=16).hexdigest()}\n".encode()
