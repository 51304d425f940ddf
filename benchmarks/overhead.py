"""What uncertainty costs: parameters, training step, inference and memory, as ratios to softmax.

All contestants have the same ResNet-18 backbone (spectrally normalised for `paper-fi`; five of them
for the ensemble, which is trained as one here) and see the same batch of CIFAR shape. A training
step is everything: forward, outliers, losses, backward, clipping, AdamW. Inference is everything:
forward, density, and the method's two scores. The contestants take turns and each ratio is taken
within a turn, against the mean of softmax before and after the others; the median over turns is
shown, with the quartiles.

    python benchmarks/overhead.py --rounds 30 --json overhead.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gemfi.methods import PAPER_PRESETS, PRESETS
from gemfi.methods.base import Progress
from gemfi.model import Model, build_model
from gemfi.scores import SCORES
from gemfi.training import TrainConfig
from gemfi.training.optimizer import make_optimizer
from gemfi.training.step import TrainingStep

CLASSES = 10
CONTESTANTS: dict[str, tuple[str, Any]] = {
    "softmax": ("softmax", None),
    "mc-dropout": ("mc-dropout", None),
    "ensemble": ("ensemble", None),
    "edl": ("edl", None),
    "daedl": ("daedl", None),
    "gem-core": ("gem-core", None),
    "gem-mix": ("gem-mix", None),
    "gem-fi": ("gem-fi", None),
    "gem-fi-k5": ("gem-fi", replace(PRESETS["gem-fi"], num_components=5)),
    "paper-fi": ("gem-fi", PAPER_PRESETS["gem-fi"]),
}
PAPER_MILLIONS = {"softmax": 11.17, "gem-core": 11.24, "gem-mix": 11.38, "gem-fi-k5": 11.52}


class Contestant:
    """A model with everything that a training step and an inference need."""

    def __init__(self, name: str, width: int, batch: int) -> None:
        torch.manual_seed(0)
        method, config = CONTESTANTS[name]
        self.model = build_model(method, "resnet18", CLASSES, config=config, width=width)
        self.step = TrainingStep(self.model)
        self.config = TrainConfig()
        self.optimizer = make_optimizer(self.model, self.config)
        self.generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(batch, 3, 32, 32)
        self.y = torch.arange(batch) % CLASSES
        self.scores = [SCORES[name] for name in self.model.head.named_scores.values()]
        self._fit_density()

    def _fit_density(self) -> None:
        z, y = torch.randn(2000, self.model.head.num_features), torch.arange(2000) % CLASSES
        self.model.eval()
        self.model.head.fit_statistics([(z, y)], [(z, y)])

    def train(self) -> None:
        """One whole training step, in the middle of training."""
        self.model.train()
        terms = self.step(self.x, self.y, None, Progress(5_000, 10_000), self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()

    def infer(self) -> list[Tensor]:
        """One whole inference, scores included."""
        self.model.eval()
        with torch.inference_mode():
            belief = self.model(self.x).to(torch.float64)
            return [score(belief) for score in self.scores]


def parameters(model: Model) -> int:
    """Number of trained parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def ratios(names: list[str], act: Callable[[str], object], rounds: int) -> dict[str, list[float]]:
    """Time of each contestant over that of softmax, for each round.

    Softmax opens and closes a round and stands between any two others, so that a change of the
    machine's speed meets both sides of a ratio.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        act(name)  # warm up
    for number in range(rounds):
        order = names if number % 2 == 0 else list(reversed(names))
        before = _timed(act, "softmax")
        for name in order:
            spent = _timed(act, name)
            after = _timed(act, "softmax")
            found[name].append(2 * spent / (before + after))
            before = after
    return found


def _timed(act: Callable[[str], object], name: str) -> float:
    begin = time.perf_counter()
    act(name)
    return time.perf_counter() - begin


def peak_megabytes(name: str, width: int, batch: int) -> float:
    """Peak resident memory of a process that trains three steps of one contestant alone."""
    command = [sys.executable, __file__, "--alone", name, "--width", str(width)]
    done = subprocess.run(
        [*command, "--batch", str(batch)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def train_alone(name: str, width: int, batch: int) -> None:
    """Three steps and an inference, then this process's peak memory in megabytes."""
    contestant = Contestant(name, width, batch)
    for _ in range(3):
        contestant.train()
    contestant.infer()
    print(_peak())


def _peak() -> float:
    """Peak resident memory in megabytes; ru_maxrss would remember the parent process."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this system does not report VmHWM")


def measure(width: int, batch: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Every figure of the table."""
    contestants = {name: Contestant(name, width, batch) for name in CONTESTANTS}
    names = list(contestants)
    trained = ratios(names, lambda name: contestants[name].train(), rounds)
    inferred = ratios(names, lambda name: contestants[name].infer(), 3 * rounds)
    return {
        name: {
            "params": parameters(contestants[name].model),
            "train_ratio": statistics.median(trained[name]),
            "train_quartiles": statistics.quantiles(trained[name], n=4)[::2],
            "infer_ratio": statistics.median(inferred[name]),
            "infer_quartiles": statistics.quantiles(inferred[name], n=4)[::2],
            "peak_mb": peak_megabytes(name, width, batch),
        }
        for name in names
    }


def show(table: dict[str, dict[str, Any]], width: int, batch: int) -> None:
    """Print the table as Markdown."""
    print(f"resnet18(width={width}), batch {batch}, {torch.get_num_threads()} threads\n")
    print("| method | parameters | training step | inference | peak MB |")
    print("|---|---|---|---|---|")
    for name, row in table.items():
        low, high = row["train_quartiles"]
        start, end = row["infer_quartiles"]
        print(
            f"| {name} | {row['params']:,} | {row['train_ratio']:.3f} ({low:.3f}-{high:.3f}) "
            f"| {row['infer_ratio']:.3f} ({start:.3f}-{end:.3f}) | {row['peak_mb']:.0f} |"
        )


def show_parameters() -> None:
    """Parameter counts at width 64 beside the paper's, for both kinds of shortcut."""
    print("\n| method, width 64 | average-pool shortcuts | projected shortcuts | paper |")
    print("|---|---|---|---|")
    for name, (method, config) in CONTESTANTS.items():
        counts = [
            parameters(
                build_model(method, "resnet18", CLASSES, config=config, width=64, shortcut=shortcut)
            )
            / 1e6
            for shortcut in ("pool", "project")
        ]
        paper = PAPER_MILLIONS.get(name)
        beside = [
            f"{count:.2f} M" + ("" if paper is None else f" ({count / paper - 1:+.1%})")
            for count in counts
        ]
        print(f"| {name} | {beside[0]} | {beside[1]} | {'' if paper is None else f'{paper} M'} |")


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        train_alone(options.alone, options.width, options.batch)
        return
    table = measure(options.width, options.batch, options.rounds)
    show(table, options.width, options.batch)
    show_parameters()
    if options.json:
        options.json.write_text(json.dumps(table, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
