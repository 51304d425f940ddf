"""What uncertainty costs: turns and ratios on a clock of our own, memory, and what is measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gemfi.errors import GemfiError, InputError
from gemfi.methods import PAPER_PRESETS
from gemfi.runs import RunSpec
from gemfi.training import TrainConfig
from gemfi_bench import overhead
from gemfi_bench.overhead import CONTESTANTS, Setting, Turn, measure_overhead, take_turns
from gemfi_bench.protocol import Contestant, Network, Protocol, find_protocol
from gemfi_bench.results import OVERHEAD
from gemfi_bench.runner import Bench

SHAPE, CLASSES, BATCH = (1, 8, 8), 3, 6
NAMES = ("softmax", "quick", "slow")
COST = {"softmax": 1.0, "quick": 0.5, "slow": 3.0}


def spec(name: str, **train: Any) -> RunSpec:
    method, head = CONTESTANTS[name]
    options = {"channels": 2, "size": 8}
    config = TrainConfig(**{"batch_size": BATCH} | train)
    return RunSpec("digits", method, "convnet", options, head=head, train=config)


def setting(*names: str) -> Setting:
    return Setting(SHAPE, CLASSES, {name: spec(name) for name in names})


def tiny_bench(folder: Path) -> Bench:
    protocol = Protocol(
        name="tiny",
        title="tiny",
        task="digits",
        contestants=(Contestant("softmax"),),
        network=Network("convnet", ("channels=2",)),
        train={"batch_size": 16, "epochs": 1},
    )
    return Bench(protocol, folder)


class Clock:
    """Time goes on when somebody acts: by the act's cost, times how slow the machine is by now."""

    def __init__(self, scale: float = 1.0, drift: float = 0.0) -> None:
        self.now, self.scale, self.drift = 0.0, scale, drift
        self.acts: list[str] = []

    def perf_counter(self) -> float:
        return self.now

    def act(self, name: str) -> None:
        self.now += COST[name] * self.scale * (1 + self.drift * len(self.acts))
        self.acts.append(name)


def turns(clock: Clock, rounds: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Turn]]:
    monkeypatch.setattr(overhead, "time", clock)
    return take_turns(NAMES, clock.act, rounds)


# -- turns ----------------------------------------------------------------------------------------


def test_a_turn_has_the_seconds_and_their_ratio_to_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    found = turns(Clock(), 4, monkeypatch)
    for name, each in found.items():
        assert each == [pytest.approx((COST[name], COST[name]))] * 4


def test_softmax_stands_on_both_sides_and_every_second_round_goes_backwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    turns(clock, 2, monkeypatch)
    base, *others = NAMES
    there = [base, base, base, others[0], base, others[1], base]
    back = [base, others[1], base, others[0], base, base, base]
    assert clock.acts == [*NAMES, base, *there, *back]  # warm up, one to see how quick it is


