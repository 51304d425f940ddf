"""The file of a bundle: safetensors, whose header has a JSON text and a checksum of every byte.

`Description` is what the text says; `write_container` and `read_container` are the file itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gemfi._config import from_plain, to_plain
from gemfi._files import (
    CHECKSUM,
    UNSEALED,
    Seal,
    header_end,
    strict_json,
    to_json,
    write_atomically,
)
from gemfi.backbones import Blueprint
from gemfi.data.inputs import InputSpec
from gemfi.errors import CheckpointError, InputError
from gemfi.methods import method
from gemfi.methods.upgrade import upgraded

ENDING: Final = ".safetensors"
SCHEMA: Final = 2
"""Of the header; it is the only one that is read."""

MODEL: Final = "model."
CALIBRATION: Final = "calibration."
REFERENCE: Final = "reference."
POLICY: Final = "policy.reference."
"""Prefixes of the tensors' names."""

_LARGEST_HEADER: Final = 1 << 24  # bytes; what may be large, such as calibration data, is a tensor
_KEY: Final = "gemfi"
_SEAL: Final = Seal(_KEY, "get it again from where it was made", _LARGEST_HEADER)


@dataclass(frozen=True, kw_only=True)
class Description(InputSpec):
    """A model in words and small numbers, as the header has it; `InputSpec` says what it takes."""

    class_names: tuple[str, ...] = field()
    method: str
    config: Any  # the method's; None for a method without choices
    backbone: Blueprint | None  # by name and arguments; None for a module of somebody's own
    network: str  # the class of the backbone, for people
    num_features: int
    dtype: Literal["float32", "float64"] = "float32"  # of the weights
    channels: int | None = None  # means and spreads that normalise the inputs; None for none
    temperature: bool = False  # whether beliefs have one
    policy: Mapping[str, Any] | None = None  # in plain values, without its reference
    metrics: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)  # environment; spec, facts of a run

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_names)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(to_plain(self))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], where: str) -> Description:
        """The inverse; anything that is not known is refused by name."""
        if not isinstance(plain.get("method"), str):
            raise InputError(f"{where}: field method is missing")
        name, config = upgraded(plain["method"], plain.get("config"))
        plain = {**plain, "method": name, "config": config}
        info = from_plain(cls, plain, where, config=type(method(name).default_config()))
        info.check(where)
        return info


def write_container(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a header of JSON values and named tensors, whole or not at all."""
    check_ending(path)
    try:
        text = to_json({CHECKSUM: UNSEALED, "schema": SCHEMA, **header}, ensure_ascii=True)
        strict_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"metrics= and provenance= must be values of JSON: {error}") from error
    own = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    data = save(own, metadata={_KEY: text})
    end = header_end(data)
    if end > _LARGEST_HEADER:
        raise InputError(
            f"the description of this model takes {end:,} bytes, and {_LARGEST_HEADER:,} is the "
            "limit: leave some of metrics= and provenance= out"
        )
    write_atomically(path, _SEAL.seal(data))


def check_ending(path: Path) -> None:
    """Refuse a name that does not say what the file is."""
    if path.suffix != ENDING:
        raise InputError(f"a bundle is a file that ends in {ENDING}, got {path.name}")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")


def read_container(path: Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Check every byte of a bundle, and read its header and the shapes of its tensors."""
    if not path.is_file():
        raise InputError(f"bundle {path} does not exist: no such file")
    with path.open("rb") as file:
        raw = _SEAL.header(file, path)
        text = _SEAL.metadata(raw, path).get(_KEY)
        if not isinstance(text, str):
            raise CheckpointError(
                f"{path} holds tensors, but does not say of which model: it is no bundle of gemfi"
            )
        header = _SEAL.parsed(text, path)
        _check_schema(header, path)
        _SEAL.check(file, raw, path)
    try:
        with safe_open(path, framework="pt") as tensors:
            shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged, or no safetensors file: {error}") from error
    return {k: v for k, v in header.items() if k not in {CHECKSUM, "schema"}}, shapes


def _check_schema(header: Mapping[str, Any], path: Path) -> None:
    schema = header.get("schema", header.get("format"))  # the first schema had another name for it
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise CheckpointError(f"{path} is damaged: its schema is {schema!r}")
    if schema != SCHEMA:
        what = "is no longer read: write it anew from its run, with gemfi bundle RUN FILE"
        if schema > SCHEMA:
            what = "is of a later version of gemfi: upgrade gemfi"
        raise CheckpointError(f"{path} has schema {schema}, which {what}")
