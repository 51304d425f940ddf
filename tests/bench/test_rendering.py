"""Rendering a whole bench: files, manifest and report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemfi.bench.manifest import PAPER_FIGURES, PAPER_TABLES
from gemfi.bench.rendering import MANIFEST, REPORT, Rendered, render
from gemfi.errors import InputError


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
    assert manifest["prroc"] == {"not_made": "figures were left out"}


def test_the_ledger_is_for_people_and_for_machines(rendered: Rendered) -> None:
    folder = rendered.report.parent
    claims = json.loads((folder / "claims.json").read_text())
    assert {each["claim"] for each in claims} == {each.claim.name for each in rendered.findings}
    judged = [each for each in claims if each["verdict"] != "not tested"]
    assert len(judged) > 30
    assert all(each["indicative"] for each in judged if each["tests"])
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