def test_a_machine_that_slows_down_evenly_changes_no_ratio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mean of softmax before and after is exact for a linear change."""
    found = turns(Clock(drift=0.05), 6, monkeypatch)
    for name, each in found.items():
        assert [turn.ratio for turn in each] == pytest.approx([COST[name]] * 6)
    seconds = [turn.seconds for turn in found["slow"]]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 1.5 * seconds[0]


def test_what_is_quick_is_repeated_within_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(scale=0.003)  # a turn of at least 20 ms is 7 of them
    found = turns(clock, 2, monkeypatch)
    assert found["slow"] == [pytest.approx((0.009, 3.0))] * 2
    assert len(clock.acts) == len(NAMES) + 1 + 2 * 7 * (1 + 2 * len(NAMES))


def test_the_summary_is_median_and_quartiles() -> None:
    ratios = np.random.default_rng(0).gamma(2.0, size=21)
    found = overhead._summary("train", [Turn(ratio / 10, ratio) for ratio in ratios])
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75], method="weibull")
    assert found == pytest.approx(
        {
            "train_ratio": middle,
            "train_low": low,
            "train_high": high,
            "train_ms": 100 * np.median(ratios),
        }
    )
    alone = overhead._summary("infer", [Turn(0.002, 1.5)])
    assert alone == {"infer_ratio": 1.5, "infer_low": 1.5, "infer_high": 1.5, "infer_ms": 2.0}


# -- what is measured -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_contestant_learns_and_infers(name: str) -> None:
    subject = overhead.subject(spec(name), SHAPE, CLASSES)
    before = [each.detach().clone() for each in subject.model.backbone.parameters()]
    subject.train()
    after = list(subject.model.backbone.parameters())
    assert all(bool((a != b).any()) for a, b in zip(before, after, strict=True))
    scores = subject.infer()
    assert [tuple(each.shape) for each in scores] == [(BATCH,)] * 2
    assert all(bool(each.isfinite().all()) for each in scores)


def test_a_training_step_augments_as_the_protocol_does(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = find_protocol("cifar10").train_changes()["augmentation"]
    subject = overhead.subject(spec("softmax", augmentation=chosen), SHAPE, CLASSES)
    seen: list[torch.Tensor] = []
    inner = subject.step.forward
    monkeypatch.setattr(
        subject.step, "forward", lambda x, *rest: (seen.append(x), inner(x, *rest))[1]
    )
    subject.train()
    generator = torch.Generator().manual_seed(0)
    torch.randn(2_000, subject.model.head.num_features, generator=generator)  # for the statistics
    assert torch.equal(seen[0], chosen(subject.x, generator))
    assert not torch.equal(seen[0], subject.x)


def test_a_bench_is_measured_with_its_own_network_and_samples(tmp_path: Path) -> None:
    found = Setting.of(tiny_bench(tmp_path))
    assert list(found.specs) == list(CONTESTANTS)
    assert (found.sample_shape, found.num_classes, found.batch) == ((1, 8, 8), 7, 16)
    for each in found.specs.values():
        assert (each.backbone, each.backbone_options["channels"]) == ("convnet", 2)
    assert found.specs["gem-fi"].head.num_components == 3
    assert found.specs["gem-fi-k5"].head.num_components == 5
    assert found.specs["paper-fi"].head == PAPER_PRESETS["gem-fi"]
    methods = [found.specs[name].method for name in ("gem-fi", "gem-fi-k5", "paper-fi")]
    assert methods == ["gem-fi", "gem-fi", "gem-paper"]


def test_the_whole_is_json_and_leaves_the_random_numbers_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        overhead, "peak_megabytes", lambda _setting, name: {"softmax": 5.0}.get(name)
    )
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    found = measure_overhead(setting("softmax", "mc-dropout", "ensemble"), rounds=2)
    assert torch.equal(torch.rand(3), expected)
    assert json.loads(json.dumps(found)) == found
    assert (found["rounds"], found["batch"], found["backbone"]) == (2, BATCH, "convnet")
    assert found["sample_shape"] == list(SHAPE)
    assert found["options"]["channels"] == 2
    assert found["environment"]["threads"] == torch.get_num_threads()
    rows = found["rows"]
    assert list(rows) == ["softmax", "mc-dropout", "ensemble"]
    assert rows["ensemble"]["parameters"] == 5 * rows["softmax"]["parameters"]
    assert rows["softmax"]["memory_mb"] == 5.0
    assert rows["ensemble"]["memory_mb"] is None
    for row in rows.values():
        for kind in ("train", "infer"):
            assert 0 < row[f"{kind}_low"] <= row[f"{kind}_ratio"] <= row[f"{kind}_high"]
            assert row[f"{kind}_ms"] > 0


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(InputError, match="ratios are against softmax, which is not among"):
        setting("edl", "gem-fi")
    two = {"softmax": spec("softmax"), "edl": spec("edl", batch_size=7)}
    with pytest.raises(InputError, match="give them one batch size"):
        Setting(SHAPE, CLASSES, two)
    with pytest.raises(InputError, match="rounds must be an integer of at least 1, got 0"):
        measure_overhead(setting("softmax"), rounds=0)


# -- memory ---------------------------------------------------------------------------------------


def test_memory_is_that_of_a_process_of_its_own() -> None:
    kept = torch.ones(100_000_000)  # 400 MB here, which must not count there
    found = overhead.peak_megabytes(setting("softmax"), "softmax")
    here = overhead._peak(Path("/proc/self/status").read_text())
    assert found is not None
    assert here is not None
    assert 50 < found < here
    assert len(kept) == 100_000_000  # it was there until now


def test_memory_is_none_where_the_system_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overhead, "_STATUS", tmp_path / "absent")
    monkeypatch.setattr(subprocess, "run", pytest.fail)
    assert overhead.peak_megabytes(setting("softmax"), "softmax") is None
    assert overhead._peak("Name:\tpython\nVmRSS:\t 10 kB\n") is None
    assert overhead._peak("VmRSS:\t 10 kB\nVmHWM:\t  2048 kB\n") == 2.0


def test_a_process_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    done = SimpleNamespace(returncode=1, stdout="", stderr="Traceback\nMemoryError: too much\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(GemfiError, match="memory of softmax failed: MemoryError: too much"):
        overhead.peak_megabytes(setting("softmax"), "softmax")
    killed = SimpleNamespace(returncode=-9, stdout="", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: killed)
    with pytest.raises(GemfiError, match="memory of softmax failed: exit code -9"):
        overhead.peak_megabytes(setting("softmax"), "softmax")


# -- in the folder of a bench ---------------------------------------------------------------------


def test_a_bench_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def measured(_bench: Bench, rounds: int, **_: Any) -> dict[str, Any]:
        calls.append(rounds)
        return {"rows": {"softmax": {"train_ratio": float("nan")}}}

    monkeypatch.setattr(overhead, "measure_overhead", measured)
    for _ in range(2):
        path = overhead.keep_overhead(tiny_bench(tmp_path), rounds=3)
    assert path == tmp_path / OVERHEAD
    assert calls == [3]
    assert json.loads(path.read_text()) == {"rows": {"softmax": {"train_ratio": None}}}
