"""The results under version control: whole, and as the code of today would make them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gemfi_bench.claims import CLAIMS, ledger
from gemfi_bench.claims.meanings import ROUTED
from gemfi_bench.manifest import MANIFEST, PAPER_FIGURES, PAPER_TABLES
from gemfi_bench.record_file import RecordFile
from gemfi_bench.report import FEW_SEEDS
from gemfi_bench.results import Results, of_set
from gemfi_bench.statistics import SEEDS_NEEDED, Difference, Interval, verdict

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


@pytest.mark.parametrize("name", RENDERED)
def test_below_three_seeds_nothing_is_decided(name: str) -> None:
    entries = json.loads((RESULTS / name / "claims.json").read_text())
    for entry in entries:
        few = [test for test in entry["tests"] if test["seeds"] < SEEDS_NEEDED]
        assert {test["verdict"] for test in few} <= {"undecided"}, entry["claim"]
        assert entry["few_seeds"] == bool(few)
        assert not few or entry["verdict"] != "supported"
    text = (RESULTS / name / "claims.md").read_text()
    assert "indicative" not in text
    assert text.count(f"undecided ({FEW_SEEDS})") == sum(
        entry["few_seeds"] and entry["verdict"] == "undecided" for entry in entries
    )


@pytest.mark.parametrize("name", RENDERED)
def test_no_row_of_fewer_runs_is_marked(name: str) -> None:
    """Of all tables, those too that were made from arrays that are gone."""
    marked = 0
    for path in sorted((RESULTS / name / "tables").glob("*.csv")):
        read = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
        lines = [line for line in read if line["n"]]
        most: dict[str, int] = {}
        for line in lines:
            most[line["section"]] = max(most.get(line["section"], 0), _runs(line))
        few = {line["text"] for line in lines if int(line["n"]) < most[line["section"]]}
        enough = {line["text"] for line in lines if int(line["n"]) == most[line["section"]]}
        text = path.with_suffix(".md").read_text(encoding="utf-8").replace("\\", "")
        best = re.findall(r"(?:\*\*|<ins>)(−?\d[^*<]*)(?:\*\*|</ins>)", text)
        assert not {each for each in best if each in few - enough}, path
        marked += len(best)
    assert marked > 20 or name == "cifar10"  # where softmax alone has more than one run


def _runs(line: Mapping[str, str]) -> int:
    """How many runs there are, with those that a number is without."""
    return max([int(line["n"]), *map(int, re.findall(r" of (\d+) runs", line["flag"]))])


@pytest.mark.parametrize("name", ["cifar10", "cifar10-frozen"])
def test_what_is_to_be_known_of_the_images_stands_with_their_numbers(name: str) -> None:
    results = Results(RESULTS / name)
    provenance = "reconstructed from public upscaled copies"
    overlap = "22 of its 200 classes"
    assert provenance in " ".join(results.caveats(["svhn"]))
    assert overlap in " ".join(results.caveats(["tiny-imagenet"]))
    tables = (RESULTS / name / "tables").glob("*.md")
    texts = {path.stem: path.read_text() for path in tables}
    del texts["published-audit"]  # of the paper's numbers alone
    for said, title in ((provenance, "→ SVHN"), (overlap, "→ TinyImageNet")):
        shown = [path for path, text in texts.items() if title in text.split("\n\n")[1]]
        assert len(shown) > 4
        assert [path for path in shown if said not in texts[path]] == [], title
        assert said in (RESULTS / name / "claims.md").read_text()
    readme = (RESULTS / name / "README.md").read_text()
    figure = readme.partition("### Precision-recall and ROC curves")[2].partition("###")[0]
    assert provenance in figure
    assert overlap in figure
    assert "TinyImageNet: " not in "".join(texts.values())


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_differential_entropy_of_the_gem_methods_is_inverted(name: str) -> None:
    """What its docstring says, by the records."""
    results = Results(RESULTS / name)
    for method in ("gem-core", "gem-mix", "gem-fi"):
        for each in set(results.ood_sets) - {"digits-8-9"}:
            for run in results.runs(method):
                found = of_set(each, "differential_entropy", "auroc")(run)
                assert found is not None
                assert found < (15 if name == "digits" else 3.1)
