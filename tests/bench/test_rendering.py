"""Rendering a whole bench: files, manifest and report."""

from __future__ import annotations

import json
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from gemfi._files import hold_lock
from gemfi.errors import InputError
from gemfi_bench import figures, keep_results, rendering
from gemfi_bench.grid import MAIN
from gemfi_bench.manifest import MANIFEST, PAPER_FIGURES, PAPER_TABLES
from gemfi_bench.rendering import REPORT, Rendered, render
from gemfi_bench.results import Results
from support.benches import classified, made_results


@pytest.fixture(scope="module")
def rendered(small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(small_folder, out=tmp_path_factory.mktemp("rendered"), figures=False)


def test_each_table_is_written_in_four_forms(rendered: Rendered) -> None:
    folder = rendered.report.parent
    for ending in ("md", "csv", "tex", "html"):
        assert (folder / "tables" / f"table2.{ending}").stat().st_size > 0


def test_the_manifest_has_every_label_of_the_paper(rendered: Rendered) -> None:
    manifest = json.loads((rendered.report.parent / MANIFEST).read_text())
    assert set(manifest) >= {*PAPER_TABLES, *PAPER_FIGURES}
    for label, entry in manifest.items():
        assert "not_made" in entry or entry["files"], label
        for name in entry.get("files", []):
            assert (rendered.report.parent / name).is_file()
    assert manifest["table2"]["runs"]
    for label in ("table1", "hparams", "related_work_comparison"):  # they hold no numbers of runs
        assert manifest[label]["runs"], label
    assert manifest["prroc"] == {"not_made": "figures were left out"}


def test_the_ledger_is_for_people_and_for_machines(rendered: Rendered) -> None:
    folder = rendered.report.parent
    claims = json.loads((folder / "claims.json").read_text())
    assert {each["claim"] for each in claims} == {each.claim.name for each in rendered.findings}
    judged = [each for each in claims if each["verdict"] != "not tested"]
    assert len(judged) > 30
    tested = [each for each in judged if any(test["seeds"] < 3 for test in each["tests"])]
    assert tested
    assert {each["verdict"] for each in tested} <= {"undecided", "refuted"}
    assert all(each["few_seeds"] for each in tested)
    assert "GEM-FI detects OOD data better than DAEDL." in (folder / "claims.md").read_text()


def test_the_report_holds_the_ledger_the_tables_and_the_runs(rendered: Rendered) -> None:
    page = (rendered.report.parent / REPORT).read_text(encoding="utf-8")
    assert "GEM-FI detects OOD data better than DAEDL." in page
    for label in ("table2", "table5", "published-audit"):
        assert f'id="{label}"' in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_table_that_cannot_be_made_says_why(rendered: Rendered) -> None:
    assert "overhead" in rendered.missing
    assert "measured" in rendered.missing["overhead"]


def test_a_file_in_the_place_of_the_folder_is_refused(small_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="give a folder for the report"):
        render(small_folder, out=tmp_path / "file")


# -- figures, and what is kept of them ------------------------------------------------------------

DRAWN = ("arch", "conf_correct_wrong", "hist-ood", "moons-2d")


@pytest.fixture(scope="module")
def drawn(small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the bench, rendered with a few figures and one table."""
    folder = tmp_path_factory.mktemp("drawn") / "bench"
    shutil.copytree(small_folder, folder, ignore=shutil.ignore_patterns("runs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "FIGURES", {label: figures.FIGURES[label] for label in DRAWN})
        patch.setattr(rendering, "TABLES", {"table3": rendering.TABLES["table3"]})
        patch.setattr(rendering, "CLAIMS", ())
        render(folder)
    return folder


def test_a_figure_says_which_runs_it_was_drawn_from(drawn: Path) -> None:
    manifest, results = json.loads((drawn / MANIFEST).read_text()), Results(drawn)
    rows = [
        row
        for row in results.rows()
        if results.method(row)
        in ("softmax", "ensemble", "edl", "daedl", "re-edl", "gem-core", "gem-mix", "gem-fi")
    ]
    every = {run.key for row in rows for run in results.runs(row)}
    assert set(manifest["conf_correct_wrong"]["runs"]) == every
    assert manifest["hist-ood"]["runs"] == [results.runs("gem-fi")[0].key]
    first = [results.runs(row)[0].key for row in ("daedl", "gem-fi")]
    assert manifest["arch"]["runs"] == first
    assert manifest["arch-gemfi"]["runs"] == first
    assert "not trained" in manifest["moons-2d"]["not_made"]


def test_what_a_figure_used_is_not_mixed_with_that_of_others(small_results: Results) -> None:
    one, other = small_results.watched(), small_results.watched()
    run = one.runs("gem-fi")[0]
    one.arrays(run)
    other.value("edl", lambda _run: 1.0)
    assert list(one.used) == [run.key]
    assert list(other.used) == [each.key for each in other.runs("edl")]


def test_small_drawings_are_in_the_page_as_vectors(drawn: Path) -> None:
    page = (drawn / REPORT).read_text(encoding="utf-8")
    size = (drawn / "figures" / "conf_correct_wrong.svg").stat().st_size
    assert size < 150_000
    assert 'download="conf_correct_wrong.svg" href="data:image/svg+xml;base64,' in page


@pytest.fixture(scope="module")
def keeping() -> ModuleType:
    return keep_results


def test_kept_results_are_no_folder_to_keep(keeping: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "chosen"
    made_results(folder, {(MAIN, "edl"): [classified(accuracy=90.0)]})
    kept = keeping.keep(folder, tmp_path / "results")
    before = {path: path.read_bytes() for path in kept.iterdir()}
    with pytest.raises(InputError, match="is where results are kept; give the folder of a bench"):
        keeping.keep(kept, tmp_path / "results")
    assert {path: path.read_bytes() for path in kept.iterdir()} == before


def test_kept_results_name_the_files_that_are_kept(
    keeping: ModuleType, drawn: Path, tmp_path: Path
) -> None:
    kept = keeping.keep(drawn, tmp_path)
    assert kept == tmp_path / "small"
    manifest = json.loads((kept / MANIFEST).read_text())
    named = {name for entry in manifest.values() for name in entry.get("files", ())}
    there = {
        f"{part}/{each.name}" for part in ("tables", "figures") for each in (kept / part).iterdir()
    }
    assert named == there
    assert manifest["hist-ood"]["files"] == ["figures/hist-ood.png"]
    readme = (kept / "README.md").read_text()
    shown = set(re.findall(r"\]\(((?:tables|figures)/[^)]+)\)", readme))
    assert shown == {name for name in named if name.endswith((".md", ".png"))}
    assert figures.FIGURES["hist-ood"].caption in readme
    before = json.loads((drawn / MANIFEST).read_text())
    assert {label: entry.get("runs") for label, entry in manifest.items()} == {
        label: entry.get("runs") for label, entry in before.items()
    }


def test_two_that_render_take_turns(
    small_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    monkeypatch.setattr(rendering, "_rendered", lambda *_, **__: begun.set())
    thread = threading.Thread(target=render, args=(small_folder,), kwargs={"out": tmp_path})
    with hold_lock(tmp_path / ".report.lock"):
        thread.start()
        assert not begun.wait(1.0)
    thread.join(60)
    assert begun.is_set()


def test_an_ensemble_names_its_members_by_their_keys(small_results: Results) -> None:
    (whole,) = small_results.runs("ensemble")
    assert whole.members == tuple(run.key for run in small_results.runs("softmax"))


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (["02"], "2026-11-02"),
        (["02", "02"], "2026-11-02"),
        (["05", "02", "03"], "2026-11-02 to 2026-11-05"),
        ([], ""),
    ],
)
def test_the_dates_of_a_report_are_one_or_two(
    days: list[str], said: str, small_results: Results
) -> None:
    (run, *_) = small_results.runs("softmax")
    session = dict(run.sessions[-1])
    twin = small_results.watched()
    twin.records = {
        day + str(at): replace(run, sessions=({**session, "date": f"2026-11-{day}T10:00"},))
        for at, day in enumerate(days)
    }
    assert rendering._facts(twin)["Dates"] == said


def test_rows_with_other_seeds_are_told(tmp_path: Path) -> None:
    rows = {
        (MAIN, "softmax"): [classified(accuracy=90.0)] * 3,
        (MAIN, "edl"): [classified(accuracy=90.0)],
        (MAIN, "daedl"): [classified(accuracy=90.0)],
    }
    facts = rendering._facts(made_results(tmp_path, rows))
    assert facts["Seeds"] == "0 (2 rows); 0, 1, 2 (1 row)"
    assert facts["Runs"].startswith("5, 10.0 s")
    alike = made_results(tmp_path / "alike", {(MAIN, "edl"): [classified(accuracy=90.0)] * 2})
    assert rendering._facts(alike)["Seeds"] == "0, 1"


def test_kept_results_are_not_rendered_over(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    results = made_results(folder, {(MAIN, "edl"): [classified(accuracy=90.0)]})
    results.file.pack(folder)
    shutil.rmtree(folder / "arrays")
    (folder / MANIFEST).write_text("{}")
    before = sorted(folder.rglob("*"))
    with pytest.raises(InputError, match="is kept without its arrays, and rendering here would"):
        render(folder, figures=False)
    elsewhere = render(folder, out=tmp_path / "elsewhere", figures=False)
    assert elsewhere.report == tmp_path / "elsewhere" / REPORT
    assert "table3" in elsewhere.made
    assert sorted(folder.rglob("*")) == before
    (folder / MANIFEST).unlink()
    assert render(folder, figures=False).report.exists()


def test_what_is_no_longer_made_leaves_no_file(tmp_path: Path) -> None:
    made_results(tmp_path, {(MAIN, "edl"): [classified(accuracy=90.0)]})
    (tmp_path / "tables").mkdir()
    for label in ("energy_bins_appendix", "mine"):
        (tmp_path / "tables" / f"{label}.md").write_text("old")
    found = render(tmp_path, figures=False)
    assert "energy_bins_appendix" in found.missing
    assert not (tmp_path / "tables" / "energy_bins_appendix.md").exists()
    assert (tmp_path / "tables" / "mine.md").read_text() == "old"
