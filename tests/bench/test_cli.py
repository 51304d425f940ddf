"""`gemfi bench` and `gemfi report`: what they print, write, choose and refuse."""

from __future__ import annotations

import importlib
import re
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from gemfi._text import duration
from gemfi.cli import main
from gemfi.errors import InputError
from gemfi_bench.grid import Cell
from gemfi_bench.manifest import MANIFEST
from gemfi_bench.protocol import find_protocol
from gemfi_bench.record_file import RecordFile, RunRecord
from gemfi_bench.runner import Bench, Event, _wanted
from support.commands import Capture, printed, refused

COMMANDS = importlib.import_module("gemfi_bench.cli")  # a function of the package has its name
PROTOCOL = """
name = "tiny"
title = "digits, very short"
task = "digits"
seeds = [0, 1]
near = ["digits-8-9"]
far = ["noise", "inverted", "shuffled"]

[network]
backbone = "convnet"
options = ["channels=2"]

[train]
epochs = 1
batch_size = 128

[rates]
values = [0.01, 0.02]

[sweeps]
components = [2, 3]
seeds = [0]

[[contestants]]
method = "softmax"

[[contestants]]
method = "ensemble"
assembled = "softmax"

[[contestants]]
method = "gem-fi"
"""
RUNS = 4 + 5 + 1  # learning rates, methods, components


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a protocol, and its bench complete."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "tiny.toml").write_text(PROTOCOL)
    Bench(find_protocol(str(folder / "tiny.toml")), folder / "bench").work()
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a protocol; what is slow is replaced, and threads are left as they were."""
    (tmp_path / "tiny.toml").write_text(PROTOCOL)
    monkeypatch.setenv("GEMFI_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, bool | None]]:
    """What was rendered, by a rendering that writes a page and nothing else."""
    asked: list[tuple[Path, bool | None]] = []

    def render(folder: Path, *, out: Path | None = None, progress: bool | None = None) -> Any:
        asked.append((folder, progress))
        page = (out or folder) / "report.html"
        page.parent.mkdir(exist_ok=True)
        page.write_text("a page")
        return SimpleNamespace(report=page)

    module = ModuleType("gemfi_bench.rendering")
    vars(module)["render"] = render
    monkeypatch.setitem(sys.modules, "gemfi_bench.rendering", module)
    return asked


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where costs were measured."""
    folders: list[Path] = []
    monkeypatch.setattr(COMMANDS, "keep_overhead", lambda bench, **_: folders.append(bench.folder))
    monkeypatch.setattr(COMMANDS, "train_toys", lambda _folder, **_: {})
    return folders


@pytest.fixture
def copy(done: Path, here: Path) -> Path:
    """The complete bench, as one's own."""
    return Path(shutil.copytree(done / "bench", here / "bench"))


def without(folder: Path, title: str) -> RunRecord:
    """Take the record of a run away; its training stays."""
    path = folder / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    (gone,) = [line for line in lines if f'"title": "{title}"' in line]
    path.write_text("".join(line for line in lines if line != gone))
    return RunRecord.read(gone, "test")


