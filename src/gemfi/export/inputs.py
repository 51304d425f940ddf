"""Inputs to check a graph on: those of a task, of files, or random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from gemfi.bundle import Bundle
from gemfi.data import TASKS, Task, require_use
from gemfi.errors import InputError
from gemfi.export.deployed import Deployed
from gemfi.runs.spec import find_task
from gemfi.scoring import find_inputs, stream_inputs


@dataclass(frozen=True)
class Given:
    """Inputs, and where they come from.

    Attributes:
        x: (N, ...) as the graph takes them.
        words: where they come from.
        task: that they are of, with validation and OOD-validation data; None for others.
    """

    x: Tensor
    words: str
    task: Task | None = None


def gather(bundle: Bundle, deployed: Deployed, data: Sequence[str], most: int) -> Given:
    """Inputs for a graph.

    Args:
        bundle: of the model.
        deployed: of the same model.
        data: the name of a task, or files and folders; nothing for random inputs.
        most: of files, of random ones, and of each set of a task.
    """
    if not data:
        return Given(random_inputs(deployed, most), "random inputs")
    if len(data) == 1 and data[0] in TASKS and not Path(data[0]).exists():
        return _of_task(bundle, find_task(data[0]), most)
    pieces: list[Tensor] = []
    for piece, x in stream_inputs(find_inputs(data), bundle):
        good = [row for row in range(len(x)) if row not in piece.errors]
        pieces.append(_as_taken(x[good], deployed))
        if sum(map(len, pieces)) >= most:
            break
    found = torch.cat(pieces)[:most] if pieces else torch.empty(0)
    if not len(found):
        raise InputError(f"none of the inputs in {', '.join(data)} could be read")
    return Given(found, ", ".join(data))


def random_inputs(deployed: Deployed, count: int, seed: int = 0) -> Tensor:
    """Inputs in the range of the data, from faint to strong, and images from coarse to fine.

    Args:
        deployed: of a model.
        count: how many.
        seed: of the generator.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = deployed.sample_shape
    strength = torch.rand(count, *(1 for _ in shape), generator=generator)
    if deployed.input_dtype != torch.uint8:
        x = 3 * strength * torch.randn(count, *shape, generator=generator)
        return _raw(x, deployed).to(deployed.input_dtype)
    if len(shape) != 3:
        x = torch.rand(count, *shape, generator=generator)
        return (255 * strength * x).to(torch.uint8)
    parts = []
    for index, part in enumerate(strength.chunk(4)):
        size = max(1, min(shape[1:]) >> (4 - index))  # of the squares that are drawn
        coarse = torch.rand(len(part), shape[0], size, size, generator=generator)
        image = functional.interpolate(coarse, shape[1:], mode="bilinear", align_corners=False)
        parts.append(255 * part * (2 * image - 0.5).clamp(0, 1))
    return torch.cat(parts).to(torch.uint8)


def _of_task(bundle: Bundle, task: Task, most: int) -> Given:
    """Validation and OOD-validation data, never test data."""
    names = (task.class_names, tuple(task.validation.x.shape[1:]))
    if names != (bundle.info.class_names, bundle.sample_shape):
        raise InputError(
            f"--data {task.name}: its inputs {names[1]} of {len(names[0])} classes are not those "
            f"of {bundle.name}: {bundle.sample_shape} of {bundle.info.num_classes} classes"
        )
    splits = [task.validation, *task.ood_validation.values()]
    x = [require_use(each, "tuning").x[:most] for each in splits]
    known = ", ".join(["validation", *task.ood_validation])
    return Given(torch.cat(x), f"inputs of {task.name} ({known})", task)


def _as_taken(x: Tensor, deployed: Deployed) -> Tensor:
    """Numbers from 0 to 1 as bytes, where the graph takes bytes."""
    if deployed.input_dtype == torch.uint8 and x.dtype != torch.uint8:
        return (255 * x).round().to(torch.uint8)
    return x.to(deployed.input_dtype)


def _raw(x: Tensor, deployed: Deployed) -> Tensor:
    """Standardised inputs on the scale of the raw ones."""
    mean, std = deployed.model.input_mean, deployed.model.input_std
    if mean is None or std is None:
        return x
    shape = (-1, *(1 for _ in x.shape[2:]))
    return x * std.reshape(shape) + mean.reshape(shape)
