"""What the server measures of itself, for Prometheus; of several workers, any can show all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gemfi._version import __version__
from gemfi.belief import Belief
from gemfi.bundle import Bundle
from gemfi.decisions import Policy, Verdict
from gemfi.monitor import Monitor
from gemfi.scores import score_of
from gemfi.serve.settings import Settings

_LARGEST: Final = float(np.finfo(np.float64).max)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Every family that /metrics shows."""

    def __init__(self, max_queue: int) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._info = gauge("gemfi_info", "What is served.", ("model", "method", "version"))
        self.requests = counter(
            "gemfi_requests_total", "Requests that were answered.", ("route", "method", "code")
        )
        text = "From the first byte to the answer."
        self.seconds = histogram("gemfi_request_seconds", text, ("route",), buckets=_SECONDS)
        self.inputs = counter("gemfi_inputs_total", "Inputs that the model has answered.")
        text = "Inputs by the verdict that was answered."
        self.decisions = counter("gemfi_decisions_total", text, ("verdict",))
        text = "Inputs of a pass of the model."
        self.batches = histogram("gemfi_batch_inputs", text, buckets=_SIZES)
        self._depth = gauge("gemfi_queue_inputs", "Inputs that wait.")
        gauge("gemfi_queue_limit_inputs", "Inputs that may wait.").set(max_queue)
        text = "Times that the model was to be read anew."
        self.reloads = counter("gemfi_reloads_total", text, ("outcome",))
        self._shared: Path | None = None

    def share(self, folder: Path, worker: int) -> None:
        """Share a folder with other workers; whoever is asked then shows the metrics of all."""
        self._shared = folder / f"{worker}.prom"

    @property
    def is_shared(self) -> bool:
        """Whether other workers show these metrics."""
        return self._shared is not None

    def name_model(self, model: str, method: str, *, decides: bool) -> None:
        """Name the model that is served from now on, and whether it has a policy."""
        self._info.clear()
        self._info.labels(model, method, __version__).set(1)
        if decides:
            for verdict in Verdict:
                self.decisions.labels(str(verdict))

    def text(self, depth: int, watch: Watch | None) -> str:
        """Everything, as Prometheus reads it; `depth` is the number of inputs that wait."""
        self._depth.set(depth)
        label = {} if self._shared is None else {"worker": self._shared.stem}
        families = [*self._registry.collect(), *([] if watch is None else _monitor(watch))]
        for family in families:
            family.samples = [
                sample._replace(labels=label | sample.labels)
                for sample in family.samples
                if not sample.name.endswith("_created")  # when the process began, for each series
            ]
        if self._shared is None:
            return _text(families)
        temporary = self._shared.with_suffix(".tmp")
        temporary.write_text(_text(families), encoding="utf-8")
        temporary.replace(self._shared)
        return _joined(self._shared.parent)


def _joined(folder: Path) -> str:
    """The metrics of all workers, each family once."""
    families: dict[tuple[str, str], Metric] = {}
    for file in sorted(folder.glob("*.prom"), key=lambda file: int(file.stem)):
        for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
            first = families.setdefault((family.name, family.type), family)
            if first is not family:
                first.samples += family.samples
    return _text(list(families.values()))


def _text(families: list[Metric]) -> str:
    class Collected(Collector):
        def collect(self) -> list[Metric]:
            return families

    return generate_latest(Collected()).decode()


# -- the monitor -----------------------------------------------------------------------------------


class Watch:
    """A monitor that begins a new stream after a number of inputs, since it remembers each.

    The promise of the monitor holds within a stream: of m streams without drift, the probability
    that any fires is at most m times its false-alarm rate.
    """

    def __init__(self, monitor: Monitor, score: str, length: int) -> None:
        self.monitor, self.score, self.length = monitor, score, length
        self.streams = 1
        self._inputs = self._alarms = 0  # of the streams that ended

    @classmethod
    def of(cls, bundle: Bundle, policy: Policy | None, settings: Settings) -> Watch | None:
        """A monitor against the calibration data of a bundle or a policy; None without either."""
        if bundle.calibration is not None:
            score, reference = bundle.score, bundle.calibration.score
        elif policy is not None:
            score, reference = policy.score, np.concatenate(policy.reference.groups)
        else:
            return None
        monitor = Monitor(_finite(reference), settings.monitor_false_alarm, score=score)
        return cls(monitor, score, settings.monitor_length)

    @property
    def inputs(self) -> int:
        """How many there were in all streams."""
        return self._inputs + self.monitor.state.count

    @property
    def alarms(self) -> int:
        """How many streams fired."""
        return self._alarms + self.monitor.state.fired

    def update(self, belief: Belief) -> None:
        """Count the inputs of a belief."""
        scores = _finite(score_of(belief, self.score).numpy(force=True))
        while len(scores):
            if self.monitor.state.count == self.length:
                self.follow(self)
                self.monitor.reset()
            room = self.length - self.monitor.state.count
            self.monitor.update(scores[:room])
            scores = scores[room:]

    def follow(self, before: Watch) -> None:
        """Count on from a monitor whose stream ends here; the next is a new one."""
        self._inputs, self._alarms = before.inputs, before.alarms
        self.streams = before.streams + 1


def _finite(scores: Any) -> Any:
    """Scores within the finite numbers: an infinite one is ranked first all the same."""
    return np.clip(np.asarray(scores, np.float64), -_LARGEST, _LARGEST)


def _monitor(watch: Watch) -> Iterator[Metric]:
    """What is known of the monitor."""
    now = watch.monitor.state
    for name, text, value in (
        ("inputs", "Inputs of the stream that runs.", now.count),
        ("log10_wealth", "Evidence of drift in the stream that runs; it began at 0.",
         now.log10_wealth),
        ("log10_largest", "The largest it has been.", now.log10_largest),
        ("log10_limit", "At which the monitor fires.", now.log10_limit),
        ("fired", "Whether the stream that runs has fired.", int(now.fired)),
    ):  # fmt: skip
        yield GaugeMetricFamily(f"gemfi_monitor_{name}", text, value)
    for name, text, value in (
        ("inputs", "Inputs of all streams.", watch.inputs),
        ("streams", "Streams that were begun.", watch.streams),
        ("alarms", "Streams that fired.", watch.alarms),
    ):
        yield CounterMetricFamily(f"gemfi_monitor_{name}", text, value)
