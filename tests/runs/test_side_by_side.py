"""The table of several runs: a line a run, means over seeds, and no line too long."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemfi._text import WIDTH, aligned, duration, number
from gemfi.runs import OwnData, Run
from gemfi.runs.folder import METRICS
from gemfi_bench.side_by_side import comparison, means, ranges


def line(table: str, *words: str) -> list[str]:
    """The numbers of the lines that begin with these words, one line a table."""
    count = len(words)
    lines = [each.split() for each in table.splitlines()]
    return [number for each in lines if tuple(each[:count]) == words for number in each[count:]]


def with_sets(run: Run, names: list[str], folder: Path) -> Run:
    """The run as if it had been evaluated on sets of these names."""
    numbers = json.loads((run.folder / METRICS).read_text())
    found = numbers["test"]["ood"]
    entries = {name: found.get(name, found["cluster"]) for name in names}
    numbers["test"]["ood"] = {name: {**entry, "split": name} for name, entry in entries.items()}
    folder.mkdir(parents=True)
    (folder / METRICS).write_text(json.dumps(numbers))
    return replace(run, folder=folder)


def test_each_run_has_a_line_with_its_numbers(five: list[Run]) -> None:
    table = comparison(five)
    for index, run in enumerate(five, start=1):
        test = run.metrics()["test"]
        inside, cluster, ring = test["id"], test["ood"]["cluster"], test["ood"]["ring"]
        assert line(table, str(index), run.spec.method, str(run.spec.train.seed)) == [
            f"{inside['accuracy']:.2f}",
            f"{inside['nll']:.3f}",
            f"{inside['brier']:.2f}",
            f"{inside['ece']:.2f}",
            *(
                f"{entry[kind][name]:.2f}"
                for entry in (cluster, ring)
                for kind in ("epistemic", "aleatoric")
                for name in ("auroc", "aupr_id", "fpr95")
            ),
        ]
        assert f"{index}  {run.folder}" in table
    assert "two-moons: test data two-moons, n 500" in table
    assert "ood-test, n 500" in table


def test_seeds_are_averaged_and_the_deviation_needs_three(five: list[Run]) -> None:
    table = comparison(five)
    values = [run.metrics()["test"]["id"]["accuracy"] for run in five]
    edl, gem = line(table, "1-3", "edl", "mean", "of"), line(table, "4-5", "gem-fi", "mean", "of")
    assert edl[:2] == ["3", f"{statistics.fmean(values[:3]):.2f}"]
    assert gem[:2] == ["2", f"{statistics.fmean(values[3:]):.2f}"]
    assert line(table, "±", "sd")[0] == f"{statistics.stdev(values[:3]):.2f}"  # of EDL alone
    three, two = means(five)
    assert (three["method"], three["seeds"], two["seeds"]) == ("edl", [0, 1, 2], [0, 1])
    (accuracy,) = (each for each in three["values"] if each["metric"] == "accuracy")
    assert accuracy["mean"] == pytest.approx(statistics.fmean(values[:3]))
    assert accuracy["sd"] == pytest.approx(statistics.stdev(values[:3]))
    assert {each["sd"] for each in two["values"]} == {None}


def test_only_runs_that_differ_by_the_seed_alone_are_averaged(five: list[Run]) -> None:
    first, second, third = five[:3]
    spec = replace(second.spec, train=replace(second.spec.train, epochs=9))
    other = replace(second, record=replace(second.record, spec=spec))
    assert [each["seeds"] for each in means([first, other, third])] == [[0, 2]]
    table = comparison([first, other, third])
    assert "1,3" in table
    assert f"2  {second.folder}\n   differs from 1: train.epochs=9" in table
    facts = replace(second.record.facts, class_counts=(1, 2))
    elsewhere = replace(second, record=replace(second.record, facts=facts))
    assert means([first, elsewhere]) == []
    assert means([first, first]) == []  # twice the same seed is one run


@pytest.mark.parametrize(
    "names", [["svhn/test, first 5,000"], ["x" * 40, "y" * 40], ["a", "b", "c"]]
)
def test_it_fits_the_terminal_and_each_set_has_a_block(
    five: list[Run], tmp_path: Path, names: list[str]
) -> None:
    runs = [with_sets(run, names, tmp_path / str(at)) for at, run in enumerate(five)]
    table, _, folders = comparison(runs).rpartition("\n\n")
    assert len(folders.splitlines()) >= len(runs)
    assert max(map(len, table.splitlines())) <= WIDTH
    assert sum("epistemic" in each for each in table.splitlines()) == len(names)
    for name in names:
        assert name in table
    assert table.count("AUROC") == 2 * len(names)
    heads = [each for each in table.splitlines() if "method" in each]
    assert len({each.index("seed") for each in heads}) == 1


def test_the_sets_of_one_run_are_one_table(five: list[Run], tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    table = comparison([with_sets(five[0], names, tmp_path / "one")])
    assert "Against unfamiliar data, by evidence" in table
    assert table.count("AUROC") == 1
    assert [line.split()[0] for line in table.splitlines() if "ood-test" in line] == names


def test_an_undefined_number_is_a_dash(five: list[Run], tmp_path: Path) -> None:
    run = with_sets(five[0], ["ring"], tmp_path / "one")
    numbers: dict[str, Any] = json.loads((run.folder / METRICS).read_text())
    numbers["test"]["id"]["nll"] = None
    (run.folder / METRICS).write_text(json.dumps(numbers))
    runs = [run, *five[1:3]]
    table = comparison(runs)
    assert line(table, "1", "edl", "0")[1] == "-"
    assert line(table, "1-3", "edl", "mean", "of", "3")[1] == "-"
    assert line(table, "±", "sd")[1] == "-"
    values = {(each["set"], each["metric"]): each for each in means(runs)[0]["values"]}
    assert (values["", "nll"]["mean"], values["", "nll"]["sd"]) == (None, None)
    assert values["", "accuracy"]["sd"] is not None
    assert {ood for ood, _ in values} == {"", "ring"}  # what all of them have


def test_tasks_have_blocks_of_their_own(five: list[Run]) -> None:
    spec = replace(five[1].spec, task="line")
    other = replace(five[1], record=replace(five[1].record, spec=spec))
    table = comparison([five[0], other])
    assert "two-moons: test data" in table
    assert "line: test data" in table
    assert "mean of" not in table


def test_other_test_data_are_another_table(five: list[Run], tmp_path: Path) -> None:
    def judged_by(run: Run, folder: Path, change: Callable[[Any], None]) -> Run:
        other = with_sets(run, ["cluster", "ring"], folder)
        numbers = json.loads((folder / METRICS).read_text())
        change(numbers["test"])
        (folder / METRICS).write_text(json.dumps(numbers))
        return other

    inside = judged_by(five[1], tmp_path / "a", lambda test: test["id"].update(checksum="aa"))
    outside = judged_by(
        five[1], tmp_path / "b", lambda test: test["ood"]["ring"].update(checksum="bb")
    )
    own = OwnData(label="x")
    read = replace(five[1].record, spec=replace(five[1].spec, own=own))
    for other in (inside, outside, replace(five[1], record=read)):
        table = comparison([five[0], other])
        assert table.count("two-moons: test data") == 2
        assert table.count(", checksum ") == 2
        assert "mean of" not in table
        assert means([five[0], other]) == []
    assert "checksum aa" in comparison([five[0], inside])


def test_sets_that_only_later_runs_met_are_shown(five: list[Run], tmp_path: Path) -> None:
    one = with_sets(five[0], ["ring"], tmp_path / "one")
    table = comparison([one, five[1]])
    assert table.count("two-moons: test data") == 1
    assert "cluster" in table
    assert line(table, "1", "edl", "0")[-6:] == ["-"] * 6


def test_small_texts() -> None:
    assert ranges([1, 2, 3, 5, 7, 8]) == "1-3,5,7-8"
    assert [duration(each) for each in (0.04, 59.94, 61, 3599.6, 7260)] == [
        "0.0 s",
        "59.9 s",
        "1 min 01 s",
        "1 h 00 min",
        "2 h 01 min",
    ]
    assert (number(None), number(float("inf")), number(1.25, 1)) == ("-", "-", "1.2")
    rows = [["a", "b"], ["cc", "1.0"]]
    assert aligned(rows) == ["a     b", "cc  1.0"]
    assert aligned(rows, indent=" ", least=6) == [" a        b", " cc     1.0"]
