from __future__ import annotations

import base64
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

import gemfi
from gemfi import metrics, scores
from gemfi_bench.demo import caption, datasets, listed, render_report, table
from gemfi_bench.style import method_label
from gemfi_bench.tabular import Value, marks
from gemfi_bench.toys import Run

FACTS = {"seed": 3, "quick": True, "seconds": 12.5}
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """The page as a list of (tag, attributes), its tables as rows of texts; `*` marks bold."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")
        elif tag == "strong" and "td" in self.open:
            self.tables[-1][-1][-1] += "*"

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="session")
def html(runs: list[Run], figures: dict[str, bytes]) -> str:
    return render_report(runs, figures, FACTS)


@pytest.fixture(scope="session")
def page(html: str) -> Page:
    return Page(html)


def test_it_tells_the_facts(page: Page) -> None:
    for fact in ("Seed3", "Quickyes", "12.5", gemfi.__version__, torch.__version__):
        assert fact in page.text
    assert "indicative only" in page.text


def test_tables_hold_the_numbers_of_the_runs(runs: list[Run], page: Page) -> None:
    chosen = datasets(runs)
    assert len(page.tables) == len(chosen) == 3
    for (name, members), shown in zip(chosen.items(), page.tables, strict=True):
        for row, (method, *cells) in zip(table(name, members).rows, shown[2:], strict=True):
            assert method == row.name
            assert [cell.lstrip("*") for cell in cells] == [
                f"{cell.mean:.1f}" for cell in row.cells if isinstance(cell, Value)
            ]


def test_the_best_of_each_column_is_marked(runs: list[Run], page: Page) -> None:
    for (name, members), shown in zip(datasets(runs).items(), page.tables, strict=True):
        best = {place for place, mark in marks(table(name, members)).items() if mark == "best"}
        assert best
        for row, (_, *cells) in enumerate(shown[2:]):
            for at, cell in enumerate(cells):
                assert cell.startswith("*") == ((row, at) in best)


def test_every_figure_is_inside_with_a_text(page: Page, figures: dict[str, bytes]) -> None:
    images = page.all("img")
    head = "data:image/png;base64,"
    assert all(image["src"].startswith(head) for image in images)
    found = [base64.b64decode(image["src"].removeprefix(head)) for image in images]
    assert found == list(figures.values())
    assert all(len(image["alt"]) > 40 for image in images)
    assert {image["width"] for image in images} == {"1200"}
    assert len(page.all("figcaption")) == len(images) + len(page.tables)


def test_nothing_is_fetched_and_nothing_runs(html: str, page: Page) -> None:
    without_pictures = re.sub(r'"data:[^"]*"', '""', html)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", without_pictures)
    for tag, attributes in page.tags:
        assert tag not in {"script", "iframe", "object", "embed"}
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:")


def test_tables_and_regions_can_be_read_aloud(page: Page) -> None:
    assert page.tags[0] == ("html", {"lang": "en"})
    assert len(page.all("h1")) == 1
    assert len(page.all("figcaption")) == len(page.all("table")) + len(page.all("img"))
    assert {head.get("scope") for head in page.all("th")} == {"row", "col", "colgroup"}
    for region in (tag for tag in page.all("div") if tag.get("class") == "scroll"):
        assert region["role"] == "region"
        assert region["aria-label"]
        assert region["tabindex"] == "0"


def test_rows_of_a_table_are_equally_wide(html: str) -> None:
    for shown in re.findall(r"(?s)<table>.*?</table>", html):
        grid: dict[int, int] = {}  # row -> columns, those of heads that reach down included
        for at, row in enumerate(re.findall(r"(?s)<tr[ >].*?</tr>", shown)):
            for cell in re.findall(r"<t[dh][^>]*>", row):
                span = re.search(r'colspan="(\d+)"', cell)
                for below in range(2 if "rowspan" in cell else 1):
                    grid[at + below] = grid.get(at + below, 0) + (int(span[1]) if span else 1)
        assert len(set(grid.values())) == 1


def test_text_is_escaped(make_run: Callable[..., Run]) -> None:
    ood = {"cluster": (60.0, 70.0, 80.0)}
    run = make_run("two-moons", "<script>alert(1)</script> & co", (99.0, 1.0, 2.0), ood)
    facts: dict[str, Any] = {"<b>": "<i>&"}
    html = render_report([run], {}, facts)
    page = Page(html)
    assert not page.all("script") + page.all("b") + page.all("i")
    assert "<script>alert(1)</script> & co" in page.text
    assert "<i>&" in page.text
    assert "*" not in "".join(cell for row in page.tables[0] for cell in row)  # no contest


def test_captions_tell_the_auroc_of_the_moons(runs: list[Run], page: Page) -> None:
    chosen = datasets(runs)["two-moons"]
    told = caption("two-moons", chosen)
    for score in (scores.entropy, scores.evidence):
        for run in chosen:
            value = metrics.auroc(
                score(run.evaluation.belief), score(run.evaluation.ood_beliefs["cluster"])
            )
            assert f"{method_label(run.plan.method)} {value:.1f}" in told.numbers
    assert "that of GEM-FI includes the density scaler" in told.text
    assert f"{told.text} {told.numbers}" in page.text
    assert any(told.numbers in image["alt"] for image in page.all("img"))


def test_names_in_a_sentence() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c"]) == "a, b and c"
