"""The file of a bundle: safetensors, whose header holds a JSON text and a checksum of every byte.

The checksum is the SHA-256 of the whole file with sixty-four zeros in its own place. It is looked
at before anything else of the file is believed; so what is damaged is refused, wherever it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gemfi.errors import CheckpointError, InputError
from gemfi.files import strict_json, to_json, write_atomically

ENDING: Final = ".safetensors"
SCHEMA: Final = 2
"""Of the header."""
OLDEST: Final = 2
"""The earliest schema that is read; what is later than `SCHEMA` is refused as well."""

LARGEST_HEADER: Final = 1 << 24  # bytes; what may be large, such as calibration data, is a tensor
_KEY: Final = "gemfi"
_LENGTH: Final = 8  # bytes of the header's length, at the beginning of every safetensors file
_ZEROS: Final = b"0" * 64
_PLACE: Final = re.compile(rb'"gemfi":"\{\\"checksum\\": \\"([0-9a-f]{64})\\"')
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Container:
    """A file whose checksum was right.

    Attributes:
        path: of the file.
        schema: of its header.
        header: what the JSON says, without checksum and schema.
        shapes: of the tensors.
    """

    path: Path
    schema: int
    header: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, which are as large as the file at most."""
        with safe_open(self.path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in self.shapes}


def write_container(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a file whole or not at all.

    Args:
        path: ends in `.safetensors`.
        header: JSON values.
        tensors: by name.
    """
    check_ending(path)
    try:
        text = to_json({"checksum": _ZEROS.decode(), "schema": SCHEMA, **header}, ensure_ascii=True)
        strict_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"metrics= and provenance= must be values of JSON: {error}") from error
    own = {name: each.detach().cpu().clone().contiguous() for name, each in tensors.items()}
    data = bytearray(save(own, metadata={_KEY: text}))
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    if end > LARGEST_HEADER:
        raise InputError(
            f"the description of this model takes {end:,} bytes, and {LARGEST_HEADER:,} is the "
            "limit: leave some of metrics= and provenance= out"
        )
    place = _PLACE.search(data, 0, end)
    assert place is not None  # noqa: S101 - written a few lines above
    data[place.start(1) : place.end(1)] = hashlib.sha256(data).hexdigest().encode()
    write_atomically(path, bytes(data))


def check_ending(path: Path) -> None:
    """Refuse a name that does not say what the file is."""
    if path.suffix != ENDING:
        raise InputError(f"a bundle is a file that ends in {ENDING}, got {path.name}")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")


def read_container(path: Path) -> Container:
    """Check a file and read its header.

    Args:
        path: of a bundle.
    """
    if not path.is_file():
        raise InputError(f"bundle {path} does not exist: no such file")
    with path.open("rb") as file:
        raw = _raw_header(file, path)
        header = _described(raw, path)
        schema = _schema(header, path)
        _check_sum(file, raw, path)
    try:
        with safe_open(path, framework="pt") as tensors:
            shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged, or no safetensors file: {error}") from error
    content = {key: value for key, value in header.items() if key not in {"checksum", "schema"}}
    return Container(path, schema, content, shapes)


def _raw_header(file: IO[bytes], path: Path) -> bytes:
    size = path.stat().st_size
    length = int.from_bytes(file.read(_LENGTH), "little")
    if size < _LENGTH or length > size - _LENGTH or length > LARGEST_HEADER:
        claimed = "" if size < _LENGTH else f" whose header claims {length:,} bytes"
        raise CheckpointError(
            f"{path} is no safetensors file, or a truncated one: {size:,} bytes{claimed}"
        )
    return file.read(length)


def _described(raw: bytes, path: Path) -> dict[str, Any]:
    """What the header says of the model."""
    outer = _parsed(raw, path)
    metadata = outer.get("__metadata__")
    text = metadata.get(_KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise CheckpointError(
            f"{path} holds tensors, but does not say of which model: it is no bundle of gemfi"
        )
    return _parsed(text, path)


def _parsed(text: str | bytes, path: Path) -> dict[str, Any]:
    try:
        found = strict_json(text)
    except ValueError as error:
        raise CheckpointError(
            f"{path} is damaged, or no safetensors file: its header is no JSON that can be used: "
            f"{error}"
        ) from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is damaged: its header is no mapping")
    return found


def _schema(header: dict[str, Any], path: Path) -> int:
    schema = header.get("schema", header.get("format"))  # the first schema had another name for it
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise CheckpointError(f"{path} is damaged: its schema is {schema!r}")
    if schema < OLDEST:
        raise CheckpointError(
            f"{path} has schema {schema} of the time before the first release, which is no longer "
            "read: write it anew from its run, with gemfi bundle RUN FILE"
        )
    if schema > SCHEMA:
        raise CheckpointError(
            f"{path} was written by a later version of gemfi: schema {schema}, and this one reads "
            f"up to {SCHEMA}; upgrade gemfi"
        )
    return schema


def _check_sum(file: IO[bytes], raw: bytes, path: Path) -> None:
    place = _PLACE.search(raw)
    digest = hashlib.sha256(len(raw).to_bytes(_LENGTH, "little"))
    stated = None
    if place is not None:
        stated = place.group(1).decode()
        raw = raw[: place.start(1)] + _ZEROS + raw[place.end(1) :]
    digest.update(raw)
    while block := file.read(_BLOCK):
        digest.update(block)
    if digest.hexdigest() != stated:
        raise CheckpointError(
            f"{path} is damaged: its bytes do not have the checksum that it states; get it again "
            "from where it was made"
        )
