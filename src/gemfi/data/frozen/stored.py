"""Tensors in a safetensors file that says by itself whether it is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gemfi.errors import InputError
from gemfi.files import write_atomically

# The last two where a damaged header names a type that torch lacks.
_UNREADABLE = (SafetensorError, OSError, ValueError, TypeError, KeyError)


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of names, types, shapes and numbers, in any order of the names."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        digest.update(tensor.cpu().reshape(-1).numpy().data)
    return digest.hexdigest()


def write_tensors(file: Path, tensors: Mapping[str, Tensor], **header: str) -> None:
    """Write tensors whole or not at all, with their checksum in the header.

    One process at a time: hold a lock.
    """
    given = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_atomically(file, save(given, metadata={**header, "digest": digest_of(given)}))


def read_tensors(file: Path, remedy: str) -> tuple[dict[str, Tensor], str] | None:
    """The tensors of a file and their checksum; None where there is no file.

    Args:
        file: as `write_tensors` left it.
        remedy: what to do if it is damaged, for the message.
    """
    try:
        with safe_open(file, framework="pt") as stored:
            header = stored.metadata() or {}
            # copies: what was only mapped would change, or fail, with the file
            tensors = {name: stored.get_tensor(name).clone() for name in stored.keys()}  # noqa: SIM118
    except FileNotFoundError:
        return None
    except _UNREADABLE as error:
        raise InputError(f"cannot read {file}: {error}; {remedy}") from error
    digest = digest_of(tensors)
    if header.get("digest") != digest:
        raise InputError(f"{file} is damaged: it is not what was stored; {remedy}")
    return tensors, digest
