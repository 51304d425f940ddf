"""The results under version control: whole, and as the code of today would make them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gemfi.bench.claims import CLAIMS, Finding, ledger
from gemfi.bench.manifest import PAPER_FIGURES, PAPER_TABLES
from gemfi.bench.records import RecordFile
from gemfi.bench.rendering import MANIFEST
from gemfi.bench.results import Results

RESULTS = Path(__file__).parents[2] / "results"
RENDERED = [path.parent.name for path in sorted(RESULTS.glob(f"*/{MANIFEST}"))]


def test_there_are_some() -> None:
    assert "digits" in RENDERED


@pytest.mark.parametrize("name", [path.name for path in sorted(RESULTS.iterdir())])
def test_records_are_those_of_the_grid(name: str) -> None:
    results = Results(RESULTS / name)
    assert results.records.keys() == RecordFile(RESULTS / name).read().keys()
    assert results.protocol.name == name


@pytest.mark.parametrize("name", RENDERED)
def test_the_manifest_names_every_label_and_every_file(name: str) -> None:
    folder = RESULTS / name
    manifest = json.loads((folder / MANIFEST).read_text())
    assert {*PAPER_TABLES, *PAPER_FIGURES} <= manifest.keys()
    for label, entry in manifest.items():
        assert entry.get("files") or entry.get("not_made"), label
    named = {each for entry in manifest.values() for each in entry.get("files", ())}
    parts = ("tables", "figures")
    assert named == {f"{part}/{path.name}" for part in parts for path in (folder / part).iterdir()}
    known = Results(folder).records.keys()
    assert {key for entry in manifest.values() for key in entry.get("runs", ())} <= known


@pytest.mark.parametrize("name", RENDERED)
def test_claims_are_judged_by_the_code_of_today(name: str) -> None:
    """Those whose numbers and intervals the records hold; the others need arrays."""
    folder = RESULTS / name
    kept = {each["claim"]: each for each in json.loads((folder / "claims.json").read_text())}
    assert list(kept) == [claim.name for claim in CLAIMS]
    judged = [each for each in ledger(Results(folder), CLAIMS) if _by_records(each)]
    assert len(judged) > len(CLAIMS) / 3
    for finding in judged:
        assert _plain(finding) == _kept(kept[finding.claim.name]), finding.claim.name


def _by_records(finding: Finding) -> bool:
    return bool(finding.tests) and all(each.difference.interval for each in finding.tests)


def _plain(finding: Finding) -> dict[str, Any]:
    tests = [
        (each.what, each.verdict.outcome, pytest.approx(each.difference.estimate, abs=1e-6))
        for each in finding.tests
    ]
    texts = (finding.claim.text, finding.claim.statistic)
    return {"texts": texts, "verdict": finding.outcome, "tests": tests}


def _kept(entry: dict[str, Any]) -> dict[str, Any]:
    tests = [(each["what"], each["verdict"], each["estimate"]) for each in entry["tests"]]
    texts = (entry["text"], entry["statistic"])
    return {"texts": texts, "verdict": entry["verdict"], "tests": tests}
