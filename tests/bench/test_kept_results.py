"""The results under version control: whole, and as the code of today would make them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemfi.bench.claims import CLAIMS, ledger
from gemfi.bench.claims.meanings import ROUTED
from gemfi.bench.manifest import PAPER_FIGURES, PAPER_TABLES
from gemfi.bench.records import RecordFile
from gemfi.bench.rendering import MANIFEST
from gemfi.bench.results import Results
from gemfi.bench.statistics import Difference, Interval, verdict

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
def test_claims_are_judged_as_the_code_of_today_does(name: str) -> None:
    """Estimates that the records hold, and verdicts where they hold the intervals too.

    The rest needs arrays: all intervals of one seed are over samples.
    """
    folder = RESULTS / name
    kept = {each["claim"]: each for each in json.loads((folder / "claims.json").read_text())}
    tested = {claim.name: claim.statistic for claim in CLAIMS}
    assert {name: each["statistic"] for name, each in kept.items()}.items() <= tested.items()
    results = Results(folder)
    made = [each for each in ledger(results, CLAIMS) if each.claim.name in kept]
    found = [each for each in made if each.tests]
    judged = [each for each in found if all(test.difference.interval for test in each.tests)]
    assert len(found) >= 10
    assert len(judged) >= 10 or len(results.protocol.seeds) == 1
    for finding in found:
        entry = kept[finding.claim.name]
        assert [each["estimate"] for each in entry["tests"]] == [
            pytest.approx(each.difference.estimate, abs=1e-6) for each in finding.tests
        ], finding.claim.name
        for each, test in zip(entry["tests"], finding.tests, strict=True):
            if test.difference.interval:
                assert each["verdict"] == test.verdict, test.what
        if finding in judged:
            assert entry["verdict"] == finding.outcome, finding.claim.name


@pytest.mark.parametrize("name", RENDERED)
def test_routing_is_judged_by_the_kept_intervals(name: str) -> None:
    """Its margin came after some of the runs, whose arrays are gone."""
    entries = json.loads((RESULTS / name / "claims.json").read_text())
    routing = [each for each in entries if each["claim"].startswith("routing") and each["tests"]]
    assert routing
    for entry in routing:
        found = []
        for test in entry["tests"]:
            interval = Interval(test["low"], test["high"], test["estimate"])
            difference = Difference(test["estimate"], interval, test["seeds"])
            found.append(verdict(difference, ROUTED))
        assert [test["verdict"] for test in entry["tests"]] == found
        assert (entry["verdict"] == "refuted") == ("refuted" in found)
