"""Checkpoints: one safetensors file, replaced atomically, from which a run goes on exactly.

The file holds weights and buffers (spectral-norm vectors among them), the optimiser's moments, the
outlier queues, every random generator and the best weights so far; its header holds the counters
and a fingerprint of the run. Every byte is under a checksum. No pickle is read or written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gemfi._config import described, differences
from gemfi._files import CHECKSUM, UNSEALED, Seal, write_atomically
from gemfi.errors import CheckpointError

REMEDY: Final = "delete it to start the run again"
_FORMAT: Final = 3  # 1 had no augmentation and no normalisation; 2 no checksum and no threads
_KEY: Final = "gemfi-checkpoint"
_SEAL: Final = Seal(_KEY, REMEDY, read=json.loads)  # counters may be NaN
_SHOWN: Final = 300  # characters of what is wrong


@dataclass
class Snapshot:
    """Everything a run is made of at one moment.

    Attributes:
        counters: small values: step, best NLL and the like (JSON).
        fingerprint: what the run is; a checkpoint of another run is refused.
        groups: named collections of tensors, such as `model` and `optimizer`.
    """

    counters: dict[str, Any]
    fingerprint: dict[str, Any]
    groups: dict[str, dict[str, Tensor]] = field(default_factory=dict)


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write next to `path`, flush to disk, then rename over it: it is old or new, never half."""
    tensors = {
        f"{group}/{name}": tensor.detach().contiguous().clone()
        for group, members in snapshot.groups.items()
        for name, tensor in members.items()
    }
    header = {
        CHECKSUM: UNSEALED,
        "format": _FORMAT,
        "counters": snapshot.counters,
        "fingerprint": snapshot.fingerprint,
        "groups": list(snapshot.groups),
    }
    write_atomically(path, _SEAL.seal(save(tensors, metadata={_KEY: json.dumps(header)})))


def load_counters(path: Path) -> dict[str, Any]:
    """The counters of a checkpoint whose every byte was checked."""
    return _read_header(path).counters


def load_snapshot(path: Path) -> Snapshot:
    """Read a checkpoint whole, and refuse one that is damaged."""
    snapshot = _read_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        # the last three where the header names a type that torch lacks
        raise damaged(path, str(error)) from error
    for name, tensor in tensors.items():
        group, _, member = name.partition("/")
        if group not in snapshot.groups:
            raise damaged(path, f"it has a tensor {name!r} of no group")
        snapshot.groups[group][member] = tensor
    return snapshot


def damaged(path: Path, why: str) -> CheckpointError:
    """The error of a checkpoint that cannot be what was saved, in one line."""
    text = " ".join(why.split())
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return CheckpointError(f"{path} is damaged: {shown}; {REMEDY}")


def _read_header(path: Path) -> Snapshot:
    """Everything of a checkpoint but its tensors, whose bytes are checked."""
    try:
        with path.open("rb") as file:
            raw = _SEAL.header(file, path)
            metadata = _SEAL.metadata(raw, path)
            text = metadata.get(_KEY)
            header = _SEAL.parsed(text, path) if isinstance(text, str) else metadata
            if header.get("format") != _FORMAT:
                raise CheckpointError(
                    f"{path} is not a checkpoint of format {_FORMAT} (found "
                    f"{header.get('format')!r}); use another run directory, or {REMEDY}"
                )
            _SEAL.check(file, raw, path)
    except OSError as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}; {REMEDY}") from error
    names = header.get("groups")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise damaged(path, "its header does not list the groups of tensors")
    for name in ("counters", "fingerprint"):
        if not isinstance(header.get(name), dict):
            raise damaged(path, f"its header has no {name}")
    return Snapshot(header["counters"], header["fingerprint"], {name: {} for name in names})


def check_fingerprint(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to resume another run; says which settings differ."""
    try:
        differing = differences(found, json.loads(json.dumps(wanted)))
    except RecursionError:
        raise damaged(path, "its fingerprint is nested too deeply") from None
    if differing:
        raise CheckpointError(
            f"{path} belongs to another run ({described(differing)}); use another run directory or "
            "delete it"
        )
