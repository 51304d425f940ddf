"""What serving costs: `gemfi serve` against the bare forward pass, and the micro-batcher alone.

The server is a process of its own, and so are the clients, which each send one image as JSON and
wait for the answer before they send the next. A bare pass is `model(x)` of one image, or of 64, in
this process. Rounds take turns, and each ratio is taken within its round, so that another process
on the machine meets both sides; the median over the rounds is shown. Throughput is in images; a
ratio of 1 to "one at a time" is what a loop of bare passes would do.

    python benchmarks/serve.py --rounds 5 --seconds 4
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import torch

from gemfi import Model, Split, TrainConfig, build_model, fit
from gemfi.bundle import save
from gemfi.data import Role
from gemfi.serve.batching import Batcher

SHAPE = (3, 32, 32)
CLIENTS = (1, 8, 64)
WAITERS = 64


def row(cells: Iterable[object]) -> None:
    """Print one row of a table."""
    print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)


def head(*cells: object) -> None:
    """Print the first two rows."""
    row(cells)
    row("---" for _ in cells)


# -- what is served -------------------------------------------------------------------------------


def images(count: int, role: Role = Role.CALIBRATION) -> Split:
    """Random bytes with random labels: speed does not ask what is on them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, *SHAPE), generator=generator, dtype=torch.uint8)
    return Split(x, torch.arange(count) % 10, role, f"noise/{role}", 10)


def make_model(method: str, width: int) -> Model:
    """A ResNet-18 that has been trained for a moment, so that it has all its statistics."""
    torch.manual_seed(0)
    model = build_model(method, "resnet18", 10, width=width)
    config = TrainConfig(epochs=1, batch_size=32)
    fit(model, images(128, Role.TRAIN), images(64, Role.VALIDATION), config, progress=False)
    return model.eval()


# -- the bare pass --------------------------------------------------------------------------------


def seconds_of(function: Callable[[], object], seconds: float) -> float:
    """The mean time of a call, over about so many seconds."""
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or count < 3:
        function()
        count += 1
    return spent / count


@torch.no_grad()
def bare(model: Model, batch: int, seconds: float) -> float:
    """Seconds of a bare pass, an image."""
    x = images(batch).x
    return seconds_of(lambda: model(x), seconds) / batch


# -- the server and its clients -------------------------------------------------------------------


@contextmanager
def server(bundle: Path, *options: str) -> Iterator[int]:
    """The port of `gemfi serve`, which ends with the block."""
    command = [sys.executable, "-m", "gemfi", "serve", str(bundle), "--port", "0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            found = re.search(r"http://\S+:(\d+)", line)
            if found is None:
                raise SystemExit(f"the server did not start: {line}")
            yield int(found.group(1))
        finally:
            process.terminate()


async def client(port: int, request: bytes, until: float) -> list[float]:
    """Seconds of each answer to one client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    while (start := time.perf_counter()) < until:
        writer.write(request)
        header = await reader.readuntil(b"\r\n\r\n")
        if not header.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not answered: {header.decode()}")
        length = re.search(rb"content-length: (\d+)", header)
        await reader.readexactly(int(length.group(1)) if length else 0)
        found.append(time.perf_counter() - start)
    writer.close()
    return found


def load(port: int, clients: int, seconds: float, results: Any) -> None:
    """Ask with some clients at once; runs in a process of its own."""
    body = json.dumps({"input": images(1).x[0].tolist()}).encode()
    top = "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{top}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def run() -> list[list[float]]:
        until = time.perf_counter() + seconds
        return await asyncio.gather(*(client(port, request, until) for _ in range(clients)))

    results.put([each for one in asyncio.run(run()) for each in one])


def latencies(port: int, clients: int, seconds: float) -> list[float]:
    """Seconds of all answers to some clients."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=load, args=(port, clients, seconds, results))
    process.start()
    found: list[float] = results.get(timeout=60 + 10 * seconds)
    process.join()
    return found


def batches(port: int) -> tuple[float, float]:
    """How many passes there were, and how many inputs they had."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    count, total = (
        float(re.search(rf"gemfi_batch_inputs_{name} (\S+)", text).group(1))  # type: ignore[union-attr]
        for name in ("count", "sum")
    )
    return count, total


def measure_server(model: Model, port: int, rounds: int, seconds: float) -> None:
    """Print throughput and latency as ratios to the bare pass."""
    rows: dict[int, list[list[float]]] = {clients: [] for clients in CLIENTS}
    latencies(port, 1, 1.0)  # the first requests find everything cold
    for _ in range(rounds):
        for clients in CLIENTS:
            one, many = bare(model, 1, seconds / 4), bare(model, 64, seconds / 4)
            before = batches(port)
            found = np.array(latencies(port, clients, seconds))
            after = batches(port)
            rate = len(found) / seconds
            middle, high = np.percentile(found, [50, 99])
            size = (after[1] - before[1]) / (after[0] - before[0])
            numbers = [rate, rate * one, rate * many, middle / one, high / one, size]
            rows[clients].append([float(each) for each in numbers])
    head(
        "clients", "images/s", "× bare, one at a time", "× bare, batches of 64",
        "p50 / bare pass", "p99 / bare pass", "mean batch",
    )  # fmt: skip
    for clients, found_rows in rows.items():
        medians = [statistics.median(column) for column in zip(*found_rows, strict=True)]
        row([clients, f"{medians[0]:.0f}", *(f"{each:.2f}" for each in medians[1:])])


# -- the micro-batcher ----------------------------------------------------------------------------


def runner(model: Model) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """One pass for some images."""

    def run(payloads: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        belief = model.predict(torch.stack(list(payloads)))
        return list(belief.log_probs())

    return run


def waiting(model: Model, max_batch: int, seconds: float) -> float:
    """Seconds an image, with 64 that wait at a time."""
    x = images(WAITERS).x

    async def scenario() -> float:
        batcher = Batcher(runner(model), max_batch=max_batch)
        count, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds or count < 2:
            await asyncio.gather(*(batcher.submit(each) for each in x))
            count += 1
        await batcher.stop()
        return spent / count / WAITERS

    return asyncio.run(scenario())


def measure_batcher(model: Model, rounds: int, seconds: float) -> float:
    """Print, and return, how much faster 64 waiters are served together than one by one."""
    ratios, together = [], []
    waiting(model, 64, 0.5)
    for _ in range(rounds):
        alone = waiting(model, 1, seconds / 2)
        together.append(waiting(model, 64, seconds / 2))
        ratios.append(alone / together[-1])
    low, middle, high = (float(np.percentile(ratios, each)) for each in (25, 50, 75))
    head("waiters", "ms an image, together", "× one at a time", "quartiles")
    milliseconds = 1000 * statistics.median(together)
    row([WAITERS, f"{milliseconds:.2f}", f"{middle:.2f}", f"{low:.2f}-{high:.2f}"])
    return middle


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--method", default="gem-fi")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = make_model(options.method, options.width)
    print(f"{options.method}, resnet18(width={options.width}), {SHAPE}, one thread\n")
    measure_batcher(model, options.rounds, options.seconds)
    print()
    with tempfile.TemporaryDirectory() as folder:
        path = save(
            Path(folder) / "model.safetensors",
            model,
            calibration=images(300),
            policy="false_alarm=0.05",
        )
        with server(path) as port:
            measure_server(model, port, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
