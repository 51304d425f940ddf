"""What the server measures of itself."""

from __future__ import annotations

from typing import Final

from gemfi._version import __version__
from gemfi.decisions import Verdict
from gemfi.serve.metrics import SECONDS, SIZES, Counter, Gauge, Histogram, exposition
from gemfi.serve.watch import WatchState

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "other"
"""Stands for every path and method that is not known: labels must stay few."""


class Gauges:
    """Every family that /metrics shows.

    Args:
        max_queue: inputs that may wait.
    """

    def __init__(self, max_queue: int) -> None:
        self._info = Gauge("gemfi_info", "What is served.", ("model", "method", "version"))
        self.requests = Counter(
            "gemfi_requests_total", "Requests that were answered.", ("route", "method", "code")
        )
        self.seconds = Histogram(
            "gemfi_request_seconds", "From the first byte to the answer.", SECONDS, ("route",)
        )
        self.inputs = Counter("gemfi_inputs_total", "Inputs that the model has answered.")
        self.decisions = Counter(
            "gemfi_decisions_total", "Inputs by the verdict that was answered.", ("verdict",)
        )
        self.reloads = Counter(
            "gemfi_reloads_total", "Times that the model was to be read anew.", ("outcome",)
        )
        self.batches = Histogram("gemfi_batch_inputs", "Inputs of a pass of the model.", SIZES)
        self.depth = Gauge("gemfi_queue_inputs", "Inputs that wait.")
        limit = Gauge("gemfi_queue_limit_inputs", "Inputs that may wait.")
        limit.put(max_queue)
        self._families: list[Counter | Histogram] = [
            self._info, self.requests, self.seconds, self.inputs, self.decisions, self.batches,
            self.depth, limit, self.reloads,
        ]  # fmt: skip

    def serve(self, model: str, method: str, *, decides: bool) -> None:
        """Name the model that is served from now on.

        Args:
            model: its name.
            method: of it.
            decides: whether there is a policy.
        """
        self._info.values.clear()
        self._info.put(1, model, method, __version__)
        if decides:
            for verdict in Verdict:
                self.decisions.add(str(verdict), by=0)

    def text(self, depth: int, watch: WatchState | None) -> str:
        """Everything, as Prometheus reads it.

        Args:
            depth: inputs that wait.
            watch: the monitor; None without one.
        """
        self.depth.put(depth)
        shown = [] if watch is None else monitor_families(watch)
        return exposition([*self._families, *shown])


def monitor_families(watch: WatchState) -> list[Counter | Histogram]:
    """What is known of the monitor."""
    now = watch.now
    gauges = {
        "gemfi_monitor_inputs": ("Inputs of the stream that runs.", now.count),
        "gemfi_monitor_log10_wealth": (
            "Evidence of drift in the stream that runs; it began at 0.",
            now.log10_wealth,
        ),
        "gemfi_monitor_log10_largest": ("The largest it has been.", now.log10_largest),
        "gemfi_monitor_log10_limit": ("At which the monitor fires.", now.log10_limit),
        "gemfi_monitor_fired": ("Whether the stream that runs has fired.", int(now.fired)),
    }
    counters = {
        "gemfi_monitor_inputs_total": ("Inputs of all streams.", watch.inputs),
        "gemfi_monitor_streams_total": ("Streams that were begun.", watch.streams),
        "gemfi_monitor_alarms_total": ("Streams that fired.", watch.alarms),
    }
    families: list[Counter | Histogram] = []
    for name, (text, value) in gauges.items():
        gauge = Gauge(name, text)
        gauge.put(value)
        families.append(gauge)
    for name, (text, value) in counters.items():
        counter = Counter(name, text)
        counter.add(by=value)
        families.append(counter)
    return families
