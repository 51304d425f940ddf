"""The report in a browser: what a reader clicks, types and prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemfi_bench.report import Content, page
from gemfi_bench.tabular import Column, Row, Table, Value
from support.browser import Browser, browser
from support.reports import METHODS, key_of, record, sample

pytestmark = pytest.mark.slow

FIRST = "#table2 tbody"  # of the two sections of that table
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 24, 29)"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(sample()), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def shown(window: Browser, address: str) -> Iterator[Browser]:
    """The page as a reader opens it first; it may neither complain nor ask for anything."""
    window.window(1440, 1000)
    window.prefer("light")
    window.open("about:blank")  # else a page with another hash alone is not read again
    window.open(address)
    window.run("localStorage.clear()")
    window.open("about:blank")
    window.open(address)
    yield window
    assert window.complaints == []
    assert {each.partition("#")[0] for each in window.requests} <= {address, "about:blank"}


def texts(shown: Browser, selector: str) -> list[str]:
    """The texts of elements that are seen."""
    script = (
        f"[...document.querySelectorAll({json.dumps(selector)})]"
        ".filter(e => e.checkVisibility()).map(e => e.textContent)"
    )
    found: list[str] = shown.run(script)
    return found


def names(shown: Browser) -> list[str]:
    """The rows of the first table, of both sections."""
    return texts(shown, "#table2 tbody tr:not(.section) > th")


def style(shown: Browser, selector: str, name: str) -> Any:
    element = f"document.querySelector({json.dumps(selector)})"
    return shown.run(f"getComputedStyle({element}).getPropertyValue({json.dumps(name)})")


def head(column: int) -> str:
    return f'#table2 th[data-column="{column}"]'


def type_in(shown: Browser, text: str) -> None:
    shown.run(
        "document.querySelector('#search').focus(); document.querySelector('#search').select()"
    )
    shown.call("Input.insertText", text=text)


# --- sorting -------------------------------------------------------------------------------------

PAPER = ["EDL", "Softmax", "DAEDL", "GEM-FI"]


def test_a_click_sorts_numbers_best_first_then_worst_then_as_it_was(shown: Browser) -> None:
    """By number (100 > 10.25 > 9.5), each section for itself, what is absent last."""
    orders = [names(shown)]
    states = []
    for _ in range(3):
        shown.click(f"{head(1)} button")
        orders.append(names(shown))
        states.append(shown.run(f"document.querySelector('{head(1)}').getAttribute('aria-sort')"))
    assert orders == [
        [*PAPER, "EDL", "DAEDL"],
        ["Softmax", "GEM-FI", "EDL", "DAEDL", "DAEDL", "EDL"],
        ["EDL", "GEM-FI", "Softmax", "DAEDL", "EDL", "DAEDL"],
        [*PAPER, "EDL", "DAEDL"],
    ]
    assert states == ["descending", "ascending", None]


def test_where_low_is_good_the_lowest_comes_first(shown: Browser) -> None:
    shown.click(f"{head(2)} button")
    assert names(shown) == ["Softmax", "EDL", "DAEDL", "GEM-FI", "DAEDL", "EDL"]
    assert shown.run("document.querySelectorAll('[aria-sort]').length") == 1


def test_equal_cells_keep_the_order_of_the_paper(shown: Browser) -> None:
    shown.click(f"{head(1)} button")  # another order before
    shown.click(f"{head(3)} button")
    assert names(shown)[:4] == ["Softmax", "EDL", "GEM-FI", "DAEDL"]  # a, b, b, c


def test_names_are_sorted_as_texts(shown: Browser) -> None:
    shown.click(f"{head(0)} button")
    assert names(shown) == ["DAEDL", "EDL", "GEM-FI", "Softmax", "DAEDL", "EDL"]


def test_the_keyboard_sorts_too(shown: Browser) -> None:
    shown.run(f"document.querySelector('{head(1)} button').focus()")
    shown.press("Enter", 13)
    assert names(shown)[0] == "Softmax"
    shown.press(" ", 32)
    assert names(shown)[0] == "EDL"


def test_the_ledger_is_sorted_by_verdict(shown: Browser) -> None:
    shown.click("#ledger th[data-column='0'] button")
    shown.click("#ledger th[data-column='0'] button")
    assert texts(shown, ".said")[0] == "Overhead is modest."


# --- filters -------------------------------------------------------------------------------------


def test_a_method_can_be_left_out_of_every_table_and_list(shown: Browser) -> None:
    shown.click("#methods summary")
    shown.click("#methods input[value='edl']")
    assert names(shown) == ["Softmax", "DAEDL", "GEM-FI", "DAEDL"]
    assert texts(shown, "#published-table2 tbody th") == ["ODIN"]
    assert texts(shown, "#methods .count") == ["3 of 4"]
    shown.run("document.querySelector('.group').open = true")
    left = texts(shown, ".run .name")
    assert left == [f"methods/{m} seed {s}" for m in METHODS if m != "edl" for s in (0, 1)]
    shown.click("#methods input[value='edl']")
    assert names(shown) == [*PAPER, "EDL", "DAEDL"]
    assert texts(shown, "#found") in ([""], [])


def test_a_table_without_rows_says_so(shown: Browser) -> None:
    shown.click("#methods summary")
    shown.click("[data-choose='none']")
    assert names(shown) == []
    assert texts(shown, "#table2 tr.section") == []
    remark = "Every row is of a method that is not chosen."
    assert texts(shown, "[data-card='lambda_fi'] .emptied") == [remark]
    shown.click("[data-choose='all']")
    assert names(shown) == [*PAPER, "EDL", "DAEDL"]
    assert texts(shown, ".emptied") == []


def test_words_are_searched_in_rows_and_in_what_a_card_says(shown: Browser) -> None:
    type_in(shown, "gem-fi DETECTION")
    assert names(shown) == ["GEM-FI"]  # the row has the one word, the title the other
    assert texts(shown, "[data-card='lambda_fi']") == []
    assert texts(shown, ".plot figcaption") == []
    type_in(shown, "curves")
    assert texts(shown, ".plot figcaption") == ["ROC curves"]
    type_in(shown, key_of("daedl", 1))
    assert texts(shown, ".group > summary .count") == ["1 of 8"]
    type_in(shown, "theirs daedl")
    assert names(shown) == ["DAEDL"]  # the section's heading counts as well
    assert texts(shown, "#found")[0].startswith("1 rows, 0 figures")


# --- theme ---------------------------------------------------------------------------------------


def test_the_theme_follows_the_system_until_it_is_chosen(shown: Browser, address: str) -> None:
    assert style(shown, "body", "background-color") == LIGHT
    shown.prefer("dark")
    assert style(shown, "body", "background-color") == DARK
    shown.wait("document.querySelector('#theme').textContent === 'Light'")
    shown.click("#theme")
    assert style(shown, "body", "background-color") == LIGHT
    shown.open("about:blank")
    shown.open(address)
    assert style(shown, "body", "background-color") == LIGHT  # remembered
    shown.click("#theme")
    assert style(shown, "body", "background-color") == DARK


# --- from a number to its run --------------------------------------------------------------------


def test_a_number_leads_to_its_record(shown: Browser) -> None:
    shown.click(f"{FIRST} tr[data-method='gem-fi'] td[data-keys]")
    assert texts(shown, "#runs-of h2") == ["GEM-FI"]
    assert texts(shown, "#runs-of .value") == ["near, AUPR ↑: 10.25 ± 1.50, from 2 runs:"]
    links = texts(shown, "#runs-of li a")
    assert links == ["methods/gem-fi seed 0", "methods/gem-fi seed 1"]
    shown.click("#runs-of li:nth-child(2) a")
    target = f"#run-{key_of('gem-fi', 1)}"
    shown.wait(f"document.querySelector('{target}').open")
    assert shown.run("document.querySelector('#runs-of').open") is False
    assert texts(shown, ".run[open] .name") == ["methods/gem-fi seed 1"]
    box = shown.run(f"document.querySelector('{target}').getBoundingClientRect().toJSON()")
    assert 0 < box["top"] < 1000
    assert texts(shown, f"{target} .uses a") == [
        "table2", "lambda_fi", "wide",
    ]  # fmt: skip


def test_a_claim_leads_to_its_runs(shown: Browser) -> None:
    shown.click("#ledger td.runs[data-keys]")
    assert texts(shown, "#runs-of .value") == ["Rests on 2 runs:"]
    assert texts(shown, "#runs-of li a") == ["methods/edl seed 0", "methods/gem-fi seed 0"]
    shown.press("Escape", 27)
    assert shown.run("document.querySelector('#runs-of').open") is False


def test_a_record_that_the_filters_left_out_is_shown_when_asked_for(shown: Browser) -> None:
    type_in(shown, "nothing has these words")
    target = f"run-{key_of('edl', 0)}"
    shown.run(f"location.hash = '#{target}'")
    shown.wait(f"document.getElementById('{target}').open")
    assert texts(shown, f"#{target} .name") == ["methods/edl seed 0"]


def test_an_address_with_a_run_opens_it(shown: Browser, address: str) -> None:
    target = f"run-{key_of('daedl', 1)}"
    shown.open("about:blank")
    shown.open(f"{address}#{target}")
    assert texts(shown, ".run[open] .name") == ["methods/daedl seed 1"]


def test_the_raw_record_is_unpacked_when_it_is_opened(shown: Browser) -> None:
    target = f"#run-{key_of('edl', 1)}"
    pre = f"document.querySelector('{target} .raw pre')"
    shown.run(f"location.hash = '{target}'")
    shown.wait(f"document.querySelector('{target}').open")
    assert shown.run(f"{pre}.textContent") == ""
    shown.click(f"{target} .raw summary")
    text = shown.wait(f"{pre}.textContent")
    line = record("edl", 1).line()
    assert json.loads(text) == json.loads(line)
    assert "".join(text.split()) == "".join(line.split())  # to the digit
    assert text.count("\n") > 50


def test_arrows_go_from_number_to_number(shown: Browser) -> None:
    stops = "document.querySelectorAll('#table2 button.value[tabindex=\"0\"]').length"
    assert shown.run(stops) == 1
    shown.run("document.querySelector('#table2 button.value').focus()")
    for key, code, expected in (
        ("ArrowRight", 39, "0.200"), ("ArrowDown", 40, "0.100"), ("ArrowDown", 40, "0.300"),
        ("ArrowUp", 38, "0.100"), ("ArrowLeft", 37, "100.00"), ("ArrowDown", 40, "10.25 ± 1.50"),
    ):  # fmt: skip
        shown.press(key, code)
        assert shown.run("document.activeElement.textContent") == expected
    assert shown.run(stops) == 1
    shown.press("Enter", 13)
    assert texts(shown, "#runs-of h2") == ["GEM-FI"]


# --- figures, contents ---------------------------------------------------------------------------


def test_a_figure_is_enlarged_from_its_vectors(shown: Browser) -> None:
    shown.click("#figure-roc .zoom")
    image = "document.querySelector('#enlarged img')"
    assert shown.run(f"{image}.src").startswith("data:image/svg+xml")
    shown.wait(f"{image}.naturalWidth > 0")
    fitted = shown.run(f"{image}.clientWidth")
    shown.click("#enlarged .picture")
    assert shown.run(f"{image}.clientWidth") > 1.5 * fitted
    shown.press("Escape", 27)
    assert shown.run("document.querySelector('#enlarged').open") is False
    shown.click("#figure-tsne .zoom")
    assert shown.run(f"{image}.src").startswith("data:image/png")


def test_the_contents_stay_and_say_where_the_reader_is(shown: Browser) -> None:
    shown.click("#contents a[href='#figure-roc']")
    shown.wait("document.querySelector('#contents a[aria-current]')?.hash === '#figure-roc'")
    top = shown.run("document.querySelector('#contents').getBoundingClientRect().top")
    assert 0 <= top < 100
    assert shown.run("scrollY") > 500


def test_on_a_phone_tables_scroll_in_their_own_box(shown: Browser) -> None:
    shown.window(390, 844, phone=True)
    assert shown.run("document.documentElement.scrollWidth") == 390
    box = "document.querySelector('#wide .scroll')"
    assert shown.run(f"{box}.scrollWidth > 2 * {box}.clientWidth")
    assert texts(shown, "#contents") == []
    shown.click("#show-contents")
    assert len(texts(shown, "#contents")) == 1
    shown.click("#contents a[href='#wide']")
    shown.wait("!document.querySelector('#contents').checkVisibility()")
    assert shown.run("document.querySelector('#show-contents').ariaExpanded") == "false"


# --- print ---------------------------------------------------------------------------------------


def test_paper_shows_everything_in_light_and_without_controls(shown: Browser) -> None:
    shown.click("#theme")  # dark
    type_in(shown, "nothing has these words")
    assert texts(shown, "[data-card]") == []
    shown.prefer("light", medium="print")
    assert names(shown) == [*PAPER, "EDL", "DAEDL"]
    assert len(texts(shown, "[data-card]")) == 9  # ledger, 4 tables, 3 figures, 1 published
    assert len(texts(shown, ".run .name")) == 8
    assert texts(shown, ".bar, #contents, .open-all, .vectors") == []
    assert style(shown, "body", "background-color") == LIGHT
    assert style(shown, ".card", "break-inside") == "avoid"
    shown.window(718, 1000)  # A4 between its margins
    for box in ("#table2 .scroll", "#ledger .scroll"):
        assert style(shown, box, "overflow-x") == "visible"
        inner = shown.run(f"document.querySelector('{box} table').getBoundingClientRect().right")
        assert inner < 719
    shown.window(1047, 700)  # A4 on its side, which a table of many columns is given
    assert shown.run("document.querySelector('#wide table').getBoundingClientRect().right") <= 1047
    assert style(shown, ".crowded-2", "page") == "wide"


def test_it_prints(shown: Browser) -> None:
    paper = shown.pdf()
    assert paper.startswith(b"%PDF")
    sheets = paper.count(b"/Type /Page\n") or paper.count(b"/Type /Page") - paper.count(
        b"/Type /Pages"
    )
    assert sheets >= 5  # ledger, tables, the wide one, figures, published, runs


def test_a_long_table_scrolls_in_a_box_and_is_printed_in_full(
    shown: Browser, tmp_path: Path
) -> None:
    rows = tuple(Row(f"row {at}", (Value(at),)) for at in range(100))
    table = Table("long", "Many rows", (Column("c"),), rows)
    path = tmp_path / "long.html"
    path.write_text(page(Content("long", tables=[table])), encoding="utf-8")
    shown.open(path.as_uri())
    box = "document.querySelector('#long .scroll')"
    assert shown.run(f"{box}.clientHeight") <= 800
    shown.run(f"{box}.scrollTop = 1000")
    top = shown.run(f"{box}.getBoundingClientRect().top")
    assert shown.run("document.querySelector('#long thead').getBoundingClientRect().top") == top
    shown.prefer("light", medium="print")
    assert shown.run(f"{box}.clientHeight") > 1500
    shown.requests.clear()  # this page's own


# --- without a script ----------------------------------------------------------------------------


def test_it_reads_without_its_script(window: Browser, address: str) -> None:
    window.window(1440, 1000)
    window.prefer("light")
    window.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        window.open("about:blank")
        window.open(address)
        assert names(window) == [*PAPER, "EDL", "DAEDL"]
        assert texts(window, ".bar") == []
        assert len(texts(window, "#contents a")) == 14
    finally:
        window.call("Emulation.setScriptExecutionDisabled", value=False)
