from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gemfi_bench.demo import GROUPS, TITLES, datasets, render, table
from gemfi_bench.tabular import Value, marks
from gemfi_bench.toys import Run

MakeRun = Callable[..., Run]

FAR = {"noise": (90.0, 80.0, 70.0), "inverted": (96.0, 86.0, 76.0), "shuffled": (99.0, 95.0, 85.0)}


@pytest.fixture
def digits(make_run: MakeRun) -> list[Run]:
    near = {"digits-8-9": (61.04, 62.06, 63.0)}
    return [
        make_run("digits", "softmax", (98.0, 3.14, 2.5), near | FAR, 8.76),
        make_run("digits", "gem-fi", (100.0, 10.26, 12.5), near | FAR, 121.3),
    ]


@pytest.fixture
def toys(make_run: MakeRun) -> list[Run]:
    return [
        make_run("two-moons", "edl", (99.5, 1.0, 0.25), {"cluster": (8.5, 18.4, 35.1)}),
        make_run("line", "edl", (90.4, 5, 9), {"gap": (75, 73, 84), "right-tail": (4, 5, 31)}),
    ]


def test_a_block_is_as_drawn_here(toys: list[Run]) -> None:
    assert render(toys[:1]).splitlines() == [
        "Two moons; unseen: a cluster beside them (GEM-FI: density on raw features)",
        "",
        "                              cluster  cluster  cluster  cluster",
        "                               AUROC↑   AUROC↑    AUPR↑    AUPR↑",
        "method   acc↑   ECE↓  Brier↓    alea.    epis.    alea.    epis.      s",
        "─" * 71,
        "EDL      99.5    1.0     0.2      8.5     18.4     34.1     35.1    1.0",
    ]


def test_every_number_ends_under_its_head(digits: list[Run], toys: list[Run]) -> None:
    blocks = render([*digits, *toys]).split("\n\n\n")
    assert len(blocks) == 3
    for block in blocks:
        _, _, *groups, head, rule, first = block.splitlines()[:7]
        body = block.splitlines()[6:]
        ends = [match.end() for match in re.finditer(r"\S+", head)]
        for line in body:
            assert [match.end() for match in re.finditer(r"\S+", line)][1:] == ends[1:]
        assert len(rule) == max(map(len, [head, *body]))
        assert len(rule) <= 100
        for line in groups:  # over each of the columns of OOD data, and no other
            assert [match.end() for match in re.finditer(r"\S+", line)] == ends[4:-1]
        assert first


def test_blocks_come_in_order_and_only_for_what_was_run(digits: list[Run], toys: list[Run]) -> None:
    text = render([*toys[::-1], *digits])
    positions = [text.index(title) for title in TITLES.values()]
    assert positions == sorted(positions)
    assert TITLES["digits"] not in render(toys)
    assert render([]) == ""


def test_groups_name_the_ood_sets_of_the_tasks(runs: list[Run]) -> None:
    for run in runs:
        named = [name for sets in GROUPS[run.plan.task].values() for name in sets]
        assert sorted(named) == sorted(run.task.ood_test)


def test_columns_hold_the_numbers_of_the_rows(runs: list[Run]) -> None:
    for name, members in datasets(runs).items():
        made = table(name, members)
        for run, row in zip(members, made.rows, strict=True):
            rows = {row["ood"]: row for row in run.rows()}
            cells = dict(zip(made.columns, row.cells, strict=True))
            first = next(iter(rows.values()))
            expected = [first[key] for key in ("accuracy", "ece", "brier")]
            for sets in GROUPS[name].values():
                for metric in ("auroc", "aupr_id"):
                    for kind in ("aleatoric", "epistemic"):
                        found = [rows[one][f"{metric}_{kind}"] for one in sets]
                        expected.append(sum(found) / len(found))
            expected.append(run.seconds)
            values = [cell.mean for cell in cells.values() if isinstance(cell, Value)]
            assert values == pytest.approx(expected)


def test_the_best_is_the_highest_or_the_lowest_as_shown(make_run: MakeRun) -> None:
    ood = {"cluster": (40.0, 99.94, 10.0)}, {"cluster": (49.0, 99.86, 12.0)}
    runs = [
        make_run("two-moons", "edl", (99.0, 2.0, 3.04), ood[0]),
        make_run("two-moons", "gem-fi", (98.0, 1.0, 2.96), ood[1]),
    ]
    made = table("two-moons", runs)
    best = [place for place, mark in marks(made).items() if mark == "best"]
    # Below chance there is no best AUROC; seconds are no contest; 3.04 and 2.96 look equal.
    assert sorted(best) == [(0, 0), (0, 2), (0, 4), (1, 1), (1, 2), (1, 4), (1, 5), (1, 6)]
