"""The grid: which cells, which keys, and how learning rates are chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemfi._config import to_plain
from gemfi.data import TASKS, Task
from gemfi.methods.gem_paper import ablation, switches
from gemfi.outliers import VOS
from gemfi_bench import grid
from gemfi_bench.grid import Cell, plan
from gemfi_bench.protocol import Contestant, Protocol, Rates, Shift, Sweeps

BASE = Protocol(
    name="small",
    title="Small",
    task="digits",
    contestants=(Contestant("softmax"), Contestant("gem-fi")),
    train={"epochs": 2, "batch_size": 32},
    seeds=(0, 1),
)


@pytest.fixture(scope="module")
def task() -> Task:
    return TASKS["digits"]()


def titles(cells: list[Cell]) -> list[str]:
    return [cell.title for cell in cells]


def test_a_cell_for_each_method_and_seed(task: Task) -> None:
    assert titles(plan(BASE, task)) == [
        "methods/softmax seed 0",
        "methods/softmax seed 1",
        "methods/gem-fi seed 0",
        "methods/gem-fi seed 1",
    ]


def test_a_key_is_the_same_again_and_another_for_everything_that_matters(task: Task) -> None:
    first = plan(BASE, task)[0]
    assert plan(BASE, task)[0].key == first.key
    others = [
        replace(BASE, train={"epochs": 3, "batch_size": 32}),
        replace(BASE, seeds=(7, 1)),
        replace(BASE, shift=Shift(("fog",), (1,), 10)),
        replace(BASE, contestants=(Contestant("softmax", detectors=("all",)),)),
        replace(BASE, contestants=(Contestant("edl"),)),
    ]
    keys = [plan(other, task)[0].key for other in others]
    assert len({first.key, *keys}) == len(others) + 1


def test_a_title_does_not_change_the_key(task: Task) -> None:
    renamed = replace(BASE, title="Another", name="other", notes=("new",))
    assert [c.key for c in plan(renamed, task)] == [c.key for c in plan(BASE, task)]


def test_a_run_that_two_tables_need_has_one_key(task: Task) -> None:
    swept = replace(BASE, sweeps=Sweeps(components=(3, 4)), shift=Shift(("fog",), (1,), 10))
    cells = {cell.title: cell for cell in plan(swept, task)}
    assert cells["components/3 seed 0"].key == cells["methods/gem-fi seed 0"].key
    assert cells["components/4 seed 0"].key != cells["methods/gem-fi seed 0"].key
    assert cells["components/4 seed 0"].evaluation == {"shift": None}


def test_the_ablation_has_the_ten_rows_of_the_switches(task: Task) -> None:
    cells = plan(replace(BASE, sweeps=Sweeps(ablation=True, seeds=(0,))), task)
    rows = {cell.row: cell.spec.head for cell in cells if cell.group == grid.ABLATION}
    assert {row: switches(to_plain(config)) for row, config in rows.items()} == {
        row: switches(to_plain(config)) for row, config in ablation().items()
    }
    spectral = {cell.row: cell.spec.backbone_options["spectral"]["kind"] for cell in cells
                if cell.group == grid.ABLATION}  # fmt: skip
    assert spectral["ablation-full"] == "soft"
    assert spectral["ablation-full-without-sn"] == "off"


def test_the_sweeps_change_what_they_say(task: Task) -> None:
    sweeps = Sweeps(fisher=(0.3,), kl=(0.01,), components=(5,), outliers=True, seeds=(0,))
    heads = {c.title: c.spec.head for c in plan(replace(BASE, sweeps=sweeps), task)}
    fisher = heads["lambda-fi/0.3 seed 0"]
    assert (fisher.fi_reg_weight, fisher.fi_mod_strength) == (0.3, 0.3)
    assert heads["lambda-kl/0.01 seed 0"].kl_weight == 0.01
    assert heads["components/5 seed 0"].num_components == 5
    assert heads["outliers/daedl+vos seed 0"].outliers.kind == "vos"
    assert heads["outliers/gem-fi+none seed 0"].outliers.is_none
    assert heads["outliers/gem-fi+noise seed 0"].outliers.kind == "noise"


def test_vos_and_noise_differ_in_the_kind_alone(task: Task) -> None:
    sweeps = Sweeps(outliers=True, seeds=(0,))
    specs = {c.title: c.spec for c in plan(replace(BASE, sweeps=sweeps), task)}
    vos = specs["outliers/gem-fi+vos seed 0"]
    assert (vos.head.outliers.ratio, vos.head.outliers.start) == (VOS.ratio, VOS.start)
    noise = replace(vos.head, outliers=replace(vos.head.outliers, kind="noise"))
    assert specs["outliers/gem-fi+noise seed 0"] == replace(vos, head=noise)


def test_an_assembled_ensemble_has_the_runs_of_its_row_as_members(task: Task) -> None:
    both = (Contestant("softmax"), Contestant("ensemble", assembled="softmax"))
    cells = plan(replace(BASE, contestants=both), task)
    (whole,) = [cell for cell in cells if cell.row == "ensemble"]
    assert [each.name for each in whole.members] == [c.spec.name for c in cells[:2]]
    assert whole.member_keys == tuple(c.key for c in cells[:2])
    assert whole.spec.head.members == 2


# -- learning rates -------------------------------------------------------------------------------

RATED = replace(BASE, rates=Rates((0.1, 0.01), (0, 1)))


def test_cells_wait_for_the_learning_rate_of_their_method(task: Task) -> None:
    cells = plan(RATED, task)
    rates = [cell for cell in cells if cell.group == grid.RATES]
    assert len(rates) == 2 * 2 * 2
    assert all(cell.ready for cell in rates)
    assert not any(cell.ready for cell in cells if cell.group != grid.RATES)


def test_rates_are_chosen_for_methods_that_are_run(task: Task) -> None:
    def methods(protocol: Protocol) -> list[str]:
        cells = [cell for cell in plan(protocol, task) if cell.group == grid.RATES]
        return list(dict.fromkeys(cell.spec.method for cell in cells))

    alone = replace(RATED, contestants=(Contestant("softmax"),))
    assert methods(alone) == ["softmax"]
    assert methods(replace(alone, sweeps=Sweeps(kl=(0.1,)))) == ["softmax", "gem-fi"]
    swept = methods(replace(alone, sweeps=Sweeps(outliers=True)))
    assert set(swept) == {"softmax", "daedl", "re-edl", "gem-fi"}


def test_the_rate_of_the_least_mean_nll_is_taken(task: Task) -> None:
    # softmax: 0.1 is better at seed 0, 0.01 on average; gem-fi: 0.1 on average
    known = {
        ("softmax", 0.1, 0): 0.2, ("softmax", 0.1, 1): 0.9,
        ("softmax", 0.01, 0): 0.5, ("softmax", 0.01, 1): 0.5,
        ("gem-fi", 0.1, 0): 0.1, ("gem-fi", 0.1, 1): 0.1,
        ("gem-fi", 0.01, 0): 0.2, ("gem-fi", 0.01, 1): 0.1,
    }  # fmt: skip

    def nll(cell: Cell) -> float:
        return known[cell.spec.method, cell.spec.train.learning_rate, cell.seed]

    rates = {
        c.row: c.spec.train.learning_rate for c in plan(RATED, task, nll) if c.group != "rates"
    }
    assert rates == {"softmax": 0.01, "gem-fi": 0.1}


def test_a_method_waits_until_all_its_rates_are_known(task: Task) -> None:
    def nll(cell: Cell) -> float | None:
        known = cell.spec.method == "softmax" or cell.seed == 0
        return cell.spec.train.learning_rate if known else None

    ready = {cell.row: cell.ready for cell in plan(RATED, task, nll) if cell.group != "rates"}
    assert ready == {"softmax": True, "gem-fi": False}
