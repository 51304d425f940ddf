from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gemfi_bench.demo import GROUPS, TITLES, columns, render, shown
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


def test_a_block_is_as_drawn_here(digits: list[Run]) -> None:
    assert render(digits).splitlines() == [
        "Digits 0-6; unseen: 8, 9 (near); noise, inverted, shuffled images (far, their mean)",
        "",
        "                               ──────── near OOD ────────   ──────── far OOD ─────────",
        "                                  AUROC↑        AUPR↑          AUROC↑        AUPR↑",
        "method    acc↑  ECE↓  Brier↓   alea.  epis.  alea.  epis.   alea.  epis.  alea.  epis.       s",  # noqa: E501
        "──────────────────────────────────────────────────────────────────────────────────────────────",
        "softmax   98.0   3.1     2.5    61.0   62.1   62.0   63.0    95.0   87.0   76.0   77.0     8.8",  # noqa: E501
        "gem-fi   100.0  10.3    12.5    61.0   62.1   62.0   63.0    95.0   87.0   76.0   77.0   121.3",  # noqa: E501
    ]


def test_every_number_ends_under_its_head(digits: list[Run], toys: list[Run]) -> None:
    blocks = render([*digits, *toys]).split("\n\n\n")
    assert len(blocks) == 3
    places = []
    for block in blocks:
        lines = block.splitlines()
        head, rule, *body = lines[4:]
        ends = [match.end() for match in re.finditer(r"\S+", head)]
        for line in body:
            assert [match.end() for match in re.finditer(r"\S+", line)][1:] == ends[1:]
        assert {len(line) for line in (head, rule, *body)} == {len(rule)}
        # The rule of a group spans its four columns, from the first head to the last.
        groups = [match.span() for match in re.finditer(r"─+ [^─]+ ─+", lines[2])]
        assert [end for _, end in groups] == [*ends[7:-1:4]]
        places.append(ends)
    assert places[0][:8] == places[1][:8] == places[2][:8]


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
    for run in runs:
        rows = {row["ood"]: row for row in run.rows()}
        for col in columns(run.plan.task):
            key = f"{col.metric}_{col.score}" if col.score else col.metric
            found = [row[key] for name, row in rows.items() if not col.sets or name in col.sets]
            assert col.value(run) == pytest.approx(sum(found) / len(found))


def test_the_best_is_the_highest_or_the_lowest_as_shown(make_run: MakeRun) -> None:
    ood = {"cluster": (40.0, 99.94, 10.0)}, {"cluster": (49.0, 99.86, 12.0)}
    runs = [
        make_run("two-moons", "edl", (99.0, 2.0, 3.04), ood[0]),
        make_run("two-moons", "gem-fi", (98.0, 1.0, 2.96), ood[1]),
    ]
    best = [col.best(runs) for col in columns("two-moons")]
    # Below chance there is no best AUROC; seconds are no contest.
    assert best == ["99.0", "1.0", "3.0", None, "99.9", "11.0", "12.0", None]
    assert shown(3.04) == shown(2.96) == "3.0"
