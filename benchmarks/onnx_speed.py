"""Speed of onnxruntime against eager torch in the same run: from raw inputs to a decision.

Both do everything: scaling, network, density, scores and, where there is a policy, the decision. On
one thread, in turn, by the processor's time; medians, and of ratios those of each turn. Above 1
onnxruntime is faster.

    python benchmarks/onnx_speed.py --repeats 15 --json onnx.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from gemfi import build_model
from gemfi._text import aligned, file_size
from gemfi.bundle import bundled
from gemfi.data.inputs import InputSpec
from gemfi.export import Deployed, to_onnx
from gemfi.export.graphs import quantised, require
from gemfi.export.parity import random_inputs
from gemfi.methods.base import DataFacts

BATCHES: Final = (1, 256)
LEAST: Final = 0.05  # seconds of a measurement, with as many calls as that takes


def mnist() -> Deployed:
    """The bundled model, with its policy."""
    bundle = bundled("mnist-gem-fi")
    return Deployed(bundle.model, bundle.policy)


def cifar() -> Deployed:
    """A network for small colour images; what its weights are does not change what it costs."""
    torch.manual_seed(0)
    model = build_model("gem-fi", "resnet18", 10, width=16)
    model.inputs = InputSpec(sample_shape=(3, 32, 32), sample_dtype="uint8")
    x = torch.randint(0, 256, (400, 3, 32, 32), dtype=torch.uint8)
    y = torch.arange(400) % 10
    model.head.prepare(DataFacts(torch.bincount(y), 100))
    z = model.eval().embed(x, taps=True)
    with torch.no_grad():
        model.head.fit_statistics([(z, y)], [(z, y)])
    return Deployed(model)


MODELS: Final = {"mnist-gem-fi": mnist, "gem-fi on resnet18(width=16)": cifar}


def session_of(data: bytes) -> Any:
    """On one thread."""
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def eager(deployed: Deployed, x: torch.Tensor) -> object:
    """As `policy(model.predict(x))`, with all scores."""
    with torch.no_grad():
        return deployed(x)


def seconds(function: Callable[[], object]) -> float:
    """Of one call, over as many as take `LEAST`."""
    calls, start = 0, time.process_time()
    while (passed := time.process_time() - start) < LEAST:
        function()
        calls += 1
    return passed / calls


def measure(repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of each, and what torch takes as a multiple of each graph."""
    rows = []
    for name, make in MODELS.items():
        deployed = make()
        proto = to_onnx(deployed)
        files = {"onnx": proto.SerializeToString(), "int8": quantised(proto).data}
        sessions = {kind: session_of(data) for kind, data in files.items()}
        for batch in BATCHES:
            x = random_inputs(deployed, batch)
            calls: dict[str, Callable[[], object]] = {"torch": partial(eager, deployed, x)}
            for kind, session in sessions.items():
                calls[kind] = partial(session.run, None, {"input": x.numpy()})
            for call in calls.values():
                call()  # the first is slow
            turns = [{kind: seconds(call) for kind, call in calls.items()} for _ in range(repeats)]
            rows.append({"model": name, "batch": batch} | _summary(turns, files))
    return rows


def _summary(turns: list[dict[str, float]], files: dict[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = {f"{kind}_bytes": len(data) for kind, data in files.items()}
    for kind in turns[0]:
        found[f"{kind}_ms"] = 1e3 * statistics.median(turn[kind] for turn in turns)
        found[f"{kind}_ratio"] = statistics.median(turn["torch"] / turn[kind] for turn in turns)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Rows for people."""
    head = ["model", "batch", "torch ms", "onnx ms", "times", "int8 ms", "times", "onnx", "int8"]
    lines = [head]
    for row in rows:
        cells = [row["model"], str(row["batch"]), f"{row['torch_ms']:.2f}"]
        for kind in ("onnx", "int8"):
            cells += [f"{row[f'{kind}_ms']:.2f}", f"{row[f'{kind}_ratio']:.2f}×"]
        lines.append([*cells, file_size(row["onnx_bytes"]), file_size(row["int8_bytes"])])
    return "\n".join(aligned(lines))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options.repeats)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
