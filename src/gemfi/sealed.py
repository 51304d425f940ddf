"""Safetensors files that say by themselves whether they are whole, such as bundles and checkpoints.

The metadata of such a file hold one JSON text, and its first entry is the SHA-256 of the whole file
with sixty-four zeros in its own place. It is checked before anything else of the file is believed;
so what is damaged is refused, wherever it is.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from gemfi.errors import CheckpointError
from gemfi.files import strict_json

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
        found = bytearray(data)
        place = self._place().search(found, 0, header_end(found))
        assert place is not None  # noqa: S101 - the caller has just written it
        found[place.start(1) : place.end(1)] = hashlib.sha256(found).hexdigest().encode()
        return bytes(found)

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
        found = self.parsed(raw, path).get("__metadata__")
        return found if isinstance(found, dict) else {}

    def parsed(self, text: str | bytes, path: Path) -> dict[str, Any]:
        """A JSON object from a file."""
        try:
            found = self.read(text)
        except (ValueError, RecursionError) as error:  # the second where it is nested too deeply
            raise CheckpointError(
                f"{path} is damaged, or no safetensors file: its header is no JSON that can be "
                f"used: {error}; {self.remedy}"
            ) from error
        if not isinstance(found, dict):
            raise CheckpointError(f"{path} is damaged: its header is no mapping; {self.remedy}")
        return found

    def check(self, file: IO[bytes], raw: bytes, path: Path) -> None:
        """Refuse a file that does not have the checksum that it states.

        Args:
            file: read up to the end of its header.
            raw: its header.
            path: for the message.
        """
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


def header_end(data: bytes | bytearray) -> int:
    """Where the header of a safetensors file ends."""
    return _LENGTH + int.from_bytes(data[:_LENGTH], "little")
