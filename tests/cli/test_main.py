"""The command line: what it prints, and one line with exit code 2 for bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gemfi import __version__
from gemfi.cli import COMMANDS, main
from gemfi.cli.options import one_line
from gemfi.methods import METHODS
from gemfi_bench.toys import run_demo
from support.commands import refused

ROW = {
    "method",
    "accuracy",
    "ece",
    "brier",
    "auroc_aleatoric",
    "auroc_epistemic",
    "aupr_id_epistemic",
    "seconds",
    "ood",
    "dataset",
}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gemfi {__version__}\n"


@pytest.mark.parametrize(("group", "first"), [("", "demo"), ("data", "data list")])
def test_the_commands_are_listed(
    group: str, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*group.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert f"usage: gemfi {group}".rstrip() in text
    for name, (_, summary) in COMMANDS.items():
        assert (f"  {name} " in text and summary in text) == name.startswith(group)
    assert f"such as: gemfi {first} --help" in text


@pytest.mark.parametrize("command", ["demo", "train", "evaluate", "methods"])
def test_help_is_there(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([*command.split(), "--help"])
    assert left.value.code == 0
    assert "usage: gemfi" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "which command? Known: demo, train,"),
        ("fly", "unknown command 'fly'. Known: demo, train,"),
        ("demo --nope", "Unrecognized options: --nope; see gemfi demo --help"),
        ("demo --seed x", "Error parsing --seed: invalid literal for int() with base 10: 'x'"),
        ("train", "Missing from gemfi train: TASK what to learn"),
        ("train digits --epochs zero", "no type matching INT could be instantiated from ['zero']"),
        ("train digits --outliers fly", "invalid choice 'fly' for argument '--outliers'"),
        ("data fly", "unknown command 'fly'. Known: list, fetch, verify, info, corrupt; see gemfi"),
        (
            "data info --fly",
            "Missing value for argument 'name'. Expected 1 values; see gemfi",
        ),
    ],
)
def test_arguments_that_cannot_be_parsed_are_one_line(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused(arguments.split(), capsys)
    assert said in text
    assert "None" not in text


def test_help_of_a_command_has_its_docstring_and_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    assert "usage: gemfi train" in text
    assert "--epochs N" in text


def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert "is a file; give a folder" in refused(["demo", "--out", str(file)], capsys)
    out = str(tmp_path / "out")
    json_file = str(tmp_path / "absent" / "rows.json")
    text = refused(["demo", "--out", out, "--json", json_file], capsys)
    assert "its folder does not exist" in text
    text = refused(["demo", "--out", out, "--json", str(tmp_path)], capsys)
    assert "is a folder; give a file" in text
    assert "seed must be an integer of at least 0, got -1" in refused(
        ["demo", "--out", out, "--seed", "-1"], capsys
    )
    assert file.read_text() == "mine"
    text = refused(["demo", "--out", out, "--seed", "99999999999999999999"], capsys)
    assert "seed must be at most 2**63 - 2" in text
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_the_quick_demo_from_the_shell(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gemfi", "demo", "--quick", "--seed", "3"]
    out, rows_file = tmp_path / "out", tmp_path / "rows.json"
    done = subprocess.run(
        [*command, "--out", str(out), "--json", str(rows_file)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "Wrote" in done.stdout
    names = {"two-moons.png", "line.png", "reliability.png", "histograms.png", "report.html"}
    assert {path.name for path in out.iterdir()} == names
    rows = json.loads(rows_file.read_text(), parse_constant=pytest.fail)["rows"]  # no NaN
    assert all(row.keys() >= ROW for row in rows)
    digits = {(row["method"], row["ood"]) for row in rows if row["dataset"] == "digits"}
    methods = ("softmax", "edl", "gem-core", "gem-mix", "gem-fi")
    sets = ("digits-8-9", "noise", "inverted", "shuffled")
    assert digits == {(method, ood) for method in methods for ood in sets}
    toys = {(row["dataset"], row["method"]) for row in rows if row["dataset"] != "digits"}
    evidential = ("edl", "daedl", "gem-fi")
    assert toys == {(toy, method) for toy in ("two-moons", "line") for method in evidential}
    for row in rows:
        if row["method"].startswith("gem") and row["dataset"] == "two-moons":
            assert row["auroc_epistemic"] > 90
        assert METHODS[row["method"]].info.label in done.stdout


@pytest.mark.slow
def test_ctrl_c_stops_the_demo_with_130_and_writes_no_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gemfi", "demo", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()  # the first of nine models is done
        assert line.startswith("trained ")
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "gemfi: stopped"
    assert rest.count("trained ") <= 2  # what was being trained may end; the rest never begins
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.slow
def test_the_number_of_processes_changes_no_number() -> None:
    one, two = (run_demo(1, quick=True, workers=workers) for workers in (1, 2))
    for first, second in zip(one, two, strict=True):
        assert first.plan == second.plan
        assert first.evaluation.classification == pytest.approx(
            second.evaluation.classification, nan_ok=True
        )
        assert first.evaluation.ood == second.evaluation.ood


@pytest.mark.parametrize(
    "box",
    [
        "╭─ Wrong ──╮\n│ It is    │\n│ wrong.   │\n│ ──────── │\n│ For help │\n╰──────────╯\n",
        " Wrong    \n -------- \n  It is   \n  wrong.  \n  --------\n  For help\n",
        "\x1b[31m╭─ Wrong ─╮\x1b[0m\n│ It is wrong. │\n\x1b[31m╰──╯\x1b[0m\n",
    ],
)
def test_a_box_becomes_a_line_with_and_without_utf_8(box: str) -> None:
    assert one_line(box) == "It is wrong"
