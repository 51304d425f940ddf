"""What uncertainty costs: parameters, training step, inference and memory, as ratios to softmax.

All contestants have the same ResNet-18 backbone (spectrally normalised for `paper-fi`; five of them
for the ensemble, which is trained as one here) and see the same batch of CIFAR shape. How they are
measured: `gemfi_bench.overhead`, with which `gemfi bench` does the same on the network of its
protocol. The median over turns is shown, with the quartiles.

    python benchmarks/overhead.py --rounds 30 --json overhead.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemfi.model import build_model
from gemfi.runs import RunSpec
from gemfi.training import TrainConfig
from gemfi_bench.overhead import CONTESTANTS, ROUNDS, Setting, measure_overhead, parameters

CLASSES = 10
SHAPE = (3, 32, 32)
PAPER_MILLIONS = {"softmax": 11.17, "gem-core": 11.24, "gem-mix": 11.38, "gem-fi-k5": 11.52}


def setting(width: int, batch: int) -> Setting:
    """The contestants on a ResNet-18 for images of CIFAR shape."""
    specs = {
        name: RunSpec(
            "cifar10",
            method,
            "resnet18",
            {"width": width},
            head=config,
            train=TrainConfig(batch_size=batch),
        )
        for name, (method, config) in CONTESTANTS.items()
    }
    return Setting(SHAPE, CLASSES, specs)


def show(found: Mapping[str, Any], width: int) -> None:
    """Print the table as Markdown."""
    threads = found["environment"]["threads"]
    print(f"resnet18(width={width}), batch {found['batch']}, {threads} threads\n")
    print("| method | parameters | training step | inference | peak MB |")
    print("|---|---|---|---|---|")
    for name, row in found["rows"].items():
        memory = "" if row["memory_mb"] is None else f"{row['memory_mb']:.0f}"
        cells = [
            f"{row[f'{kind}_ratio']:.3f} ({row[f'{kind}_low']:.3f}-{row[f'{kind}_high']:.3f})"
            for kind in ("train", "infer")
        ]
        print(f"| {name} | {row['parameters']:,} | {' | '.join(cells)} | {memory} |")


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure_overhead(setting(options.width, options.batch), options.rounds, progress=None)
    show(found, options.width)
    show_parameters()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
