"""`gemfi train` and `gemfi evaluate` on one's own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemfi.cli import main
from support.commands import Capture, printed, quiet, refused


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs go below the test's own folder."""
    monkeypatch.setenv("GEMFI_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def own_files(folder: Path) -> tuple[Path, Path]:
    """Two tables: two classes that are easy to tell apart, and rows far from both."""
    header = "width,height,species"
    rows = [
        f"{x + 0.01 * n},{n % 5},{name}" for n in range(40) for x, name in ((0, "low"), (3, "high"))
    ]
    (folder / "flowers.csv").write_text("\n".join([header, *rows]) + "\n")
    (folder / "weeds.csv").write_text("\n".join([header, *(f"{n},90,?" for n in range(9))]) + "\n")
    return folder / "flowers.csv", folder / "weeds.csv"


def test_own_data_from_the_file_to_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flowers, weeds = own_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ["train", flowers.name, "--label", "species", "--ood-test", weeds.name, "--quiet"]
    assert main([*command, "--method", "edl", "--epochs", "4", "--batch-size", "16"]) == 0
    folder = capsys.readouterr().out.strip()
    monkeypatch.chdir("/")  # the run finds its data again from anywhere
    assert main(["evaluate", folder, "--json", str(tmp_path / "numbers.json")]) == 0
    numbers = json.loads((tmp_path / "numbers.json").read_text())["runs"][0]["test"]
    assert numbers["id"]["n"] == 16  # a fifth of 80
    assert numbers["id"]["accuracy"] > 90
    assert numbers["ood"]["weeds.csv"]["n"] == 9
    assert "weeds.csv" in capsys.readouterr().out


def test_without_unfamiliar_data_no_word_is_said_on_their_numbers(
    tmp_path: Path, capsys: Capture
) -> None:
    flowers, _ = own_files(tmp_path)
    folder = str(tmp_path / "run")
    options = ["--method", "edl", "--epochs", "1", "--out", folder]
    for command in (["train", str(flowers), *options], ["evaluate", folder]):
        text = printed(command, capsys)
        assert "NLL in nats" in text
        assert "AUPR" not in text
        assert "\n\n\n" not in text
    assert "AUPR" not in (tmp_path / "run" / "summary.md").read_text()


def test_own_data_that_grew_or_moved_are_not_judged_by(tmp_path: Path, capsys: Capture) -> None:
    flowers, weeds = own_files(tmp_path)
    command = [str(flowers), "--method", "edl", "--epochs", "1", "--ood-test", str(weeds)]
    folder = quiet(command, capsys)
    old = flowers.read_text()
    flowers.write_text(old + "".join(f"{n},1,low\n" for n in range(20)))
    text = refused(["evaluate", str(folder)], capsys)
    assert "train.n: 48 there, 60 here" in text
    flowers.write_text(old)
    printed(["evaluate", str(folder)], capsys)
    for path in (weeds, flowers):
        path.rename(path.with_suffix(".old"))
        text = refused(["evaluate", str(folder)], capsys)
        assert f"this run's data were at {path}, which does not exist; put them back" in text


def test_one_sample_is_not_some_samples(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "few.csv"
    file.write_text("\n".join(["a,b", *(f"{n},{'xy'[n % 2]}" for n in range(10))]))
    text = printed(["train", str(file), "--method", "edl", "--epochs", "1"], capsys)
    assert "Validation data, 1 sample\n" in text


def test_options_for_own_data_are_not_for_tasks_of_the_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "are for your own files" in refused(["train", "digits", "--label", "x"], capsys)
    assert "or give the path of your own data" in refused(["train", "no-such-task"], capsys)


@pytest.mark.parametrize("path", ["tabel.csv", "nowhere/pictures"])
def test_a_path_that_leads_nowhere_is_not_called_a_task(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{path} does not exist" in refused(["train", path], capsys)
