"""The file of a bundle: safetensors, whose header has a JSON text and a checksum of every byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gemfi._files import (
    CHECKSUM,
    UNSEALED,
    Seal,
    header_end,
    strict_json,
    to_json,
    write_atomically,
)
from gemfi.errors import CheckpointError, InputError

ENDING: Final = ".safetensors"
SCHEMA: Final = 2
"""Of the header."""
OLDEST: Final = 2
"""The earliest schema that is read; what is later than `SCHEMA` is refused as well."""

LARGEST_HEADER: Final = 1 << 24  # bytes; what may be large, such as calibration data, is a tensor
_KEY: Final = "gemfi"
_SEAL: Final = Seal(_KEY, "get it again from where it was made", LARGEST_HEADER)


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
        """Copies of all tensors: what is mapped would change with the file."""
        with safe_open(self.path, framework="pt") as file:
            return {name: file.get_tensor(name).clone() for name in self.shapes}


def write_container(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a file whole or not at all.

    Args:
        path: ends in `.safetensors`.
        header: JSON values.
        tensors: by name.
    """
    check_ending(path)
    try:
        text = to_json({CHECKSUM: UNSEALED, "schema": SCHEMA, **header}, ensure_ascii=True)
        strict_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"metrics= and provenance= must be values of JSON: {error}") from error
    own = {name: each.detach().cpu().clone().contiguous() for name, each in tensors.items()}
    data = save(own, metadata={_KEY: text})
    end = header_end(data)
    if end > LARGEST_HEADER:
        raise InputError(
            f"the description of this model takes {end:,} bytes, and {LARGEST_HEADER:,} is the "
            "limit: leave some of metrics= and provenance= out"
        )
    write_atomically(path, _SEAL.seal(data))


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
        raw = _SEAL.header(file, path)
        header = _described(raw, path)
        schema = _schema(header, path)
        _SEAL.check(file, raw, path)
    try:
        with safe_open(path, framework="pt") as tensors:
            shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged, or no safetensors file: {error}") from error
    content = {key: value for key, value in header.items() if key not in {CHECKSUM, "schema"}}
    return Container(path, schema, content, shapes)


def _described(raw: bytes, path: Path) -> dict[str, Any]:
    """What the header says of the model."""
    text = _SEAL.metadata(raw, path).get(_KEY)
    if not isinstance(text, str):
        raise CheckpointError(
            f"{path} holds tensors, but does not say of which model: it is no bundle of gemfi"
        )
    return _SEAL.parsed(text, path)


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
