"""Time of the closed-form Fisher proxy against the per-sample autograd loop, as a ratio.

The loop is what the released code does: one `autograd.grad` of log p_y for each sample and head.
Both start from the same logits, on one thread, in turn; medians. Exits with 1 below the target.

    python benchmarks/fisher.py --repeats 21 --json fisher.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gemfi.dirichlet import fisher_proxy

TARGET = 100.0
INNER = 20  # calls of the fast one in a measurement, to be far above the clock's resolution


def closed_form(logits: Tensor, label: Tensor) -> Tensor:
    """‖∂ log p_y / ∂u‖² for all samples and heads at once, (B, K)."""
    return fisher_proxy(torch.log_softmax(logits, dim=-1), label.unsqueeze(1))


def autograd_loop(logits: Tensor, label: Tensor) -> Tensor:
    """The same by one backward pass a sample and head."""
    result = torch.empty(logits.shape[:2])
    for b in range(logits.shape[0]):
        for k in range(logits.shape[1]):
            u = logits[b, k].detach().requires_grad_()
            log_p = torch.log_softmax(u, dim=-1)[label[b]]
            (gradient,) = torch.autograd.grad(log_p, u)
            result[b, k] = gradient.square().sum()
    return result


def seconds(function: Callable[[], object], calls: int = 1) -> float:
    """Wall time of one call, over several."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def compare(batch: int, heads: int, classes: int, repeats: int) -> dict[str, float]:
    """Median seconds of both, their ratio, and the largest difference of the results."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(batch, heads, classes, generator=generator)
    label = torch.randint(classes, (batch,), generator=generator)
    difference = (closed_form(logits, label) - autograd_loop(logits, label)).abs().max().item()
    times = [
        (
            seconds(lambda: autograd_loop(logits, label)),
            seconds(lambda: closed_form(logits, label), calls=INNER),
        )
        for _ in range(repeats)
    ]
    loop, closed = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "loop_seconds": loop,
        "closed_seconds": closed,
        "ratio": loop / closed,
        "largest_difference": difference,
    }


def main() -> int:
    """Measure, print, and say whether the target is met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = compare(options.batch, options.heads, options.classes, options.repeats)
    print(
        f"B={options.batch}, K={options.heads}, C={options.classes}, one thread: "
        f"autograd loop {1e3 * figures['loop_seconds']:.1f} ms, "
        f"closed form {1e3 * figures['closed_seconds']:.3f} ms, "
        f"ratio {figures['ratio']:.0f} (target: at least {TARGET:.0f}), "
        f"results within {figures['largest_difference']:.1e}"
    )
    if options.json:
        sizes = {name: getattr(options, name) for name in ("batch", "heads", "classes", "repeats")}
        options.json.write_text(json.dumps(sizes | figures, indent=2) + "\n")
    return 0 if figures["ratio"] >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
