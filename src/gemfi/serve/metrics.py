"""Counters, gauges and histograms, and the text in which Prometheus reads them.

All of them belong to the event loop's thread.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class Counter:
    """A number for each set of labels, that only grows.

    Args:
        name: of the family; it ends in `_total`.
        text: what it counts.
        labels: their names.
    """

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name, self.text, self.labels = name, text, tuple(labels)
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, *labels: str, by: float = 1) -> None:
        """Count."""
        self.values[labels] = self.values.get(labels, 0.0) + by

    def lines(self) -> Iterator[str]:
        """One line a set of labels."""
        for labels, value in sorted(self.values.items()):
            yield _line(self.name, dict(zip(self.labels, labels, strict=True)), value)


class Gauge(Counter):
    """A number for each set of labels, that goes up and down; see `Counter`."""

    kind = "gauge"

    def put(self, value: float, *labels: str) -> None:
        """Write a number down."""
        self.values[labels] = value


class Histogram:
    """How many observations are at most as large as each of some bounds, for each set of labels.

    Args:
        name: of the family.
        text: what is observed.
        bounds: ascending; infinity is added.
        labels: their names.
    """

    kind = "histogram"

    def __init__(
        self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self.name, self.text, self.labels = name, text, tuple(labels)
        self.bounds = (*bounds, math.inf)
        self.values: dict[Labels, tuple[list[int], float]] = {}
        if not labels:
            self.values[()] = ([0] * len(self.bounds), 0.0)

    def observe(self, value: float, *labels: str) -> None:
        """Count an observation."""
        counts, total = self.values.get(labels) or ([0] * len(self.bounds), 0.0)
        counts[bisect_left(self.bounds, value)] += 1
        self.values[labels] = (counts, total + value)

    def lines(self) -> Iterator[str]:
        """A line for each bound, the sum and the count."""
        for labels, (counts, total) in sorted(self.values.items()):
            named = dict(zip(self.labels, labels, strict=True))
            running = 0
            for bound, count in zip(self.bounds, counts, strict=True):
                running += count
                yield _line(f"{self.name}_bucket", {**named, "le": _number(bound)}, running)
            yield _line(f"{self.name}_sum", named, total)
            yield _line(f"{self.name}_count", named, running)


def exposition(families: Sequence[Counter | Histogram]) -> str:
    """The text of some families, each with what it is."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}"]
        lines += family.lines()
    return "\n".join(lines) + "\n"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {_number(value)}" if inner else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
