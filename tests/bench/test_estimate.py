"""The time of a grid: medians of records, a few timed steps, and what is counted."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gemfi.data import TASKS, Task
from gemfi.model import Model
from gemfi_bench import estimate as module
from gemfi_bench.estimate import Countdown, Estimate, Job, Pace, Recorded, estimate, jobs_of
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
    """What would be kept of a run that took so many seconds."""
    brief = bool(cell.evaluation.get("brief"))
    numbers: dict[str, Any] = {"validation": {"id": {"nll": 1.0}}}
    if not brief:
        numbers |= {"test": {}, "ood": {}, "shift": {"fog-1": {}}}
    return RunRecord(
        key=cell.key,
        title=cell.title,
        spec=cell.spec.to_plain(),
        members=tuple(each.name for each in cell.members),
        data={},
        sessions=(),
        training={"steps": steps},
        seconds={"train": train, "evaluate": evaluate},
        scores={},
        numbers=numbers,
        absent={},
        detectors={name: {} for name in cell.detectors},
    )


def keep(bench: Bench, *records: RunRecord) -> None:
    bench.folder.mkdir(exist_ok=True)
    for each in records:
        bench.file.append(each, {})


# -- from records ---------------------------------------------------------------------------------


def test_records_give_medians_of_training_and_evaluation(planned: list[Cell], task: Task) -> None:
    (cell, _) = cells_of(planned, "methods", "gem-fi")
    seeds = [replace(cell, seed=seed) for seed in range(5)]
    times = [(3.0, 1.0), (9.0, 2.0), (4.0, 1.5), (5.0, 8.0), (6.0, 1.2)]
    recorded = Recorded(record(each, *time) for each, time in zip(seeds, times, strict=True))
    job = Job.of(cell, len(task.train))
    assert job.steps == 8 * 3 == 24  # 759 digits in batches of 100, thrice
    assert recorded.train(job) == pytest.approx(statistics.median(t for t, _ in times))
    assert recorded.evaluate(job) == pytest.approx(statistics.median(e for _, e in times))


def test_training_goes_by_its_steps(planned: list[Cell], task: Task) -> None:
    cell = cells_of(planned, "methods", "daedl")[0]
    recorded = Recorded([record(cell, train=12.0, evaluate=1.0, steps=48)])
    assert recorded.train(Job.of(cell, len(task.train))) == pytest.approx(6.0)
    longer = replace(cell, spec=replace(cell.spec, train=replace(cell.spec.train, epochs=30)))
    assert recorded.train(Job.of(longer, len(task.train))) == pytest.approx(60.0)


def test_the_very_configuration_comes_before_the_method(planned: list[Cell], task: Task) -> None:
    three = cells_of(planned, "methods", "gem-fi")[0]
    (two,) = cells_of(planned, "components", "2")
    job = Job.of(two, len(task.train))
    by_method = Recorded([record(three, 5.0, 1.0)])
    assert by_method.train(job) == pytest.approx(5.0)
    both = Recorded([record(three, 5.0, 1.0), record(two, 4.0, 1.0)])
    assert both.train(job) == pytest.approx(4.0)
    assert both.train(Job.of(three, len(task.train))) == pytest.approx(5.0)


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, method="edl", head=None),
        lambda spec: replace(spec, backbone_options={**spec.backbone_options, "channels": 3}),
        lambda spec: replace(spec, train=replace(spec.train, batch_size=99)),
        lambda spec: replace(spec, train=replace(spec.train, bf16=True)),
    ],
)
def test_other_methods_networks_and_batches_are_not_like_it(
    change: Any, planned: list[Cell], task: Task
) -> None:
    cell = cells_of(planned, "methods", "daedl")[0]
    recorded = Recorded([record(cell, 5.0, 1.0)])
    assert recorded.train(Job.of(cell, len(task.train))) == pytest.approx(5.0)
    other = Job.of(replace(cell, spec=change(cell.spec)), len(task.train))
    assert recorded.train(other) is None
    assert recorded.evaluate(other) is None
    assert recorded.guess(other) is not None


def test_evaluations_of_another_kind_are_not_like_it(planned: list[Cell], task: Task) -> None:
    trial = cells_of(planned, "rates", "gem-fi at 0.01")[0]
    main = cells_of(planned, "methods", "gem-fi")[0]
    recorded = Recorded([record(trial, 5.0, 0.1)])
    job = Job.of(main, len(task.train))
    assert recorded.train(job) == pytest.approx(5.0)
    assert recorded.evaluate(job) is None


def test_an_assembled_ensemble_is_only_evaluated(planned: list[Cell], task: Task) -> None:
    (cell,) = cells_of(planned, "methods", "ensemble")
    assert len(cell.members) == 2
    job = Job.of(cell, len(task.train))
    recorded = Recorded([record(cell, train=100.0, evaluate=2.0)])
    assert (recorded.train(job), recorded.evaluate(job)) == (0.0, 2.0)
    trained = Job.of(replace(cell, members=()), len(task.train))
    assert recorded.train(trained) is None


def test_lost_members_of_an_ensemble_are_trained_again(
    bench: Bench, planned: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = cells_of(planned, "methods", "ensemble")
    members = [each for each in planned if each.key in cell.member_keys]
    assert jobs_of(bench, [cell])[0].trainings == 0  # they are still to be done, by themselves
    known = [record(each, train=12.0, evaluate=1.0) for each in members]
    for each in known:
        bench.file.append(each, {})
    (job,) = jobs_of(bench, [cell])
    assert job.trainings == 2
    assert Recorded(known).train(job) == pytest.approx(2 * 12.0)
    assert Recorded([]).train(job) is None
    monkeypatch.setattr(module, "paced", lambda *_: Pace(step=0.5, observed=0.0))
    one = replace(cell, members=cell.members[:1], member_keys=cell.member_keys[:1])
    assert estimate(bench, [one]).total_seconds == pytest.approx(12.0)
    timed = module._Timed(bench)
    timed.time([cell.spec], progress=False)
    assert timed.train(Job.of(cell, len(bench.task.train), lost=1)) == pytest.approx(0.5 * 24 / 2)


def test_a_countdown_takes_other_methods_for_what_it_does_not_know(
    planned: list[Cell], task: Task
) -> None:
    countdown = Countdown(Job.of(cell, len(task.train)) for cell in planned)
    assert countdown.left({}) is None
    trials = [cell for cell in planned if cell.group == "rates"]
    done = {cell.key: record(cell, 2.4 + at, 0.5) for at, cell in enumerate(trials)}
    left = [cell for cell in planned if cell.key not in done]
    train = {
        "softmax": statistics.median([2.4, 3.4]),
        "daedl": statistics.median([4.4, 5.4]),
        "gem-fi": statistics.median([6.4, 7.4]),
        "ensemble": 0.0,
    }
    distinct = {cell.key: train[cell.spec.method] + 0.5 for cell in left}
    assert len(distinct) == 8
    assert countdown.left(done) == pytest.approx(sum(distinct.values()))
    softmax = {key: each for key, each in done.items() if each.spec["method"] == "softmax"}
    unknown = len(planned) - len(softmax) - 1
    assert countdown.left(softmax) == pytest.approx(unknown * (2.9 + 0.5) + 0.5)
    every = {cell.key: record(cell, 1.0, 1.0) for cell in planned}
    assert countdown.left(every) == 0.0


# -- by the clock ---------------------------------------------------------------------------------


def test_without_records_steps_and_inputs_are_timed_once_a_spec(
    bench: Bench, planned: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def paced(spec: Any, task: Task) -> Pace:
        assert task is bench.task
        asked.append(spec.method)
        return Pace(step=0.5, observed=0.001)

    monkeypatch.setattr(module, "paced", paced)
    found = estimate(bench)
    assert sorted(asked) == ["daedl", "ensemble", "gem-fi", "gem-fi", "softmax"]
    assert [cell.key for cell, _ in found.cells] == [cell.key for cell in planned]
    assert found.total_seconds == pytest.approx(sum(seconds for _, seconds in found.cells))
    assert not bench.folder.exists()
    train, validation, test = 759, 126, 253
    tuned = sum(len(each) for each in bench.task.ood_validation.values())
    outside = tuned + sum(len(each) for each in bench.task.ood_test.values())
    brief = validation + train
    judged = validation + test + outside
    main = judged + 2 * 2 * 40 + train
    fitted = (3 + 2) * validation + tuned + train + train
    seconds = {cell.title: each for cell, each in found.cells}
    expected = {
        "rates/gem-fi at 0.01 seed 0": 24 * 0.5 + (brief + fitted) / 1000,
        "methods/gem-fi seed 1": 24 * 0.5 + (main + fitted) / 1000,
        "methods/softmax seed 0": 24 * 0.5
        + (main + fitted + train + validation + 3 * judged) / 1000,
        "methods/ensemble seed 0": main / 1000,
        "components/2 seed 0": 24 * 0.5 + (main - 2 * 2 * 40 + fitted) / 1000,
    }
    assert {title: seconds[title] for title in expected} == pytest.approx(expected)


def test_the_inputs_are_those_that_a_run_passes_through_its_model(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = replace(
        PROTOCOL, seeds=(0,), rates=Rates(), sweeps=Sweeps(), contestants=(Contestant("gem-fi"),)
    )
    bench = Bench(protocol, tmp_path, task)
    (cell,) = bench.plan()
    passed, inner = [0], Model.features

    def features(self: Model, x: torch.Tensor) -> torch.Tensor:
        passed[0] += 0 if self.training else len(x)
        return inner(self, x)

    monkeypatch.setattr(Model, "features", features)
    bench.work()
    counted = module._Timed(bench)._inputs(Job.of(cell, len(task.train)))
    assert counted == pytest.approx(passed[0], rel=0.05)


def test_records_come_before_the_clock(
    bench: Bench, planned: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    gem = cells_of(planned, "methods", "gem-fi")
    trials = [cell for cell in planned if cell.group == "rates"]
    keep(bench, record(gem[0], 5.0, 1.0), *(record(cell, 2.0, 0.25) for cell in trials))
    asked: list[str] = []

    def paced(spec: Any, _task: Task) -> Pace:
        asked.append(spec.method)
        return Pace(step=1e6, observed=0.001)  # a step that is asked for would be seen

    monkeypatch.setattr(module, "paced", paced)
    found = {cell.title: seconds for cell, seconds in estimate(bench).cells}
    assert found["methods/gem-fi seed 1"] == pytest.approx(2.0 + 1.0)  # median of 5, 2 and 2
    assert all(seconds < 100 for seconds in found.values())
    assert sorted(asked) == ["daedl", "ensemble", "gem-fi", "softmax"]  # for evaluations alone
    asked.clear()
    chosen = estimate(bench, [gem[1]])
    assert [cell.title for cell, _ in chosen.cells] == ["methods/gem-fi seed 1"]
    assert asked == []


def test_nothing_to_do_takes_no_time(bench: Bench, planned: list[Cell]) -> None:
    keep(bench, *(record(cell, 1.0, 1.0) for cell in planned))
    assert estimate(bench) == Estimate(())
    assert estimate(bench).total_seconds == 0


@pytest.mark.parametrize("row", ["softmax", "ensemble", "gem-fi"])
def test_real_steps_are_timed_on_the_tasks_data(
    row: str, planned: list[Cell], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cells_of(planned, "methods", row)[0]
    stepped: list[torch.Tensor] = []
    inner = module.Subject.train

    def train(self: module.Subject) -> None:
        stepped.append(self.x)
        before = [each.detach().clone() for each in self.model.parameters()]
        inner(self)
        after = self.model.parameters()
        moved = [bool((a != b).any()) for a, b in zip(before, after, strict=True)]
        assert sum(moved) > 0.8 * len(moved)  # of every member of an ensemble

    monkeypatch.setattr(module.Subject, "train", train)
    pace = module.paced(cell.spec, task)
    assert 2 <= len(stepped) <= 4  # one to warm up
    assert all(torch.equal(x, task.train.x[:100]) for x in stepped)
    assert pace.step > 0
    assert pace.observed > 0


@pytest.mark.parametrize(
    ("costs", "expected"),
    [([100.0, 0.3, 0.9, 0.4, 50.0], 0.4), ([0.1, 3.0, 50.0], 3.0), ([0.1, 1.5, 2.5, 50.0], 2.0)],
)
def test_the_clock_is_read_after_a_warm_up_and_until_it_is_enough(
    costs: list[float], expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

        def act(self) -> None:
            self.now += costs.pop(0)

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    assert module._clocked(clock.act) == pytest.approx(expected)
    assert costs == [50.0]
