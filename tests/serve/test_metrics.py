"""Counters, histograms, their text, and the monitor in it."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from gemfi.bundle import Bundle
from gemfi.monitor import Monitor
from gemfi.scores import score_of
from gemfi.serve.metrics import Watch
from gemfi.serve.settings import Settings
from support.served import Open, blobs

LINE = re.compile(r'[a-z0-9_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? (NaN|[+-]Inf|[-+.e\d]+)')


def values(text: str) -> dict[str, float]:
    """Name with labels -> number, of a text whose every line is checked."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            assert LINE.fullmatch(line), line
            name, _, number = line.rpartition(" ")
            assert name not in found
            family = re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", name)
            assert family in kinds or name.partition("{")[0] in kinds
            found[name] = float(number)
    return found


def test_the_text_of_the_server(rows: Bundle, row_client: TestClient) -> None:
    x = blobs(30, "test", 9).x
    row_client.post("/v1/predict", json={"inputs": x.tolist()})
    row_client.post("/v1/predict", json={"input": x[0].tolist()})
    row_client.post("/v1/predict", json={"input": "no"})
    row_client.get("/nothing/at/all")
    answer = row_client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = values(answer.text)
    counted = 'gemfi_requests_total{{code="{2}",method="{1}",route="{0}"}}'
    assert found[counted.format("/v1/predict", "POST", 200)] == 2
    assert found[counted.format("/v1/predict", "POST", 422)] == 1
    assert found[counted.format("other", "GET", 404)] == 1
    assert found['gemfi_request_seconds_count{route="/v1/predict"}'] == 3
    buckets = [
        value for name, value in found.items()
        if name.startswith("gemfi_request_seconds_bucket{") and 'route="/v1/predict"' in name
    ]  # fmt: skip
    assert all(first <= second for first, second in pairwise(buckets))
    assert found["gemfi_inputs_total"] == 31
    assert found["gemfi_batch_inputs_count"] == 2
    assert found["gemfi_batch_inputs_sum"] == 31
    assert rows.policy is not None
    belief = rows.model.predict(x)
    counts = rows.policy(belief).counts()
    first = str(rows.policy(belief)[0].verdict)
    for verdict, count in counts.items():
        expected = count + (verdict == first)
        assert found[f'gemfi_decisions_total{{verdict="{verdict}"}}'] == expected
    assert found["gemfi_queue_inputs"] == 0
    assert found["gemfi_queue_limit_inputs"] == 1024
    assert found["gemfi_monitor_inputs"] == found["gemfi_monitor_inputs_total"] == 31
    assert rows.calibration is not None
    monitor = Monitor(rows.calibration.score, 0.01, score=rows.score)
    monitor.update(belief)
    state = monitor.update(rows.model.predict(x[:1]))
    assert found["gemfi_monitor_log10_wealth"] == pytest.approx(state.log10_wealth, rel=1e-6)
    assert found["gemfi_monitor_log10_limit"] == 2
    assert found["gemfi_monitor_fired"] == 0


def strangest(rows: Bundle) -> torch.Tensor:
    """Of many rows the one that is least familiar."""
    pool = torch.linspace(-20, 20, 4000).reshape(1000, 4).roll(1, 0)
    return pool[score_of(rows.model.predict(pool), rows.score).argmax()]


def test_drift_is_seen(rows: Bundle, row_client: TestClient) -> None:
    far = [strangest(rows).tolist()] * 100
    assert row_client.post("/v1/predict", json={"inputs": far}).status_code == 200
    found = values(row_client.get("/metrics").text)
    assert found["gemfi_monitor_fired"] == found["gemfi_monitor_alarms_total"] == 1


def test_without_calibration_data_there_is_no_monitor(undecided: Bundle, open_client: Open) -> None:
    client = open_client(undecided)
    client.post("/v1/predict", json={"input": [1, 2, 3, 4]})
    text = client.get("/metrics").text
    assert "monitor" not in text
    assert "gemfi_decisions_total{" not in text


def test_the_monitor_begins_anew(rows: Bundle) -> None:
    watch = Watch.of(rows, rows.policy, Settings(monitor_length=25))
    assert watch is not None
    x = blobs(70, "test", 9).x
    belief = rows.model.predict(x)
    for start in range(0, 70, 10):
        watch.update(belief[start : start + 10])
    assert (watch.inputs, watch.streams, watch.monitor.state.count) == (70, 3, 20)
    assert rows.calibration is not None
    truth = Monitor(rows.calibration.score, 0.01, score=rows.score)
    truth.reset()
    truth.reset()
    assert truth.update(belief[50:]) == watch.monitor.state


def test_alarms_outlive_their_stream(rows: Bundle) -> None:
    watch = Watch.of(rows, rows.policy, Settings(monitor_length=100))
    assert watch is not None
    far = rows.model.predict(strangest(rows).repeat(150, 1))
    watch.update(far)
    assert watch.alarms >= 1
    near = rows.model.predict(blobs(60, "test", 9).x)
    watch.update(near)
    assert watch.streams == 3
    assert watch.alarms >= 1
    assert not watch.monitor.state.fired


def test_the_monitor_of_a_policy_alone(rows: Bundle) -> None:
    """A run folder's policy has its reference, though the bundle remembers no calibration data."""
    from dataclasses import replace  # noqa: PLC0415

    bare = replace(rows, calibration=None, policy=None)
    assert Watch.of(bare, None, Settings()) is None
    watch = Watch.of(bare, rows.policy, Settings())
    assert watch is not None
    assert rows.policy is not None
    assert np.array_equal(watch.monitor.reference, rows.policy.reference.groups[0])
