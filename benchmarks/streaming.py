"""Training from a stream beside training from memory: throughput, and peak memory.

Images of CIFAR's shape as bytes that need no decoding; the same network, batches and order. The
runs take turns, and the ratio of their medians is shown; memory is that of processes of their own.

    python benchmarks/streaming.py --workers 2
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from gemfi import TrainConfig, as_split, build_model, fit


class Images(Dataset[Any]):
    """Bytes in memory, one image at a time."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.targets = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.x[row], int(self.targets[row])


class Made(Images):
    """Images that are made when they are asked for, so that any number takes no memory."""

    def __init__(self, count: int) -> None:
        self.count, self.targets = count, torch.arange(count) % 10

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.randint(256, (3, 32, 32), dtype=torch.uint8), row % 10


def seconds(data: Any, width: int) -> float:
    """An epoch after the first, in which the workers start."""
    torch.manual_seed(0)
    model = build_model("gem-fi", "resnet18", 10, width=width)
    result = fit(model, data, config=TrainConfig(epochs=3, batch_size=128), progress=False)
    return statistics.fmean(float(epoch["seconds"]) for epoch in result.history[1:])


def peak(count: int, width: int) -> float:
    """Peak memory in MB of a process that trains on `count` streamed images."""
    command = [sys.executable, __file__, "--peak", str(count), "--width", str(width)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(said)["megabytes"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=2_560)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        loader = DataLoader(Made(given.peak), batch_size=128)
        seconds(as_split(loader, role="train"), given.width)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"megabytes": used}))
        return
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (given.images, 3, 32, 32), dtype=torch.uint8, generator=generator)
    y = torch.arange(given.images) % 10
    loader = DataLoader(Images(x, y), batch_size=128, num_workers=given.workers)
    ways = {"memory": as_split(x, y, role="train"), "stream": as_split(loader, role="train")}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(given.rounds):
        for name in sorted(ways, reverse=bool(number % 2)):
            taken[name].append(seconds(ways[name], given.width))
            print(f"round {number + 1} {name:8s} {taken[name][-1]:.2f} s", flush=True)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    print(f"throughput of the stream: {medians['memory'] / medians['stream']:.3f} of memory's")
    few, many = peak(given.images, given.width), peak(10 * given.images, given.width)
    print(f"peak memory: {few:.0f} MB, of ten times the images {many:.0f} MB ({many / few:.3f})")


if __name__ == "__main__":
    main()
