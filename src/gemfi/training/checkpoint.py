"""Checkpoints: one safetensors file, replaced atomically, from which a run goes on exactly.

The file holds weights and buffers (spectral-norm vectors among them), the optimiser's moments, the
outlier queues and the best weights so far; its header holds the counters and a fingerprint of the
run. Random generators are not in it: each step seeds them anew. Every byte is under a checksum. No
pickle is read or written, and all of a checkpoint is checked before any of it is used.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gemfi._config import described, differences, from_plain
from gemfi._files import CHECKSUM, UNSEALED, Seal, write_atomically
from gemfi.backbones import is_frozen
from gemfi.errors import CheckpointError, GemfiWarning, InputError, user_level
from gemfi.model import Model
from gemfi.training.config import TrainConfig
from gemfi.training.features import weights_digest
from gemfi.training.objective import Objective
from gemfi.training.run_data import text_digest

_REMEDY: Final = "delete it to start the run again"
_FORMAT: Final = 4  # up to 3 it had the states of random generators
_KEY: Final = "gemfi-checkpoint"
_SEAL: Final = Seal(_KEY, _REMEDY, read=json.loads)  # counters may be NaN
_SHOWN: Final = 300  # characters of what is wrong
_GROUPS: Final = ("step", "optimizer", "best")


@dataclass
class RunState:
    """The counters of a run."""

    step: int = 0
    seconds: float = 0.0
    best_nll: float | None = None
    best_epoch: int | None = None
    finished: bool = False
    threads: int = field(default_factory=torch.get_num_threads)  # of torch; sums depend on it
    notes: list[str] = field(default_factory=list)
    epoch_seconds: float = 0.0  # of the steps in this epoch
    sums: dict[str, float] = field(default_factory=dict)  # of the loss terms in this epoch

    @classmethod
    def read(cls, counters: Any) -> Self:
        """The inverse of `asdict`; an InputError names a field that is missing or of another type.

        Args:
            counters: JSON values.
        """
        state = from_plain(cls, counters, "counters")
        for counter in fields(cls):
            if counter.name not in counters:
                raise InputError(f"counters.{counter.name} is missing")
        return state

    def check(self, epochs: int, batches: int) -> None:
        """Raise an InputError that says what no such run can have counted.

        Args:
            epochs: of the whole run.
            batches: steps of an epoch.
        """
        steps = epochs * batches
        ended, within = divmod(self.step, batches)
        kept, nll = self.best_epoch, self.best_nll
        # one that keeps its best epoch may end early, after a whole epoch
        ends = self.step == steps or (kept is not None and within == 0)
        sums = list(self.sums.values())
        for possible, counted in (
            (0 <= self.step <= steps, f"step {self.step} of {steps}"),
            (math.isfinite(self.seconds) and self.seconds >= 0, f"{self.seconds} seconds"),
            (0 <= self.epoch_seconds <= self.seconds, f"{self.epoch_seconds} seconds of an epoch"),
            (self.threads >= 1, f"{self.threads} threads"),
            ((kept is None) == (nll is None), f"best epoch {kept} with NLL {nll}"),
            (kept is None or 0 <= kept < ended, f"best epoch {kept} of {ended} that have ended"),
            (ends or not self.finished, f"the end at step {self.step} of {steps}"),
            (bool(sums) == bool(within), f"{len(sums)} sums after {within} steps of an epoch"),
            (all(map(math.isfinite, sums)), f"sums {sums}"),
        ):
            if not possible:
                raise InputError(f"counters: {counted} cannot be")

    def note_threads(self, path: Path, *, begun: bool) -> None:
        """Warn where a run goes on with another number of threads, and note it.

        Sums over threads are rounded in another order, so that such a run ends in weights of its
        own. It is not refused: another machine may not have as many cores.

        Args:
            path: of the checkpoint, for the message.
            begun: whether anything was computed before.
        """
        before, self.threads = self.threads, torch.get_num_threads()
        if self.finished or not begun or self.threads == before:
            return
        then, now = (f"{n} thread{'' if n == 1 else 's'}" for n in (before, self.threads))
        self.notes.append(
            f"{then} up to step {self.step:,} and {now} from there: the weights are not bit for "
            "bit those of a run with either"
        )
        warnings.warn(
            f"{path} was saved by a run with {then}, and it goes on with {now}: its weights will "
            "not be bit for bit those of a run with either. A run whose weights shall not depend "
            "on where it was stopped is resumed with one number of threads: here "
            f"OMP_NUM_THREADS={before}",
            GemfiWarning,
            stacklevel=user_level(),
        )


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Everything a run is made of at one moment.

    Attributes:
        path: of its file.
        state: the counters.
        fingerprint: what the run is; a checkpoint of another run is refused.
        groups: named collections of tensors, such as `step` (of the objective) and `optimizer`.
    """

    path: Path
    state: RunState
    fingerprint: dict[str, Any]
    groups: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def save(self) -> None:
        """Write beside the file, flush to disk, rename over it: it is old or new, never half."""
        tensors = {
            f"{group}/{name}": tensor.detach().contiguous().clone()
            for group, members in self.groups.items()
            for name, tensor in members.items()
        }
        header = {
            CHECKSUM: UNSEALED,
            "format": _FORMAT,
            "counters": asdict(self.state),
            "fingerprint": self.fingerprint,
            "groups": list(self.groups),
        }
        write_atomically(self.path, _SEAL.seal(save(tensors, metadata={_KEY: json.dumps(header)})))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a checkpoint whole, and refuse one that is damaged."""
        checkpoint = cls._load_header(path)
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
            # the last three where the header names a type that torch lacks
            raise _damaged(path, str(error)) from error
        for name, tensor in tensors.items():
            group, _, member = name.partition("/")
            if group not in checkpoint.groups:
                raise _damaged(path, f"it has a tensor {name!r} of no group")
            checkpoint.groups[group][member] = tensor
        return checkpoint

    @classmethod
    def load_state(cls, path: Path) -> RunState:
        """The counters of a checkpoint whose every byte was checked."""
        return cls._load_header(path).state

    @classmethod
    def _load_header(cls, path: Path) -> Self:
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
                        f"{header.get('format')!r}); use another run directory, or {_REMEDY}"
                    )
                _SEAL.check(file, raw, path)
        except OSError as error:
            raise CheckpointError(
                f"cannot read the checkpoint {path}: {error}; {_REMEDY}"
            ) from error
        names = header.get("groups")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise _damaged(path, "its header does not list the groups of tensors")
        for name in ("counters", "fingerprint"):
            if not isinstance(header.get(name), dict):
                raise _damaged(path, f"its header has no {name}")
        try:
            state = RunState.read(header["counters"])
        except InputError as error:
            raise _damaged(path, str(error)) from error
        return cls(path, state, header["fingerprint"], {name: {} for name in names})

    def check_fingerprint(self, wanted: Mapping[str, Any]) -> None:
        """Refuse to resume another run; says which settings differ."""
        try:
            differing = differences(self.fingerprint, json.loads(json.dumps(wanted)))
        except RecursionError:
            raise _damaged(self.path, "its fingerprint is nested too deeply") from None
        if differing:
            raise CheckpointError(
                f"{self.path} belongs to another run ({described(differing)}); use another run "
                "directory or delete it"
            )

    def check_state(self, epochs: int, batches: int) -> None:
        """Refuse counters and groups that no run of `epochs` times `batches` steps can have."""
        try:
            self.state.check(epochs, batches)
        except InputError as error:
            raise _damaged(self.path, str(error)) from error
        if set(self.groups) != set(_GROUPS):
            raise _damaged(
                self.path, f"its groups are {sorted(self.groups)}, not {sorted(_GROUPS)}"
            )
        kept = self.state.best_epoch
        if bool(self.groups["best"]) != (kept is not None and not self.state.finished):
            raise _damaged(self.path, f"the weights of its best epoch ({kept}) cannot be")
        model = {
            name.removeprefix("model."): tensor.shape
            for name, tensor in self.groups["step"].items()
            if name.startswith("model.")
        }
        best = {name: tensor.shape for name, tensor in self.groups["best"].items()}
        if best and best != model:
            raise _damaged(self.path, "the weights of its best epoch are of another model")

    def load_weights(self, objective: Objective) -> None:
        """Load all weights and buffers of an objective."""
        try:
            objective.load_state_dict(self.groups["step"])
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise CheckpointError(f"{self.path} does not fit this model: {text}") from error

    def restore(self, objective: Objective, optimizer: torch.optim.Optimizer) -> None:
        """Load weights and optimiser, once both are checked."""
        slots = self._optimizer_slots(optimizer)
        self.load_weights(objective)
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})

    def _optimizer_slots(self, optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
        """The inverse of `optimizer_tensors`, if it is of this optimiser."""
        slots: dict[int, dict[str, Tensor]] = {}
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        numbers = {str(index): index for index in range(len(parameters))}
        for name, value in self.groups["optimizer"].items():
            number, _, key = name.partition(".")
            if number not in numbers:
                why = f"its optimiser has {name!r} and {len(parameters)} parameters"
                raise _damaged(self.path, why)
            if value.shape not in {parameters[numbers[number]].shape, torch.Size()}:
                why = f"{name!r} of its optimiser has the shape {tuple(value.shape)}"
                raise _damaged(self.path, why)
            slots.setdefault(numbers[number], {})[key] = value
        momentum_alone = isinstance(optimizer, torch.optim.SGD)
        keys = {"momentum_buffer"} if momentum_alone else {"step", "exp_avg", "exp_avg_sq"}
        for index, slot in slots.items():
            if set(slot) != keys:
                why = f"its optimiser has {sorted(slot)} of parameter {index}"
                raise _damaged(self.path, why)
        return slots


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as flat names, such as `3.exp_avg`."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {f"{index}.{key}": value for index, slot in state.items() for key, value in slot.items()}


def fingerprint(
    objective: Objective, config: TrainConfig, model: Model | None = None
) -> dict[str, Any]:
    """What a run is, without its data, for JSON: method, settings and shape of the model.

    Args:
        objective: as it is trained.
        config: how.
        model: of which that of the objective is a part; None where it is the same.
    """
    model = objective.model if model is None else model
    parameters = [(n, tuple(p.shape), p.requires_grad) for n, p in model.named_parameters()]
    train = asdict(config)
    del train["checkpoint_steps"]  # how often a run is saved does not change what it computes
    normalisation = None
    if model.input_mean is not None and model.input_std is not None:
        # as the model holds it, and not as it was given: weights may have been loaded since
        normalisation = {"mean": model.input_mean.tolist(), "std": model.input_std.tolist()}
    frozen = is_frozen(model.backbone)  # a checkpoint need not hold these weights
    return {
        "method": model.head.info.name,
        "head": asdict(model.head.config),
        "outliers": asdict(objective.outliers),
        "train": train,
        "normalisation": normalisation,
        "backbone": text_digest(repr(model.backbone)),
        "parameters": text_digest(str(parameters)),
        **({"frozen": weights_digest(model.backbone)} if frozen else {}),
    }


def _damaged(path: Path, why: str) -> CheckpointError:
    """The error of a checkpoint that cannot be what was saved, in one line."""
    text = " ".join(why.split())
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return CheckpointError(f"{path} is damaged: {shown}; {_REMEDY}")
