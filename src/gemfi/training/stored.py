"""Tensors in a safetensors file that says by itself whether it is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gemfi._files import write_atomically
from gemfi.errors import InputError

# The last two where a damaged header names a type that torch lacks.
_UNREADABLE = (SafetensorError, OSError, ValueError, TypeError, KeyError)


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of names, types, shapes and numbers, in any order of the names."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(digest_line(name, tensor.dtype, tensor.shape))
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def digest_line(name: str, kind: torch.dtype, shape: Sequence[int]) -> bytes:
    """What goes into the checksum before the numbers of a tensor."""
    return f"\n{name}:{kind}:{tuple(shape)}\n".encode()


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The numbers of a tensor of any type, in order; not a copy where it is contiguous."""
    flat = tensor.detach().cpu().reshape(-1)
    view: memoryview = flat.view(torch.uint8).numpy().data
    return view


def write_tensors(file: Path, tensors: Mapping[str, Tensor], **header: str) -> None:
    """Write tensors whole or not at all, with their checksum in the header.

    One process at a time: hold a lock.
    """
    given = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_atomically(file, save(given, metadata={**header, "digest": digest_of(given)}))


def read_tensors(
    file: Path, remedy: str, *, mapped: bool = False
) -> tuple[dict[str, Tensor], str] | None:
    """The tensors of a file and their checksum; None where there is no file.

    Args:
        file: as `write_tensors` left it.
        remedy: what to do if it is damaged, for the message.
        mapped: leave the numbers in the file, which then must stay as it is: they take memory only
            while they are looked at. What is written to them is seen by no one else.
    """
    try:
        with safe_open(file, framework="pt") as stored:
            header = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            if not mapped:  # copies: what is only mapped would change, or fail, with the file
                tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    except FileNotFoundError:
        return None
    except _UNREADABLE as error:
        raise InputError(f"cannot read {file}: {error}; {remedy}") from error
    digest = digest_of(tensors)
    if header.get("digest") != digest:
        raise InputError(f"{file} is damaged: it is not what was stored; {remedy}")
    return tensors, digest
