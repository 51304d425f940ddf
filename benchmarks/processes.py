"""Two processes of one thread beside one process of one thread: seconds of the same epoch.

The network is a ResNet-18 of width 16 on images of CIFAR's shape, the batch the same; gradients,
batch norms and outliers of two processes are those of the whole batch. Rounds alternate.

    python benchmarks/processes.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

import torch
from torch import distributed
from torch.multiprocessing.spawn import spawn

from gemfi import TrainConfig, as_split, build_model, fit


def work(rank: int, count: int, folder: str, method: str, images: int) -> None:
    """One process: two epochs; the first one writes the seconds of the second down."""
    torch.set_num_threads(1)
    if count > 1:
        store = f"file://{folder}/store"
        distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=count)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (images, 3, 32, 32), dtype=torch.uint8, generator=generator)
    train = as_split(x, torch.arange(images) % 10, role="train")
    torch.manual_seed(0)
    model = build_model(method, "resnet18", 10, width=16)
    result = fit(model, train, config=TrainConfig(epochs=2, batch_size=128), progress=False)
    if rank == 0:
        Path(folder, "seconds").write_text(str(result.history[1]["seconds"]))
    if count > 1:
        distributed.destroy_process_group()


def seconds(count: int, method: str, images: int) -> float:
    """Of an epoch with so many processes."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (count, folder, method, images), nprocs=count)  # type: ignore[no-untyped-call]
        return float(Path(folder, "seconds").read_text())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=2_560)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["softmax", "gem-fi"])
    given = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for method in given.methods:
        taken: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(given.rounds):
            for count, values in taken.items():
                values.append(seconds(count, method, given.images))
        one, two = (statistics.median(values) for values in taken.values())
        print(f"{method:8s} {one:.2f} s alone, {two:.2f} s with two: {one / two:.2f} times as fast")


if __name__ == "__main__":
    main()
