"""Checkpoints: one safetensors file, replaced atomically, from which a run goes on exactly.

The file holds weights and buffers (spectral-norm vectors among them), the optimiser's moments, the
outlier queues, every random generator and the best weights so far; its header holds the counters
and a fingerprint of the run. No pickle is read or written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gemfi.differences import described, differences
from gemfi.errors import CheckpointError
from gemfi.files import write_atomically

_FORMAT = 2  # 1 had no augmentation and no normalisation


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
        "format": str(_FORMAT),
        "counters": json.dumps(snapshot.counters),
        "fingerprint": json.dumps(snapshot.fingerprint, sort_keys=True),
        "groups": json.dumps(list(snapshot.groups)),
    }
    write_atomically(path, save(tensors, metadata=header))


def load_counters(path: Path) -> dict[str, Any]:
    """The counters of a checkpoint, from its header alone."""
    counters: dict[str, Any] = json.loads(_read(path, whole=False)[0]["counters"])
    return counters


def load_snapshot(path: Path) -> Snapshot:
    """Read a checkpoint whole."""
    header, tensors = _read(path, whole=True)
    groups: dict[str, dict[str, Tensor]] = {name: {} for name in json.loads(header["groups"])}
    for name, tensor in tensors.items():
        group, _, member = name.partition("/")
        groups[group][member] = tensor
    return Snapshot(json.loads(header["counters"]), json.loads(header["fingerprint"]), groups)


def _read(path: Path, *, whole: bool) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The header of a checkpoint of our format and, if wanted, its tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata() or {}
            names = file.keys() if whole else ()
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"cannot read the checkpoint {path}: {error}; delete it to start the run again"
        ) from error
    if header.get("format") != str(_FORMAT):
        raise CheckpointError(
            f"{path} is not a checkpoint of format {_FORMAT} (found {header.get('format')!r}); use "
            "another run directory, or delete it to start the run again"
        )
    return header, tensors


def check_fingerprint(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to resume another run; says which settings differ."""
    differing = differences(found, json.loads(json.dumps(wanted)))
    if differing:
        raise CheckpointError(
            f"{path} belongs to another run ({described(differing)}); use another run directory or "
            "delete it"
        )


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as flat names."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {f"{index}.{key}": value for index, slot in state.items() for key, value in slot.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