@pytest.mark.parametrize("command", ["bench", "report"])
def test_help_is_there(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert f"usage: gemfi {command}" in capsys.readouterr().out


# -- the grid before the work ---------------------------------------------------------------------


def test_a_dry_run_prints_the_grid_and_writes_nothing(here: Path, capsys: Capture) -> None:
    before = sorted(here.rglob("*"))
    text = printed(["bench", "tiny.toml", "--dry-run", "--threads", "1"], capsys)
    assert sorted(here.rglob("*")) == before
    lines = text.splitlines()
    assert lines[:3] == [
        "tiny: digits, very short",
        f"Folder: {here / 'runs' / 'bench' / 'tiny'}",
        f"{RUNS} runs, 0 of them done",
    ]
    assert lines[4].split() == ["group", "row", "seeds", "state", "time"]
    table = [re.split(r"\s{2,}", line) for line in lines[6:13]]
    waiting = "waiting for a learning rate"
    assert [row[:-1] for row in table] == [
        ["rates", "softmax", "0", "missing"],
        ["", "gem-fi", "0", "missing"],
        ["methods", "softmax", "0 1", waiting],
        ["", "gem-fi", "0 1", waiting],
        ["", "ensemble", "0", waiting],
        ["components", "2", "0", waiting],
        ["", "3", "0", "as methods/gem-fi"],
    ]
    assert all(re.fullmatch(r"[\d.]+ s|\d+ min \d\d s", row[-1]) for row in table[:-1])
    assert table[-1][-1] == "-"
    assert re.fullmatch(
        rf"To do: {RUNS} runs, about [\d.]+ (s|min \d\d s) with 1 thread\.", lines[-1]
    )


def test_a_dry_run_says_what_is_done(copy: Path, capsys: Capture) -> None:
    without(copy, "methods/gem-fi seed 1")
    text = printed(["bench", "tiny.toml", "--out", "bench", "--dry-run"], capsys)
    assert f"{RUNS} runs, {RUNS - 1} of them done" in text
    table = [re.split(r"\s{2,}", line)[1:] for line in text.splitlines()[6:13]]
    assert ["softmax", "0 1", "done", "-"] in table
    (gem,) = [row for row in table if row[:2] == ["gem-fi", "0 1"]]
    assert gem[2] == "1 done, 1 missing"
    assert gem[3] != "-"
    assert "To do: 1 run, about" in text


def test_a_dry_run_of_a_complete_bench(copy: Path, capsys: Capture) -> None:
    text = printed(["bench", "tiny.toml", "--out", "bench", "--dry-run"], capsys)
    assert text.splitlines()[-1] == "Nothing is to be done."
    assert "missing" not in text


# -- the work -------------------------------------------------------------------------------------


def cells(text: str, title: str) -> list[str]:
    """The line of a run: count, three times, numbers, title."""
    (line,) = [line for line in text.splitlines() if line.endswith(title)]
    return re.split(r"\s{2,}", line.strip())


def test_a_line_for_each_run_with_its_numbers(
    copy: Path, rendered: list[Any], measured: list[Path], capsys: Capture
) -> None:
    run = without(copy, "methods/gem-fi seed 1")
    text = printed(["bench", "tiny.toml", "--out", "bench"], capsys)
    lines = text.splitlines()
    assert lines[2] == f"{RUNS} runs, {RUNS - 1} of them done"
    (head,) = [line for line in lines if line.startswith("  run")]
    assert head.split() == ["run", "took", "spent", "left", "acc", "NLL", "near", "far"]
    count, _, _, left, *numbers, _ = cells(text, run.title)
    assert (count, left) == (f"{RUNS}/{RUNS}", "0.0 s")
    tested, ood, score = run.numbers["test"]["id"], run.numbers["ood"], run.scores["epistemic"]
    auroc = {name: each["by_score"][score]["auroc"] for name, each in ood.items()}
    far = sum(auroc[name] for name in ("noise", "inverted", "shuffled")) / 3
    assert numbers == [
        f"{tested['accuracy']:.2f}",
        f"{tested['nll']:.3f}",
        f"{auroc['digits-8-9']:.1f}",
        f"{far:.1f}",
    ]
    assert lines[-1] == f"Report: {Path('bench') / 'report.html'}"
    assert rendered == [(Path("bench"), None)]
    assert measured == [Path("bench")]


def test_what_is_left_is_estimated_from_the_records(copy: Path, capsys: Capture) -> None:
    for seed in (0, 1):
        without(copy, f"methods/gem-fi seed {seed}")
    text = printed(["bench", "tiny.toml", "--out", "bench", "--no-render"], capsys)
    records = Bench(find_protocol("tiny.toml"), copy).file.read().values()
    runs = {run.title: run for run in records if run.spec["method"] == "gem-fi"}
    last = runs.pop("methods/gem-fi seed 1")  # it was not done yet
    inputs = {title: sum(part["n"] for part in run.data.values()) for title, run in runs.items()}
    steps = [run.seconds["train"] / run.training["steps"] for run in runs.values()]
    paces = [run.seconds["evaluate"] / inputs[title] for title, run in runs.items()]
    expected = statistics.median(steps) * last.training["steps"]
    expected += statistics.median(paces) * inputs["methods/gem-fi seed 0"]
    assert cells(text, "methods/gem-fi seed 0")[3] == duration(expected)
    assert cells(text, "methods/gem-fi seed 1")[3] == duration(0)
    assert "All is done, in" in text


def test_without_rendering_the_command_that_renders_is_shown(
    copy: Path, rendered: list[Any], capsys: Capture
) -> None:
    spaced = copy.rename(copy.with_name("my bench"))
    text = printed(["bench", "tiny.toml", "--out", "my bench", "--no-render"], capsys)
    assert text.splitlines()[-1] == f"To render: gemfi report '{spaced.name}'"
    assert rendered == []


def test_quiet_prints_the_report_alone(copy: Path, rendered: list[Any], capsys: Capture) -> None:
    without(copy, "methods/softmax seed 0")
    assert main(["bench", "tiny.toml", "--out", "bench", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("bench/report.html\n", "")
    assert rendered == [(Path("bench"), False)]
    command = ["bench", "tiny.toml", "--out", "bench", "--quiet", "--no-render"]
    assert printed(command, capsys) == "bench\n"


def test_only_some_rows_and_what_they_rest_on(
    here: Path, rendered: list[Any], measured: list[Path], capsys: Capture
) -> None:
    command = ["bench", "tiny.toml", "--only", "methods/ensemble", "--threads", "1"]
    text = printed(command, capsys)
    folder = here / "runs" / "bench" / "tiny"  # by default
    bench = Bench(find_protocol("tiny.toml"), folder)
    titles = [run.title for run in bench.file.read().values()]
    assert titles[-3:] == [
        "methods/softmax seed 0",
        "methods/softmax seed 1",
        "methods/ensemble seed 0",
    ]
    assert {title.partition("/")[0] for title in titles[:-3]} == {"rates"}
    assert [line.split("  ")[-1] for line in text.splitlines() if "/5 " in line] == titles
    trial = next(run for run in bench.file.read().values() if run.title == titles[0])
    inside = trial.numbers["validation"]["id"]
    numbers = [f"{inside['accuracy']:.2f}", f"{inside['nll']:.3f}", "-", "-"]
    assert cells(text, trial.title)[4:-1] == numbers
    assert rendered == [(folder, None)]
    assert measured == []  # costs belong to the whole
    assert f"left of the whole protocol: {len(bench.missing())} runs." in text


@pytest.mark.parametrize(
    ("only", "rows"),
    [
        ((), {"softmax", "gem-fi", "ensemble", "2", "3"}),
        (("methods",), {"softmax", "gem-fi", "ensemble"}),
        (("components/2", "methods/gem-fi"), {"gem-fi", "2"}),
        (("methods/ensemble",), {"softmax", "ensemble"}),
        (("rates",), set()),
        (("rates/softmax",), set()),
        (("rates/softmax", "components/2"), {"2"}),
    ],
)
def test_which_cells_were_asked_for(only: tuple[str, ...], rows: set[str]) -> None:
    protocol = find_protocol("tiny.toml")
    cells = Bench(protocol, "bench").plan()
    wanted = COMMANDS.selection(cells, protocol, only)
    chosen = [cell for cell in cells if wanted(cell)]
    assert {cell.row for cell in chosen if cell.group != "rates"} == rows
    methods = {cell.spec.method for cell in chosen if cell.group != "rates"}
    rated = {cell.spec.method for cell in cells if cell.group == "rates"}
    asked = {"rates": rated, "rates/softmax": {"softmax"}}.get(only[0], set()) if only else rated
    expected = methods & rated | asked
    assert {c.spec.method for c in chosen if c.group == "rates"} == expected


def test_every_row_that_a_dry_run_shows_can_be_asked_for(here: Path, capsys: Capture) -> None:
    table = printed(["bench", "tiny.toml", "--dry-run"], capsys).split("─\n")[1].split("\n\n")[0]
    shown, group = [], ""
    for line in table.splitlines():
        group, row = line[:12].strip() or group, line[12:].split("  ")[0].strip()
        shown.append(f"{group}/{row}")
    names = ["rates/softmax", "rates/gem-fi", "methods/softmax", "methods/gem-fi"]
    assert shown == [*names, "methods/ensemble", "components/2", "components/3"]
    for name in shown:
        again = printed(["bench", "tiny.toml", "--dry-run", "--only", name], capsys)
        assert name.partition("/")[2] in again


def test_rates_alone_are_done_beside_other_rows(here: Path) -> None:
    protocol = find_protocol("tiny.toml")
    cells = Bench(protocol, "bench").plan()
    only = COMMANDS.selection(cells, protocol, ("rates/gem-fi", "methods/softmax"))
    rates = [cell.spec.method for cell in _wanted(cells, only) if cell.group == "rates"]
    assert set(rates) == {"softmax", "gem-fi"}


def test_waiting_for_another_process_is_said(
    copy: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(self: Bench, *, tell: Any, **_: Any) -> None:
        cell: Cell = self.plan()[0]
        tell(Event("begin", cell, 0, 1))
        tell(Event("wait", cell, 0, 1))

    monkeypatch.setattr(Bench, "work", work)
    text = printed(["bench", "tiny.toml", "--out", "bench"], capsys)
    line = "waiting for rates/softmax at 0.01 seed 0, which another process is doing"
    assert text.splitlines().count(line) == 1


def test_sets_without_a_side_are_one_column(here: Path, done: Path) -> None:
    text = PROTOCOL.replace("near = ", "notes = ").replace(
        'far = ["noise", "inverted", "shuffled"]', ""
    )
    (here / "own.toml").write_text(text)
    *_, (name, (pick, _)) = COMMANDS._picks(find_protocol("own.toml")).items()
    records = Bench(find_protocol("tiny.toml"), done / "bench").file.read().values()
    run = next(run for run in records if run.title == "methods/gem-fi seed 0")
    score = run.scores["epistemic"]
    each = [entry["by_score"][score]["auroc"] for entry in run.numbers["ood"].values()]
    assert name == "OOD"
    assert pick(run) == pytest.approx(sum(each) / 4)
    trial = next(run for run in records if run.title.startswith("rates"))
    assert pick(trial) is None


def test_the_mean_is_over_the_sets_that_are_here(done: Path) -> None:
    protocol = find_protocol("tiny.toml")
    records = Bench(protocol, done / "bench").file.read().values()
    run = next(run for run in records if run.title == "methods/gem-fi seed 0")
    noise = COMMANDS.of_set("noise", "epistemic", "auroc")(run)
    assert COMMANDS._mean_auroc(["noise", "absent"])(run) == noise
    assert COMMANDS._mean_auroc(["absent"])(run) is None


# -- what is refused, and Ctrl-C ------------------------------------------------------------------


def test_bad_input_is_one_line_and_nothing_is_written(here: Path, capsys: Capture) -> None:
    before = sorted(here.rglob("*"))
    assert "unknown protocol 'fly'; known: cifar10" in refused(["bench", "fly"], capsys)
    assert "fly.toml does not exist" in refused(["bench", "fly.toml"], capsys)
    for name, said in (
        ("fly", "--only fly: no such group; there are: rates, methods, components"),
        ("methods/fly", "no such row; the rows of methods: softmax, gem-fi, ensemble"),
        ("fly/softmax", "--only fly/softmax: no such group"),
    ):
        assert said in refused(["bench", "tiny.toml", "--only", name], capsys)
    said = refused(["bench", "tiny.toml", "--threads", "0"], capsys)
    assert "--threads must be an integer of at least 1, got 0" in said
    said = refused(["bench", "tiny.toml", "--out", "tiny.toml"], capsys)
    assert "tiny.toml is a file; give a folder" in said
    assert sorted(here.rglob("*")) == before


def test_without_matplotlib_nothing_is_trained(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise InputError("figures need matplotlib")

    monkeypatch.setattr(COMMANDS, "require_matplotlib", absent)
    assert "figures need matplotlib" in refused(["bench", "tiny.toml"], capsys)
    assert "figures need matplotlib" in refused(["report", "bench"], capsys)
    assert not (here / "runs").exists()
    printed(["bench", "tiny.toml", "--dry-run", "--only", "rates"], capsys)


def test_ctrl_c_says_that_the_same_command_resumes(
    copy: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(self: Bench, **_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Bench, "work", work)
    assert main(["bench", "tiny.toml", "--out", "bench"]) == 130
    assert capsys.readouterr().err.splitlines() == [
        "gemfi: what was done is in bench; the same command resumes",
        "gemfi: stopped",
    ]


# -- gemfi report ---------------------------------------------------------------------------------


def test_report_renders_and_copies(copy: Path, rendered: list[Any], capsys: Capture) -> None:
    text = printed(["report", "bench", "--out", "page.html"], capsys)
    assert text.splitlines() == ["Report: bench/report.html", "Wrote page.html."]
    assert Path("page.html").read_text() == "a page"
    assert printed(["report", "bench"], capsys) == "Report: bench/report.html\n"
    assert rendered == [(Path("bench"), None)] * 2


def test_kept_results_are_rendered_elsewhere(
    copy: Path, rendered: list[Any], capsys: Capture
) -> None:
    kept = copy.rename(copy.with_name("kept"))
    RecordFile(kept).pack(kept)
    shutil.rmtree(kept / "arrays")
    (kept / MANIFEST).write_text("{}")
    before = sorted(kept.rglob("*"))
    said = "kept is kept without its arrays, and stays as it is; rendering into report-kept."
    text = printed(["report", "kept"], capsys)
    assert text.splitlines() == [said, "Report: report-kept/report.html"]
    assert rendered == [(Path("kept"), None)]
    assert Path("report-kept/report.html").read_text() == "a page"
    assert sorted(kept.rglob("*")) == before


def test_report_refuses_a_place_that_it_cannot_write_to(
    copy: Path, rendered: list[Any], capsys: Capture
) -> None:
    said = refused(["report", "bench", "--out", "bench"], capsys)
    assert "--out bench is a folder; give a file" in said
    said = refused(["report", "bench", "--out", "absent/page.html"], capsys)
    assert "its folder does not exist" in said
    assert rendered == []
