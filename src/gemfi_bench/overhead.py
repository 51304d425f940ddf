"""What uncertainty costs: parameters, training step, inference and memory, as ratios to softmax.

All contestants stand on the network of the protocol (spectrally normalised for `paper-fi`; five of
them for the ensemble, which is trained as one here) and see the same batch of random inputs of the
shape of its samples. A training step is everything: augmentation, forward, outliers, losses,
backward, clipping, optimiser. Inference is everything: forward, density, and the method's two
scores. The contestants take turns, and each ratio is taken within a turn, so that a change of the
machine's speed, or another process, meets both of its sides.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from gemfi._config import check_int, to_plain
from gemfi._environment import environment
from gemfi._files import hold_lock, to_json, write_atomically
from gemfi.errors import GemfiError, InputError
from gemfi.methods import PAPER_PRESETS, PRESETS
from gemfi.methods.base import DataFacts, Progress
from gemfi.model import Model
from gemfi.runs import RunSpec, make_spec
from gemfi.scores import SCORES
from gemfi.training.objective import Objective, make_optimizer
from gemfi_bench.results import OVERHEAD
from gemfi_bench.runner import Bench

BASE: Final = "softmax"
"""What every ratio is against."""

ROUNDS: Final = 20
_INFERENCES: Final = 3  # turns of inference for each of training: one is short
_LEAST: Final = 0.02  # seconds of a turn: what is shorter is repeated, as the clock's noise is not
_MIDDLE: Final = Progress(5_000, 10_000)  # of training, when every term is at work
_FITTED: Final = 2_000  # random features for densities
_STATUS: Final = Path("/proc/self/status")
_LOCK: Final = ".overhead.lock"

CONTESTANTS: Final[Mapping[str, tuple[str, Any]]] = {
    "softmax": ("softmax", None),
    "mc-dropout": ("mc-dropout", None),
    "ensemble": ("ensemble", None),
    "edl": ("edl", None),
    "daedl": ("daedl", None),
    "gem-core": ("gem-core", None),
    "gem-mix": ("gem-mix", None),
    "gem-fi": ("gem-fi", None),
    "gem-fi-k5": ("gem-fi", replace(PRESETS["gem-fi"], num_components=5)),
    "paper-fi": ("gem-paper", PAPER_PRESETS["gem-fi"]),
}
"""Row -> method and configuration, None for its default."""


@dataclass(frozen=True)
class Setting:
    """The shape of an input, C, and the contestants' specs, which have one batch size."""

    sample_shape: tuple[int, ...]
    num_classes: int
    specs: Mapping[str, RunSpec]

    def __post_init__(self) -> None:
        if BASE not in self.specs:
            raise InputError(f"ratios are against {BASE}, which is not among the contestants")
        if len({spec.train.samples_a_step for spec in self.specs.values()}) > 1:
            raise InputError("contestants are compared on one batch: give them one batch size")

    @property
    def batch(self) -> int:
        """Inputs of a step."""
        return self.specs[BASE].train.samples_a_step

    @classmethod
    def of(cls, bench: Bench) -> Setting:
        """The contestants on the network, the samples and the training of a protocol."""
        protocol, task = bench.protocol, bench.task
        specs = {
            name: make_spec(
                protocol.task,
                method,
                task,
                backbone=protocol.network.backbone,
                options=protocol.network.options,
                head=head,
                train=protocol.train_changes(),
                normalise=False,  # the inputs are random
                own=protocol.own,
            )
            for name, (method, head) in CONTESTANTS.items()
        }
        return cls(tuple(task.train.x.shape[1:]), task.num_classes, specs)


class Subject:
    """A model with everything that a training step on (x, y) and an inference need."""

    def __init__(self, model: Model, spec: RunSpec, x: Tensor, y: Tensor, facts: DataFacts) -> None:
        self.model, self.config, self.x, self.y = model, spec.train, x, y
        self.step = Objective(
            model,
            _MIDDLE.steps,
            class_counts=facts.class_counts,
            precision=spec.train.precision,
        )
        self.optimizer = make_optimizer(model, spec.train)
        self.generator = torch.Generator().manual_seed(0)
        self.scores = [SCORES[name] for name in model.head.named_scores.values()]
        # densities of random features: what they hold does not change what they cost
        width = model.head.num_features + model.head.num_taps
        z = torch.randn(_FITTED, width, generator=self.generator)
        labels = torch.arange(_FITTED) % model.head.num_classes
        model.eval()
        with torch.no_grad():
            model.head.fit_statistics([(z, labels)], [(z, labels)])

    def train(self) -> None:
        """One whole training step, in the middle of training."""
        self.model.train()
        augmentation = self.config.augmentation
        x = self.x if augmentation.is_nothing else augmentation(self.x, self.generator)
        self.step.step = _MIDDLE.step
        loss = self.step(x, self.y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()

    def infer(self) -> list[Tensor]:
        """One whole inference, scores included."""
        self.model.eval()
        with torch.inference_mode():
            belief = self.model(self.x).to(torch.float64)
            return [score(belief) for score in self.scores]


def subject(spec: RunSpec, sample_shape: Sequence[int], num_classes: int) -> Subject:
    """A contestant on a batch of random inputs."""
    count = spec.train.samples_a_step
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, *sample_shape, generator=generator)
    facts = DataFacts(torch.full((num_classes,), _FITTED), _MIDDLE.steps)
    return Subject(spec.build(num_classes, None), spec, x, torch.arange(count) % num_classes, facts)


def parameters(model: Model) -> int:
    """Number of trained parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


# -- time -----------------------------------------------------------------------------------------


class Turn(NamedTuple):
    """A contestant's turn: its seconds, and their ratio to those of the base beside it."""

    seconds: float
    ratio: float


