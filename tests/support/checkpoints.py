"""Checkpoints with a right checksum and other contents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from gemfi._files import CHECKSUM, UNSEALED, Seal, header_end

KEY = "gemfi-checkpoint"


def header_of(path: Path) -> dict[str, Any]:
    """The JSON text of a checkpoint."""
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(json.loads(data[8 : header_end(data)])["__metadata__"][KEY])
    return found


def tensors_of(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint: copies, as those of `load_file` change with the file."""
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def write(path: Path, header: Any, tensors: dict[str, Tensor]) -> None:
    """Write a checkpoint with any header, sealed."""
    text = json.dumps({CHECKSUM: UNSEALED} | {k: v for k, v in header.items() if k != CHECKSUM})
    path.write_bytes(Seal(KEY, "").seal(save(tensors, metadata={KEY: text})))


def rewrite(
    path: Path,
    header: Callable[[dict[str, Any]], object] = lambda _header: None,
    tensors: Callable[[dict[str, Tensor]], object] = lambda _tensors: None,
) -> None:
    """Change header and tensors of a checkpoint in place, and seal it again."""
    new, loaded = header_of(path), tensors_of(path)
    header(new)
    tensors(loaded)
    write(path, new, loaded)
