"""What `gemfi.monitor` does to streams of normal scores: false alarms, delays, speed and memory.

One part at a time, printed as a Markdown table; everything follows from the seeds but the seconds,
which are those of the processor.

    python benchmarks/monitor.py alarms --streams 200 --inputs 100000
    python benchmarks/monitor.py naive --streams 200
    python benchmarks/monitor.py resets --streams 50
    python benchmarks/monitor.py delay --streams 20
    python benchmarks/monitor.py speed --inputs 100000
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from gemfi.monitor import Monitor
from gemfi.monitor.martingale import counts_among, draws, no_stakes, p_values, play

Floats = npt.NDArray[np.float64]

LEVELS = (0.2, 0.1, 0.05, 0.01)
LEVEL = 0.01  # of the delays
AFTER = 4000  # inputs in which a change has to be found


def normal(count: int, *seed: int) -> Floats:
    """Standard normal scores."""
    return np.random.default_rng(seed).normal(size=count)


def row(cells: Iterable[object]) -> None:
    """Print one row of a table."""
    print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)


def head(*cells: object) -> None:
    """Print the first two rows."""
    row(cells)
    row("---" for _ in cells)


def share(log10_largest: list[float], level: float) -> str:
    """The share of streams that ever reached the limit of a level."""
    return f"{np.mean(np.array(log10_largest) >= -math.log10(level)):.3f}"


def largest_of(known: Floats, scores: Floats, seed: int) -> float:
    """The largest log10 wealth along a stream."""
    return Monitor(known, seed=seed).update(scores).log10_largest


def largest_of_fixed(known: Floats, scores: Floats, seed: int) -> float:
    """The same with ranks among the calibration scores alone, which is wrong."""
    counts = counts_among(np.sort(known), scores)
    uniform = draws(seed, 0, 0, len(scores))
    p, q = p_values(counts, np.full(len(scores), len(known) + 1), uniform)
    return max(0.0, float(play(no_stakes(), 0, p, q)[1].max())) / math.log(10)


def alarms(streams: int, inputs: int) -> None:
    """Share of long streams without drift that ever fire."""
    head("calibration", "inputs", "streams", *(f"level {level:g}" for level in LEVELS))
    found = [
        largest_of(normal(1000, 0, seed), normal(inputs, 1, seed), seed) for seed in range(streams)
    ]
    row([1000, f"{inputs:,}", streams, *(share(found, level) for level in LEVELS)])


def naive(streams: int, inputs: int) -> None:
    """The same, and with a fixed reference."""
    head("calibration", "inputs", "ranks", *(f"level {level:g}" for level in LEVELS))
    for calibration, length in ((100, 1000), (100, inputs), (1000, inputs)):
        drawn = [(normal(calibration, 2, s), normal(length, 3, s), s) for s in range(streams)]
        for name, largest in (("online", largest_of), ("fixed", largest_of_fixed)):
            found = [largest(*each) for each in drawn]
            cells = (share(found, level) for level in LEVELS)
            row([calibration, f"{length:,}", name, *cells])


def resets(streams: int, inputs: int) -> None:
    """Share of firing streams against one calibration set, over sets."""
    head("calibration", "inputs", "level", "mean share", "share of the unluckiest set")
    for calibration in (100, 1000):
        shares = []
        for each in range(streams):
            monitor, fired = Monitor(normal(calibration, 4, each), 0.05, each), 0
            for stream in range(streams):
                fired += monitor.update(normal(inputs, 5, each, stream)).fired
                monitor.reset()
            shares.append(fired / streams)
        mean, most = np.mean(shares), max(shares)
        row([calibration, f"{inputs:,}", 0.05, f"{mean:.3f}", f"{most:.2f}"])


def delay(streams: int, inputs: int) -> None:
    """Inputs from a change to the alarm: median and nine tenths of the streams."""
    shifts = (0.25, 0.5, 1.0, 2.0)
    head("calibration", "change after", *(f"{shift:g} σ" for shift in shifts))
    for calibration in (100, 1000, 10_000):
        for before in (0, 1000, inputs):
            delays: dict[float, list[float]] = {shift: [] for shift in shifts}
            for seed in range(streams):
                monitor = Monitor(normal(calibration, 6, seed), LEVEL, seed)
                if monitor.update(normal(before, 7, seed)).fired:
                    continue
                state = monitor.state_dict()
                for shift in shifts:
                    monitor = Monitor.from_state_dict(state)
                    fired = monitor.update(normal(AFTER, 8, seed) + shift).fired_at
                    delays[shift].append(math.inf if fired is None else fired - before + 1)
            row([f"{calibration:,}", f"{before:,}", *(_delay(each) for each in delays.values())])


def _delay(found: list[float]) -> str:
    ordered = sorted(found)
    chosen = ordered[len(ordered) // 2], ordered[math.ceil(0.9 * len(ordered)) - 1]
    return ", ".join(f"> {AFTER:,}" if math.isinf(each) else f"{each:,.0f}" for each in chosen)


def speed(streams: int, inputs: int) -> None:
    """Processor time (the least of some repetitions) and memory, in batches of several sizes."""
    head("inputs", "a batch", "seconds", "µs an input", "bytes an input")
    scores = normal(inputs, 9)
    for size in (inputs, 100, 1):
        runs = [_timed(scores, size) for _ in range(streams)]
        seconds, order = min(seconds for seconds, _ in runs), runs[0][1]._stream.order
        held = sum(run.nbytes for run in order.runs) + order.rest.nbytes
        each = f"{1e6 * seconds / inputs:.1f}"
        row([f"{inputs:,}", f"{size:,}", f"{seconds:.2f}", each, f"{held / inputs:.2f}"])


def _timed(scores: Floats, size: int) -> tuple[float, Monitor]:
    monitor, start = Monitor(normal(1000, 10)), time.process_time()
    for first in range(0, len(scores), size):
        monitor.update(scores[first : first + size])
    return time.process_time() - start, monitor


PARTS = {
    "alarms": (alarms, 200, 100_000),
    "naive": (naive, 200, 10_000),
    "resets": (resets, 50, 1000),
    "delay": (delay, 20, 100_000),
    "speed": (speed, 3, 100_000),
}


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--streams", type=int, help="repetitions")
    parser.add_argument("--inputs", type=int, help="of a stream")
    options = parser.parse_args()
    measure, streams, inputs = PARTS[options.part]
    measure(options.streams or streams, options.inputs or inputs)


if __name__ == "__main__":
    main()
