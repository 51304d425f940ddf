"""The report: what is in it, that it is one file, and that nothing in it is taken for HTML."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import re
from dataclasses import fields, replace
from typing import Any

import pytest

from gemfi_bench import formats
from gemfi_bench.report import LARGEST_SVG, Content, FigureFile, Missing, page
from gemfi_bench.tabular import Column, Row, Table, Value
from support.html import Element, read
from support.reports import (
    CLAIMS,
    METHODS,
    NUMBERS,
    PUBLISHED,
    SVG,
    finding,
    key_of,
    png,
    record,
    sample,
)

HOSTILE = "</script></style></textarea><img src=x onerror=alert(1)>\"'&amp;"
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def source() -> str:
    return page(sample())


@pytest.fixture(scope="module")
def tree(source: str) -> Element:
    return read(source)


# --- one file ------------------------------------------------------------------------------------


def test_the_policy_allows_the_pages_own_style_and_script_alone(tree: Element) -> None:
    policy = tree.one("meta", http_equiv="Content-Security-Policy")["content"]
    for name in ("style", "script"):
        text = tree.one(name).text
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_nothing_is_fetched(source: str, tree: Element) -> None:
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", source)
    for element in tree.walk():
        assert element.name not in {"iframe", "object", "embed", "base"}
        assert not [name for name in element.attributes if name.startswith("on") or name == "style"]
        for name in ("src", "href"):
            assert element.attributes.get(name, "#").startswith(("#", "data:"))


def test_the_same_content_gives_the_same_page(source: str) -> None:
    assert page(sample()) == source


def test_ids_are_unique_and_every_link_has_a_target(tree: Element) -> None:
    ids = [element["id"] for element in tree.walk() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    links = [link["href"][1:] for link in tree.all("a") if link["href"].startswith("#")]
    assert links
    assert set(links) <= set(ids)


def test_three_hundred_runs_take_half_of_fifteen_megabytes() -> None:
    rng = random.Random(0)  # noqa: S311 - numbers as many-digited as real ones
    sets = [f"set-{at}" for at in range(22)]

    def numbers() -> dict[str, Any]:
        metrics = ("auroc", "aupr_id", "aupr_ood", "fpr95", "n_id", "n_ood")
        scores = [f"score_{at}" for at in range(13)]
        entry = lambda: {each: round(rng.uniform(0, 100), 6) for each in metrics}  # noqa: E731
        return {"ood": {name: {"by_score": {s: entry() for s in scores}} for name in sets}}

    runs = [record("gem-fi", seed, numbers=numbers()) for seed in range(30)]
    raw = sum(len(run.line()) for run in runs)
    assert 10 * raw > 10 * MEGABYTE
    size = len(page(Content("many", records=runs))) - len(page(Content("many")))
    assert 10 * size < 8 * MEGABYTE  # and the rest for figures


# --- what is in it -------------------------------------------------------------------------------


def test_parts_are_in_order_and_in_the_contents(tree: Element) -> None:
    parts = [part["id"] for part in tree.all("section", "part")]
    names = ("summary", "claims", "tables", "figures", "published", "runs")
    assert parts == [f"part-{name}" for name in names]
    contents = [link["href"][1:] for link in tree.one(id="contents").all("a")]
    assert contents == [
        "part-summary", "part-claims",
        "part-tables", "table2", "lambda_fi", "wide", "overhead",
        "part-figures", "figure-roc", "figure-tsne", "figure-grid",
        "part-published", "published-table2", "part-runs",
    ]  # fmt: skip


def test_parts_without_content_are_left_out() -> None:
    tree = read(page(Content("empty")))
    assert tree.all("section", "part") == []
    assert tree.one("h1").text == "empty"
    assert tree.all("details", id="methods") == []


def test_title_facts_and_summary(tree: Element) -> None:
    assert tree.one("title").text == tree.one("h1").text == "Benchmark: sample"
    facts = tree.one("dl", "facts")
    assert [each.text for each in facts.all("dd")] == ["sample", "8 of 8"]
    summary = tree.one(id="part-summary")
    assert [each.text for each in summary.all("p")] == ["GEM-FI is first.", "EDL is second."]


def test_the_ledger_shows_each_claim_with_its_verdict(tree: Element) -> None:
    rows = tree.one("table", "ledger").all("tr", "claim")
    assert len(rows) == len(CLAIMS)
    for row, found in zip(rows, CLAIMS, strict=True):
        assert found.outcome in row.one("span", "badge").text
        assert row.one("span", "said").text == found.claim.text
        assert row.one("span", "statistic").text == found.claim.statistic
        assert bool(row.all("span", "few-seeds")) is found.few_seeds
        cell = row.all("td", "runs")[0]
        assert cell.get("data-keys").split() == found.keys
    tests = [each.text for each in rows[0].all("span", "test")]
    assert tests == [
        "near: +0.80 [+0.10, +1.50], supported",
        "far: +1.20 [+0.40, +2.00], supported",
    ]
    assert rows[2].one("td", "tests").text == "it was not measured"
    tally = [each.text for each in tree.one("ul", "tally").all("span", "badge")]
    assert tally == ["✓ 1 supported", "✗ 1 refuted", "? 0 undecided", "– 1 not tested"]


def test_our_own_claims_are_counted_apart() -> None:
    claims = [
        finding("theirs", "s", "refuted", where="Table 2"),
        finding("ours", "s", "supported", where="ours"),
    ]
    found = read(page(Content("t", claims=claims)))
    tallies = [[each.text for each in one.all("li")] for one in found.all("ul", "tally")]
    assert [each[:3] for each in tallies] == [
        ["Of the paper", "✓ 0 supported", "✗ 1 refuted"],
        ["Of this project", "✓ 1 supported", "✗ 0 refuted"],
    ]


def test_tables_are_those_of_the_renderer(source: str) -> None:
    assert formats.html(NUMBERS) in source
    assert formats.html(replace(PUBLISHED, label="published-table2")) in source


def test_a_published_table_keeps_a_label_that_is_its_own() -> None:
    content = sample(published=(replace(PUBLISHED, label="published-audit"),))
    assert 'id="published-audit"' in page(content)


def test_what_is_missing_says_why(tree: Element) -> None:
    cards = {card["id"]: card.text for card in tree.all("div", "missing")}
    assert set(cards) == {"overhead", "figure-grid"}
    assert "it was not measured" in cards["overhead"]
    assert "the arrays are not here" in cards["figure-grid"]


def test_figures_are_inside_with_text_and_vectors(tree: Element) -> None:
    figure = tree.one("figure", id="figure-roc")
    image = figure.one("img")
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == png(80, 20)
    assert (image["width"], image["height"]) == ("80", "20")
    assert "ROC curves" in image["alt"]
    assert "Higher is better." in figure.one("p", "caption").text
    vectors = figure.one("a", "vectors")
    assert base64.b64decode(vectors["href"].removeprefix("data:image/svg+xml;base64,")) == SVG
    assert vectors["download"] == "roc.svg"
    assert "broad" in figure.classes
    assert "broad" not in tree.one("figure", id="figure-tsne").classes


def test_large_vectors_are_left_out() -> None:
    large = FigureFile("f", "F", "", png(2, 2), b" " * (LARGEST_SVG + 1))
    assert read(page(Content("t", figures=[large]))).all("a", "vectors") == []


def test_methods_can_be_chosen_in_the_order_of_the_package(tree: Element) -> None:
    boxes = tree.one(id="methods").all("input")
    assert [box["value"] for box in boxes] == list(METHODS)  # ODIN is of a published row alone
    assert all("checked" in box.attributes for box in boxes)


def test_a_method_of_our_own_tables_has_a_box_though_the_package_does_not_know_it() -> None:
    table = Table("t", "T", (Column("c"),), (Row("mine", (Value(1.0),), "mine"),))
    boxes = read(page(Content("t", tables=[table]))).one(id="methods").all("input")
    assert [box["value"] for box in boxes] == ["mine"]


def test_controls_wait_for_the_script(tree: Element) -> None:
    assert "hidden" in tree.one("div", "bar").attributes


# --- records -------------------------------------------------------------------------------------


def test_every_key_of_a_number_leads_to_a_record(tree: Element) -> None:
    keys = {key for cell in tree.all("td") for key in cell.get("data-keys").split()}
    assert keys == {key_of(method, seed) for method in METHODS for seed in (0, 1)}
    assert {run["id"] for run in tree.all("details", "run")} == {f"run-{key}" for key in keys}


def test_a_record_shows_what_was_run(tree: Element) -> None:
    run = tree.one("details", id=f"run-{key_of('edl', 1)}")
    assert run["data-method"] == "edl"
    assert run.all("summary")[0].text.startswith("methods/edl seed 1")
    facets = {facet.one("h4").text: facet for facet in run.all("section", "facet")}
    assert list(facets) == ["Numbers", "Configuration", "Run", "Environment", "Data"]
    lines = {
        name: [line.split() for line in facet.one("pre").text.splitlines()]
        for name, facet in facets.items()
        if facet.all("pre")
    }
    assert ["train.epochs", "20"] in lines["Configuration"]
    assert ["seed", "1"] in lines["Run"]
    assert ["seconds,", "train", "62.0"] in lines["Run"]
    assert ["parameters", "52327"] in lines["Run"]
    assert not [line for line in lines["Run"] if line[0] == "notes"]
    assert ["date", "2026-01-02,", "2026-01-03"] in lines["Environment"]
    assert ["torch", "2.13.0"] in lines["Environment"]
    assert ["near", "ood-test", "97889424", "354"] in lines["Data"]
    cells = [cell.text for cell in facets["Numbers"].all("td")]
    assert cells == ["91.00", "0.312", "12.50", "2.25", "80.00", "81.00", "70.00", "71.00"]
    assert "mean of 2 sets: 50.00 (clean: 91.00)" in facets["Numbers"].text


def test_a_run_without_test_data_shows_validation_data() -> None:
    run = record("edl", 0, numbers={"validation": {"id": {"accuracy": 87.5}}}, title="alone")
    tree = read(page(Content("t", records=[run])))
    numbers = tree.one("details", "run").all("section", "facet")[0]
    assert [head.text for head in numbers.all("th", scope="col")] == ["validation", "Accuracy"]
    assert [cell.text for cell in numbers.all("td")] == ["87.50"]
    assert tree.one("details", "group").all("summary")[0].text == "other runs 1"


def test_an_assembled_run_leads_to_its_members() -> None:
    member = record("softmax", 0)
    run = record("edl", 0, members=(member.key, "elsewhere"))
    tree = read(page(Content("t", records=[member, run])))
    line = tree.one("p", "members")
    assert [link["href"] for link in line.all("a")] == [f"#run-{member.key}"]
    assert "elsewhere" in line.text


def test_the_raw_record_is_packed_whole(tree: Element) -> None:
    run = tree.one("details", id=f"run-{key_of('gem-fi', 0)}")
    text = gzip.decompress(base64.b64decode(run.one("details", "raw").one("pre")["data-packed"]))
    assert text.decode() == record("gem-fi", 0).line()


def test_records_are_grouped_in_the_order_in_which_groups_appear() -> None:
    titles = ("rates/b", "methods/a", "rates/a", "methods/b")
    runs = [record("edl", at, title=title) for at, title in enumerate(titles)]
    tree = read(page(Content("t", records=runs)))
    groups = tree.all("details", "group")
    assert [group.all("summary")[0].text for group in groups] == ["rates 2", "methods 2"]
    names = [[name.text for name in group.all("span", "name")] for group in groups]
    assert names == [["rates/b", "rates/a"], ["methods/a", "methods/b"]]


# --- everything is escaped -----------------------------------------------------------------------


def hostile() -> Content:
    """A page in which every text tries to be more than text."""
    value = Value(1.0, None, 1, (f'"{"x" * 3}<b>',), HOSTILE)
    table = Table(
        "t",
        HOSTILE,
        (Column(HOSTILE, HOSTILE), Column(HOSTILE)),
        (Row(HOSTILE, (value, HOSTILE), HOSTILE, section=HOSTILE),),
        HOSTILE,
        (HOSTILE,),
    )
    run = record(
        "edl",
        0,
        key='"><b>',
        title=f"{HOSTILE}/{HOSTILE}",
        spec={"method": HOSTILE, HOSTILE: HOSTILE, "train": {"seed": HOSTILE}},
        members=(HOSTILE,),
        data={HOSTILE: {"role": HOSTILE, "n": HOSTILE, "checksum": HOSTILE}},
        sessions=({HOSTILE: HOSTILE},),
        training={HOSTILE: HOSTILE},
        absent={HOSTILE: HOSTILE},
        detectors={HOSTILE: {}},
        numbers={"ood": {HOSTILE: {"by_score": {}}}},
    )
    return Content(
        HOSTILE,
        HOSTILE,
        {HOSTILE: HOSTILE},
        [HOSTILE],
        [
            finding(
                HOSTILE, HOSTILE, "refuted", [(HOSTILE, 1.0, (0.0, 2.0))], ('"><b>',), HOSTILE, 2
            )
        ],
        [table, Missing(HOSTILE, HOSTILE, HOSTILE)],
        [
            FigureFile(HOSTILE, HOSTILE, HOSTILE, png(2, 2), HOSTILE.encode()),
            Missing(f"{HOSTILE}2", HOSTILE, HOSTILE),
        ],
        [replace(table, label="p")],
        [run],
    )


def test_no_text_is_taken_for_html() -> None:
    content = hostile()
    assert all(getattr(content, each.name) for each in fields(content))
    plain, tree = read(page(sample())), read(page(content))
    known = {element.name for element in plain.walk()}
    assert {element.name for element in tree.walk()} <= known
    assert len(tree.all("script")) == len(tree.all("style")) == 1
    assert tree.one("script").text == plain.one("script").text
    assert tree.one("h1").text == HOSTILE
    assert HOSTILE in tree.one("table", "ledger").text
    for element in tree.walk():
        assert "onerror" not in element.attributes
    images = tree.all("img")
    assert [image["src"][:22] for image in images] == ["data:image/png;base64,"]


# --- columns of words ----------------------------------------------------------------------------


def test_columns_that_hold_words_alone_are_marked() -> None:
    long = "a remark of more than thirty characters"
    table = Table(
        "t",
        "T",
        (Column("number"), Column("words"), Column("prose"), Column("mixed"), Column("nothing")),
        (
            Row("one", (Value(1.0), "a", long, "not run", None)),
            Row("two", ("not run", None, "b", Value(2.0), None)),
        ),
    )
    tree = read(formats.html(table))
    heads = {head.text: head.classes for head in tree.all("th", scope="col")}
    assert heads == {
        "Method": set(), "number": set(), "words": {"words"}, "prose": {"words", "prose"},
        "mixed": set(), "nothing": set(),
    }  # fmt: skip
    second = tree.all("tbody")[0].all("tr")[1].all("td")
    assert [cell.classes & {"words", "prose"} for cell in second] == [
        set(), {"words"}, {"words", "prose"}, set(), set(),
    ]  # fmt: skip