def take_turns(
    names: Sequence[str], act: Callable[[str], object], rounds: int, bar: Any = None
) -> dict[str, list[Turn]]:
    """Time every contestant in each round, against the mean of the base before and after it.

    The base opens and closes a round and stands between any two others; it is timed against itself
    too, which shows the noise. Every second round goes backwards. Where the base is very quick, a
    turn is several repetitions. `bar` shows the progress, in turns.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for name in names:
        act(name)  # warm up
    repeats = max(1, math.ceil(_LEAST / _timed(act, BASE)))
    for number in range(rounds):
        before = _timed(act, BASE, repeats)
        for name in names if number % 2 == 0 else reversed(names):
            spent = _timed(act, name, repeats)
            after = _timed(act, BASE, repeats)
            turns[name].append(Turn(spent, 2 * spent / (before + after)))
            before = after
            if bar is not None:
                bar.update()
    return turns


def _timed(act: Callable[[str], object], name: str, repeats: int = 1) -> float:
    """Mean seconds of an act; never zero, which a coarse clock would say of a quick one."""
    begin = time.perf_counter()
    for _ in range(repeats):
        act(name)
    return max(1e-9, time.perf_counter() - begin) / repeats


def _summary(kind: str, turns: Sequence[Turn]) -> dict[str, float]:
    """Median and quartiles of the ratios, and the median of the milliseconds."""
    ratios = [turn.ratio for turn in turns]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {
        f"{kind}_ratio": middle,
        f"{kind}_low": low,
        f"{kind}_high": high,
        f"{kind}_ms": 1000 * statistics.median(turn.seconds for turn in turns),
    }


# -- memory ---------------------------------------------------------------------------------------


def peak_megabytes(setting: Setting, name: str) -> float | None:
    """Peak memory of a fresh process with one contestant; None where the system does not say."""
    if not _STATUS.exists():
        return None
    asked = {
        "spec": setting.specs[name].to_plain(),
        "sample_shape": setting.sample_shape,
        "num_classes": setting.num_classes,
        "threads": torch.get_num_threads(),
    }
    done = subprocess.run(
        [sys.executable, "-m", "gemfi_bench.overhead"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise GemfiError(f"the process that measures the memory of {name} failed: {reason}")
    peak: float | None = json.loads(done.stdout)
    return peak


def train_alone(asked: Mapping[str, Any]) -> float | None:
    """What the fresh process does: three steps, an inference, then its own peak memory."""
    torch.set_num_threads(asked["threads"])
    spec = RunSpec.from_plain(asked["spec"])
    alone = subject(spec, asked["sample_shape"], asked["num_classes"])
    for _ in range(3):
        alone.train()
    alone.infer()
    return _peak(_STATUS.read_text(encoding="utf-8"))


def _peak(status: str) -> float | None:
    """Peak resident memory in megabytes; ru_maxrss would remember the parent process."""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    return None


# -- all of it ------------------------------------------------------------------------------------


def measure_overhead(
    what: Bench | Setting, rounds: int = ROUNDS, *, progress: bool | None = False
) -> dict[str, Any]:
    """Everything that a table of costs needs, as JSON values.

    Args:
        what: a bench, or a setting of its own.
        rounds: of training; there are three of inference for each.
        progress: a bar: yes, no, or (None) if standard error is a terminal.

    Returns:
        The environment, the batch, and `rows`: of each contestant its `method`, `parameters`,
        `memory_mb` (None where the system does not say) and, of `train` and `infer`, the median
        `_ratio` to softmax with the quartiles `_low` and `_high`, and the median `_ms`.
    """
    check_int("rounds", rounds, 1)
    setting = what if isinstance(what, Setting) else Setting.of(what)
    base, names, inferences = setting.specs[BASE], list(setting.specs), _INFERENCES * rounds
    total = len(names) * (inferences + rounds + 1)
    hidden = None if progress is None else not progress
    rows = {}
    with (
        torch.random.fork_rng(devices=[]),  # dropout draws from torch's own generator
        tqdm(total=total, desc="overhead", unit="turn", disable=hidden, leave=False) as bar,
    ):
        subjects = {
            name: subject(spec, setting.sample_shape, setting.num_classes)
            for name, spec in setting.specs.items()
        }
        trained = take_turns(names, lambda name: subjects[name].train(), rounds, bar)
        inferred = take_turns(names, lambda name: subjects[name].infer(), inferences, bar)
        for name in names:
            rows[name] = {
                "method": setting.specs[name].method,
                "parameters": parameters(subjects[name].model),
                **_summary("train", trained[name]),
                **_summary("infer", inferred[name]),
                "memory_mb": peak_megabytes(setting, name),
            }
            bar.update()
    return {
        "environment": to_plain(environment()),
        "rounds": rounds,
        "batch": setting.batch,
        "backbone": base.backbone,
        "options": to_plain(base.backbone_options),
        "sample_shape": list(setting.sample_shape),
        "rows": rows,
    }


def keep_overhead(bench: Bench, rounds: int = ROUNDS, *, progress: bool | None = False) -> Path:
    """Measure once for a bench, and keep it in its folder; of several processes one does it."""
    path = bench.folder / OVERHEAD
    with hold_lock(bench.folder / _LOCK):
        if not path.exists():
            found = measure_overhead(bench, rounds, progress=progress)
            write_atomically(path, to_json(found, indent=1).encode() + b"\n")
    return path


if __name__ == "__main__":
    print(json.dumps(train_alone(json.load(sys.stdin))))
