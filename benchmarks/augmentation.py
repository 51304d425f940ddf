"""Augmented CIFAR-sized images per second, and each preset's time as a ratio to a copy.

Batches of 512 uint8 images of 3×32×32, on two threads; medians. Exits with 1 when `standard` is
below its target.

    python benchmarks/augmentation.py --repeats 21 --json augmentation.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from gemfi.data.augmentation import AUGMENTATIONS

TARGET = 20_000.0  # images per second for `standard`


def seconds(function: Callable[[], object], calls: int) -> float:
    """Wall time of one call, over several."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def measure(batch: int, repeats: int) -> dict[str, dict[str, float]]:
    """Images per second of each preset, for bytes and floats, and its time over that of a copy."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (batch, 3, 32, 32), generator=generator, dtype=torch.uint8)
    results = {}
    for kind, x in (("uint8", pixels), ("float32", pixels.float() / 255)):
        times: dict[str, list[float]] = {name: [] for name in (*AUGMENTATIONS, "copy")}
        for _ in range(repeats):  # in turn: the machine's mood is the same for all
            times["copy"].append(seconds(x.clone, 20))
            for name, augment in AUGMENTATIONS.items():
                times[name].append(seconds(partial(augment, x, generator), 2))
        median = {name: statistics.median(each) for name, each in times.items()}
        for name in AUGMENTATIONS:
            results[f"{name}/{kind}"] = {
                "images_per_second": batch / median[name],
                "times_a_copy": median[name] / median["copy"],
            }
    return results


def main() -> int:
    """Measure, print, and say whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = measure(options.batch, options.repeats)
    for name, row in results.items():
        if name.startswith("none/"):
            continue  # it returns its argument
        rate, ratio = row["images_per_second"], row["times_a_copy"]
        print(f"{name:18s} {rate:12,.0f} images/s   {ratio:8.1f} × a copy")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    slowest = min(results[f"standard/{kind}"]["images_per_second"] for kind in ("uint8", "float32"))
    print(f"standard: {slowest:,.0f} images/s, target {TARGET:,.0f}")
    return 0 if slowest >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
