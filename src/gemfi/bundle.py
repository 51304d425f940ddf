"""A trained model in one safetensors file: weights, statistics, and what it takes to rebuild it.

>>> from gemfi.bundle import bundled
>>> bundled("mnist-gem-fi").model.predict(images).labels()

Nothing is unpickled, and no data and no run folder are needed. `gemfi/bundles/` holds those that
come with the package.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from gemfi.errors import CheckpointError, InputError
from gemfi.files import to_json, write_atomically
from gemfi.methods.base import DataFacts
from gemfi.model import Model
from gemfi.plain import from_plain, to_plain
from gemfi.runs.facts import TaskFacts
from gemfi.runs.folder import Run
from gemfi.runs.spec import RunSpec

ENDING: Final = ".safetensors"
_FORMAT: Final = 1
_KEY: Final = "gemfi"


@dataclass(frozen=True)
class Bundle:
    """A model with where it comes from.

    Attributes:
        model: trained, in evaluation mode.
        spec: of the run that trained it.
        facts: of the data that it was trained on: classes, shapes, checksums.
        about: steps, seconds and notes of its training, and its numbers on validation data.
    """

    model: Model
    spec: RunSpec
    facts: TaskFacts
    about: dict[str, Any]


def save_bundle(run: Run, path: Path | str) -> Path:
    """Write a finished run as one file, whole or not at all.

    Args:
        run: a finished run, such as `Run.open(folder)`.
        path: of the file, which ends in `.safetensors`.
    """
    path = Path(path)
    if path.suffix != ENDING:
        raise InputError(f"a bundle is a file that ends in {ENDING}, got {path.name}")
    about = {
        "training": run.training,
        "steps": run.record.steps,
        "environment": to_plain(run.record.sessions[-1]),
        "validation": run.metrics().get("validation", {}).get("id", {}),
    }
    plain = {
        "format": _FORMAT,
        "spec": run.spec.to_plain(),
        "facts": to_plain(run.record.facts),
        "about": about,
    }
    tensors = {name: each.contiguous() for name, each in run.model.state_dict().items()}
    write_atomically(path, save(tensors, metadata={_KEY: to_json(plain)}))
    return path


def load_bundle(path: Path | str) -> Bundle:
    """Rebuild the model of a file exactly.

    Args:
        path: as `save_bundle` wrote it.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"bundle {path} does not exist: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} is no safetensors file, or a damaged one: {error}"
        ) from error
    plain = _described(path, metadata)
    spec = RunSpec.from_plain(plain["spec"], f"{path.name}: spec")
    facts = from_plain(TaskFacts, plain["facts"], f"{path.name}: facts")
    model = spec.build(facts.num_classes, facts.normalisation)
    model.head.prepare(DataFacts(torch.tensor(facts.class_counts), plain["about"]["steps"]))
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(
            f"{path} does not fit the model that it describes: {error}"
        ) from error
    model.sample_shape = facts.sample_shape
    model.sample_dtype = getattr(torch, facts.sample_dtype)
    return Bundle(model.eval(), spec, facts, plain["about"])


def bundle_names() -> tuple[str, ...]:
    """The bundles that come with the package."""
    folder = resources.files("gemfi") / "bundles"
    names = [each.name for each in folder.iterdir() if each.name.endswith(ENDING)]
    return tuple(sorted(name.removesuffix(ENDING) for name in names))


def bundled(name: str = "mnist-gem-fi") -> Bundle:
    """A bundle that comes with the package, by its name."""
    if name not in bundle_names():
        raise InputError(f"unknown bundle {name!r}; known: {', '.join(bundle_names())}")
    with resources.as_file(resources.files("gemfi") / "bundles" / f"{name}{ENDING}") as path:
        return load_bundle(path)


def _described(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """What the header of a file says."""
    try:
        plain: dict[str, Any] = json.loads(metadata[_KEY])
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path} holds tensors, but does not say of which model: it is no bundle of gemfi"
        ) from error
    if plain.get("format") != _FORMAT:
        raise CheckpointError(
            f"{path} is not a bundle of format {_FORMAT} (found {plain.get('format')!r})"
        )
    return plain
