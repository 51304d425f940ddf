"""Putting a checkpoint back into a run: all of it is checked before any of it is used."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from gemfi.errors import CheckpointError, GemfiWarning, InputError, user_level
from gemfi.training.checkpoint import Snapshot, damaged
from gemfi.training.optimizer import state_names
from gemfi.training.state import RunState
from gemfi.training.step import TrainingStep

GENERATORS: Final = ("torch", "run")
GROUPS: Final = ("step", "optimizer", "generators", "best")
"""Of the tensors in the checkpoint of a run."""


def read_state(path: Path, counters: Any) -> RunState:
    """The counters of a checkpoint, of which each is of its type."""
    try:
        return RunState.read(counters)
    except InputError as error:
        raise damaged(path, str(error)) from error


def check_state(path: Path, snapshot: Snapshot, epochs: int, batches: int) -> RunState:
    """The counters of a checkpoint that a run of so many epochs can have.

    Args:
        path: of the checkpoint, for messages.
        snapshot: that was read from it.
        epochs: of the whole run.
        batches: steps of an epoch.
    """
    state = read_state(path, snapshot.counters)
    try:
        state.check(epochs, batches)
    except InputError as error:
        raise damaged(path, str(error)) from error
    _check_groups(path, snapshot, state)
    return state


def restore(
    path: Path, snapshot: Snapshot, step: TrainingStep, optimizer: torch.optim.Optimizer
) -> None:
    """Load weights and optimiser; a CheckpointError says what cannot be, before any is loaded.

    The states of the random generators are checked as well; the caller sets them.

    Args:
        path: of the checkpoint, for messages.
        snapshot: as `check_state` lets it pass.
        step: what is trained.
        optimizer: of its parameters.
    """
    slots = _slots(path, optimizer, snapshot.groups["optimizer"])
    _check_generators(path, snapshot.groups["generators"])
    load_weights(path, step, snapshot.groups["step"])
    optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})


def _check_groups(path: Path, snapshot: Snapshot, state: RunState) -> None:
    """Refuse a checkpoint that lacks a group, or whose best weights are not those of its model."""
    found = snapshot.groups
    if set(found) != set(GROUPS):
        raise damaged(path, f"its groups are {sorted(found)}, not {sorted(GROUPS)}")
    if bool(found["best"]) != (state.best_epoch is not None and not state.finished):
        raise damaged(path, f"the weights of its best epoch ({state.best_epoch}) cannot be")
    model = {
        name.removeprefix("model."): tensor.shape
        for name, tensor in found["step"].items()
        if name.startswith("model.")
    }
    best = {name: tensor.shape for name, tensor in found["best"].items()}
    if best and best != model:
        raise damaged(path, "the weights of its best epoch are of another model")


def note_threads(path: Path, state: RunState, *, begun: bool) -> None:
    """Warn where a run goes on with another number of threads, and note it in its counters.

    Sums over threads are rounded in another order, so that such a run ends in weights of its own.
    It is not refused: another machine may not have as many cores.

    Args:
        path: of the checkpoint, for the message.
        state: of the run as it was saved; its threads become those of this process.
        begun: whether anything was computed before.
    """
    before, state.threads = state.threads, torch.get_num_threads()
    if state.finished or not begun or state.threads == before:
        return
    state.notes.append(
        f"{_threads(before)} up to step {state.step:,} and {_threads(state.threads)} from there: "
        "the weights are not bit for bit those of a run with either"
    )
    warnings.warn(
        f"{path} was saved by a run with {_threads(before)}, and it goes on with "
        f"{_threads(state.threads)}: its weights will not be bit for bit those of a run with "
        f"either. A run whose weights shall not depend on where it was stopped is resumed with one "
        f"number of threads: here OMP_NUM_THREADS={before}",
        GemfiWarning,
        stacklevel=user_level(),
    )


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


def load_weights(path: Path, step: TrainingStep, tensors: Mapping[str, Tensor]) -> None:
    """Load all weights and buffers of a training step."""
    try:
        step.load_state_dict(tensors)
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise CheckpointError(f"{path} does not fit this model: {text}") from error


def _check_generators(path: Path, states: Mapping[str, Tensor]) -> None:
    if set(states) != set(GENERATORS):
        raise damaged(path, f"its random generators are {sorted(states)}")
    for name, state in states.items():
        try:
            torch.Generator().set_state(state)
        except (RuntimeError, TypeError) as error:
            raise damaged(path, f"its random generator {name!r} has no state: {error}") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as flat names, such as `3.exp_avg`."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {f"{index}.{key}": value for index, slot in state.items() for key, value in slot.items()}


def _slots(
    path: Path, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> dict[int, dict[str, Tensor]]:
    """The inverse of `optimizer_tensors`, if it is of this optimiser."""
    slots: dict[int, dict[str, Tensor]] = {}
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    numbers = {str(index): index for index in range(len(parameters))}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        if number not in numbers:
            raise damaged(path, f"its optimiser has {name!r} and {len(parameters)} parameters")
        if value.shape not in {parameters[numbers[number]].shape, torch.Size()}:
            raise damaged(path, f"{name!r} of its optimiser has the shape {tuple(value.shape)}")
        slots.setdefault(numbers[number], {})[key] = value
    for index, slot in slots.items():
        if set(slot) != state_names(optimizer):
            raise damaged(path, f"its optimiser has {sorted(slot)} of parameter {index}")
    return slots
