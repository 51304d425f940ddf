"""The time of a grid: medians of records, or a few timed steps; and what is counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gemfi.data import TASKS, Task
from gemfi_bench import estimate as module
from gemfi_bench.estimate import Pace, estimate, jobs_of, recorded_paces, seconds_left
from gemfi_bench.grid import Cell
from gemfi_bench.protocol import Contestant, Network, Protocol, Rates, Shift, Sweeps
from gemfi_bench.record_file import RunRecord
from gemfi_bench.runner import Bench

SHIFT = Shift(("fog", "contrast"), (1, 3), images=40)
PROTOCOL = Protocol(
    name="tiny",
    title="tiny",
    task="digits",
    seeds=(0, 1),
    network=Network("convnet", ("channels=2",)),
    train={"epochs": 3, "batch_size": 100},
    contestants=(
        Contestant("softmax", detectors=("odin", "maxp")),
        Contestant("ensemble", assembled="softmax"),
        Contestant("daedl"),
        Contestant("gem-fi"),
    ),
    rates=Rates((0.01, 0.1)),
    sweeps=Sweeps(components=(2,), seeds=(0,)),
    shift=SHIFT,
)


@pytest.fixture(scope="module")
def task() -> Task:
    return TASKS["digits"]()


@pytest.fixture(scope="module")
def planned(task: Task) -> list[Cell]:
    return Bench(PROTOCOL, "nowhere", task).plan()


@pytest.fixture
def bench(
    task: Task, planned: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    made = Bench(PROTOCOL, tmp_path / "bench", task)
    monkeypatch.setattr(made, "plan", lambda: planned)  # planning takes a while
    return made


def cells_of(cells: Iterable[Cell], group: str, row: str) -> list[Cell]:
    return [cell for cell in cells if (cell.group, cell.row) == (group, row)]


def record(cell: Cell, train: float, evaluate: float, steps: int = 24) -> RunRecord:
    """What would be kept of a run that took so many seconds, and evaluated 1,000 inputs."""
    return RunRecord(
        key=cell.key,
        title=cell.title,
        spec=cell.spec.to_plain(),
        members=tuple(spec.name for spec in cell.members),
        data={"train": {"n": 600}, "test": {"n": 400}},
        sessions=(),
        training={"steps": steps},
        seconds={"train": train, "evaluate": evaluate},
        scores={},
        numbers={"validation": {"id": {"nll": 1.0}}},
        absent={},
        detectors={},
    )


def keep(bench: Bench, *records: RunRecord) -> None:
    bench.folder.mkdir(exist_ok=True)
    for one in records:
        bench.file.append(one, {})


def method_of(bench: Bench, cell: Cell) -> str:
    return jobs_of(bench, [cell])[0].method


# -- from records ---------------------------------------------------------------------------------


def test_a_pace_is_the_median_over_the_runs_of_a_method(bench: Bench, planned: list[Cell]) -> None:
    (cell, _) = cells_of(planned, "methods", "gem-fi")
    times = [(3.0, 1.0), (9.0, 2.0), (4.0, 1.5), (5.0, 8.0), (6.0, 1.2)]
    paces = recorded_paces([record(cell, *spent) for spent in times])
    expected = Pace(5.0 / 24, 1.5 / 1000)
    assert paces[method_of(bench, cell)] == pytest.approx(expected)
    (two,) = cells_of(planned, "components", "2")
    assert method_of(bench, two) == method_of(bench, cell)  # details are left aside


def test_training_goes_by_its_steps(bench: Bench, planned: list[Cell]) -> None:
    cell = cells_of(planned, "methods", "daedl")[0]
    keep(bench, record(cell, train=12.0, evaluate=0.0, steps=48))
    longer = replace(cell, spec=replace(cell.spec, train=replace(cell.spec.train, epochs=30)))
    (job,) = jobs_of(bench, [cell])
    assert job.steps == 8 * 3 == 24  # 759 digits in batches of 100, thrice
    assert estimate(bench, [cell]) == {cell.key: pytest.approx(6.0)}
    assert estimate(bench, [longer]) == {longer.key: pytest.approx(60.0)}


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, method="edl", head=None),
        lambda spec: replace(spec, backbone_options={**spec.backbone_options, "channels": 3}),
        lambda spec: replace(spec, train=replace(spec.train, batch_size=99)),
        lambda spec: replace(spec, train=replace(spec.train, precision="bf16")),
    ],
)
def test_other_methods_networks_and_batches_have_a_pace_of_their_own(
    change: Any, bench: Bench, planned: list[Cell]
) -> None:
    cell = cells_of(planned, "methods", "daedl")[0]
    other = replace(cell, spec=change(cell.spec))
    assert method_of(bench, other) != method_of(bench, cell)


def test_an_assembled_ensemble_trains_its_lost_members_alone(
    bench: Bench, planned: list[Cell]
) -> None:
    (cell,) = cells_of(planned, "methods", "ensemble")
    assert len(cell.members) == 2
    assert jobs_of(bench, [cell])[0].steps == 0  # they are still to be done, by themselves
    members = [one for one in planned if one.key in cell.member_keys]
    keep(bench, *(record(one, 12.0, 1.0) for one in members))
    assert jobs_of(bench, [cell])[0].steps == 24
    one = replace(cell, members=cell.members[:1], member_keys=cell.member_keys[:1])
    assert jobs_of(bench, [one])[0].steps == 24


def test_a_countdown_takes_other_methods_for_what_it_does_not_know(
    bench: Bench, planned: list[Cell]
) -> None:
    jobs = list({job.cell.key: job for job in jobs_of(bench, planned)}.values())
    assert seconds_left(jobs, {}) is None
    known = [cell for cell in planned if cell.spec.method in {"softmax", "daedl"}]
    done = {cell.key: record(cell, 2.4, 0.5) for cell in known if cell.spec.method == "softmax"}
    done |= {cell.key: record(cell, 7.2, 1.5) for cell in known if cell.spec.method == "daedl"}
    left = {job.cell.key: job for job in jobs if job.cell.key not in done}
    usual = Pace((0.1 + 0.3) / 2, (0.0005 + 0.0015) / 2)
    expected = sum(job.seconds(usual) for job in left.values())
    assert seconds_left(jobs, done) == pytest.approx(expected)
    every = {cell.key: record(cell, 1.0, 1.0) for cell in planned}
    assert seconds_left(jobs, every) == 0.0


# -- by the clock ---------------------------------------------------------------------------------


def test_what_has_no_record_is_timed_once_a_method(
    bench: Bench, planned: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def timed_pace(spec: Any, task: Task) -> Pace:
        assert task is bench.task
        asked.append(spec.method)
        return Pace(step=0.5, input=0.001)

    monkeypatch.setattr(module, "timed_pace", timed_pace)
    found = estimate(bench)
    assert sorted(asked) == ["daedl", "ensemble", "gem-fi", "softmax"]
    assert list(found) == [cell.key for cell in planned]
    assert not bench.folder.exists()
    tuned = sum(len(split) for split in bench.task.ood_validation.values())
    outside = tuned + sum(len(split) for split in bench.task.ood_test.values())
    brief, main = 759 + 126, 759 + 126 + 253 + outside + 2 * 2 * 40
    seconds = {cell.title: found[cell.key] for cell in planned}
    expected = {
        "rates/gem-fi at 0.01 seed 0": 24 * 0.5 + brief / 1000,
        "methods/gem-fi seed 1": 24 * 0.5 + main / 1000,
        "methods/ensemble seed 0": main / 1000,
        "components/2 seed 0": 24 * 0.5 + (main - 2 * 2 * 40) / 1000,
    }
    assert {title: seconds[title] for title in expected} == pytest.approx(expected)


def test_the_inputs_are_those_that_a_run_evaluates(task: Task, tmp_path: Path) -> None:
    protocol = replace(
        PROTOCOL, seeds=(0,), rates=Rates(), sweeps=Sweeps(), contestants=(Contestant("gem-fi"),)
    )
    bench = Bench(protocol, tmp_path, task)
    (cell,) = bench.plan()
    bench.work()
    (done,) = bench.file.read().values()
    assert jobs_of(bench, [cell])[0].inputs == sum(facts["n"] for facts in done.data.values())


def test_records_come_before_the_clock(
    bench: Bench, planned: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    gem = cells_of(planned, "methods", "gem-fi")
    keep(bench, record(gem[0], 4.8, 0.0))
    asked: list[str] = []

    def timed_pace(spec: Any, _task: Task) -> Pace:
        asked.append(spec.method)
        return Pace(step=0.001, input=0.001)

    monkeypatch.setattr(module, "timed_pace", timed_pace)
    assert estimate(bench)[gem[1].key] == pytest.approx(4.8)
    assert sorted(asked) == ["daedl", "ensemble", "softmax"]


def test_nothing_to_do_takes_no_time(bench: Bench, planned: list[Cell]) -> None:
    keep(bench, *(record(cell, 1.0, 1.0) for cell in planned))
    assert estimate(bench) == {}


@pytest.mark.parametrize("row", ["softmax", "ensemble", "gem-fi"])
def test_real_steps_are_timed_on_the_tasks_data(
    row: str, planned: list[Cell], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cells_of(planned, "methods", row)[0]
    stepped: list[torch.Tensor] = []
    inner = module.Subject.train

    def train(self: module.Subject) -> None:
        stepped.append(self.x)
        before = [weight.detach().clone() for weight in self.model.parameters()]
        inner(self)
        after = self.model.parameters()
        moved = [bool((a != b).any()) for a, b in zip(before, after, strict=True)]
        assert sum(moved) > 0.8 * len(moved)  # of every member of an ensemble

    monkeypatch.setattr(module.Subject, "train", train)
    pace = module.timed_pace(cell.spec, task)
    assert len(stepped) == 4  # one to warm up
    assert all(torch.equal(x, task.train.x[:100]) for x in stepped)
    assert pace.step > 0
    assert pace.input > 0


def test_the_clock_is_read_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = [100.0, 0.3, 0.9, 0.4, 50.0]

    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

        def act(self) -> None:
            self.now += costs.pop(0)

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    assert module._seconds(clock.act) == pytest.approx(0.4)
    assert costs == [50.0]
