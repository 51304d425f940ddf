"""The page in a browser, with the real server behind it: draw, drop, type, slide, and fail."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support.browser import Browser, browser
from support.pages import (
    MESSAGE,
    ONE,
    SEVEN,
    draw,
    expected,
    image_of,
    is_seen,
    on_pad,
    opened,
    press,
    says,
    text,
)
from support.server import running_server

pytestmark = pytest.mark.slow

HEART = 5  # the fifth of the things to try
LIGHT, DARK = "rgb(246, 244, 239)", "rgb(15, 19, 23)"


# --- servers and the window ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`gemfi serve --demo`, a process, with limits that are soon reached."""
    log = tmp_path_factory.mktemp("server") / "server.log"
    limits = ("--max-pixels", "1000000", "--max-bytes", "400000")
    with running_server(log, "--demo", *limits) as server:
        yield server.url


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def page(window: Browser, demo: str) -> Iterator[Browser]:
    """The page of the digits; it may not complain, nor ask another host for anything."""
    shown = opened(window, demo)
    shown.wait("!document.querySelector('#desk').hidden")
    yield shown
    shown.offline(False)
    assert shown.complaints == []
    assert [each for each in shown.requests if not each.startswith(f"{demo}/")] == []


# --- drawing -------------------------------------------------------------------------------------


def test_a_digit_is_read_while_the_mouse_draws_it(page: Browser) -> None:
    assert is_seen(page, "#idle")
    draw(page, SEVEN)
    says(page, "Accept", "7")
    assert "This is a 7." in text(page, "#says")
    assert "look at least this strange" in text(page, "#p-words")
    assert not is_seen(page, "#idle")
    assert page.run("[saw.width, saw.height]") == [28, 28]
    asked = [each for each in page.requests if "/v1/predict" in each]
    assert 1 <= len(asked) <= 20  # while it was drawn, and not for every move


def test_every_panel_of_a_mixture_is_there(page: Browser) -> None:
    draw(page, SEVEN)
    says(page, "Accept", "7")
    for panel in ("probs", "split", "heads", "simplex", "hill", "flow"):
        assert is_seen(page, f"#panel-{panel}"), panel
    assert page.run("document.querySelectorAll('#heads .head').length") == 3
    assert text(page, "#heads-says") == "All 3 heads agree: 7."
    parts = page.run("[...document.querySelectorAll('.stack i')].map(e => e.offsetWidth)")
    whole = page.run("document.querySelector('.stack').offsetWidth")
    assert sum(parts) == pytest.approx(whole, abs=3)
    assert "Energy higher than" in text(page, "#hill-says")
    page.click("#hill-tabs [data-score=unfamiliarity]")
    assert "Unfamiliarity higher than" in text(page, "#hill-says")
    assert page.run("document.querySelectorAll('#simplex .draw').length") > 300
    assert page.run("document.querySelector('#simplex .corner').textContent") == "7"


def test_a_finger_draws_and_the_page_stays(page: Browser) -> None:
    page.window(390, 844, phone=True)
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        page.run("scrollTo(0, 0)")
        for stroke in on_pad(page, ONE):
            page.swipe(stroke)
        says(page, "Accept", "1")
        assert page.run("scrollY") == 0
    finally:
        page.call("Emulation.setTouchEmulationEnabled", enabled=False)


def test_the_keyboard_draws_takes_back_and_clears(page: Browser) -> None:
    for _ in range(12):
        if page.run("document.activeElement.id") == "pad":
            break
        press(page, "Tab")
    assert page.run("document.activeElement.matches('#pad:focus-visible')")
    assert page.run("getComputedStyle(pad).outlineStyle") == "solid"
    press(page, " ")
    press(page, "ArrowDown", 15)
    press(page, " ")
    says(page, "Accept", "1")
    page.wait("document.querySelector('#announce').textContent.startsWith('Accept. This is a 1.')")
    press(page, "ArrowRight", 5)  # lifted: nothing is drawn
    press(page, " ")
    press(page, "ArrowDown", 2)
    press(page, " ")
    press(page, "Backspace")
    says(page, "Accept", "1")
    press(page, "Delete")
    page.wait("!document.querySelector('#idle').hidden")


def test_an_example_by_keyboard_and_back_to_it_later(page: Browser) -> None:
    page.run("document.querySelector('#examples .chip').focus()")
    press(page, "Enter")
    says(page, "Accept", "3")
    assert "An ordinary digit" in text(page, "#watch")
    page.click("#clear")
    page.wait("!document.querySelector('#idle').hidden")
    before = len(page.requests)
    page.click("#past .past")
    says(page, "Accept", "3")
    assert len(page.requests) == before


def test_each_thing_to_try_does_what_it_says(page: Browser) -> None:
    found = []
    for number in range(1, 10):
        page.run("document.querySelector('#word').textContent = ''")
        page.click(f"#examples .chip:nth-child({number})")
        page.wait("document.querySelector('#word').textContent !== ''")
        found.append(text(page, "#word"))
    assert found == [
        "Accept", "Abstain", "Unfamiliar", "Unfamiliar", "Unfamiliar", "Accept", "Unfamiliar",
        "Unfamiliar", "Unfamiliar",
    ]  # fmt: skip
    assert page.run("document.querySelectorAll('#past .past').length") == 8


# --- the slider ----------------------------------------------------------------------------------


def test_the_slider_moves_the_verdict_without_a_request(page: Browser) -> None:
    page.click(f"#examples .chip:nth-child({HEART})")
    says(page, "Unfamiliar", "0")
    assert "Promised at this rate" in text(page, "#promise")
    before = len(page.requests)
    page.run("level.focus()")
    press(page, "Home")
    says(page, "Accept", "0")
    assert text(page, "#level-now") == "0.04%:"
    assert "it is not given at this rate" in text(page, "#promise")
    press(page, "End")
    says(page, "Unfamiliar", "0")
    assert page.run("level.getAttribute('aria-valuetext')") == "50%"
    page.click("#level-back")
    assert text(page, "#level-now") == "5%:"
    press(page, "ArrowLeft")
    assert 0.047 < page.run("parseFloat(level.getAttribute('aria-valuetext')) / 100") < 0.05
    assert len(page.requests) == before


# --- images --------------------------------------------------------------------------------------


def test_an_image_is_dropped(page: Browser, tmp_path: Path) -> None:
    page.drop("#pad", image_of(tmp_path / "seven.png", SEVEN, ink=255, paper=0))
    says(page, "Accept", "7")
    draw(page, ONE)  # drawing begins anew
    says(page, "Accept", "1")
    assert not is_seen(page, "#as-ink")


def test_ink_on_paper_is_prepared_like_a_drawing(page: Browser, tmp_path: Path) -> None:
    page.drop("#pad", image_of(tmp_path / "paper.png", SEVEN, ink=40, paper=240))
    says(page, "Unfamiliar")
    page.click("#ink")
    says(page, "Accept", "7")
    assert "as in MNIST" in text(page, "#saw-size")


def test_an_image_is_chosen(page: Browser, tmp_path: Path) -> None:
    path = image_of(tmp_path / "one.png", ONE, ink=255, paper=0)
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])
    says(page, "Accept", "1")


def test_an_image_is_pasted(page: Browser, tmp_path: Path) -> None:
    path = image_of(tmp_path / "seven.png", SEVEN, ink=255, paper=0)
    page.run(
        "(() => { const held = new DataTransfer();"
        f"const bytes = Uint8Array.from(atob('{base64.b64encode(path.read_bytes()).decode()}'),"
        "each => each.charCodeAt(0)); held.items.add(new File([bytes], 'a.png'));"
        "document.dispatchEvent(new ClipboardEvent('paste', {clipboardData: held})); })()"
    )
    says(page, "Accept", "7")


# --- what goes wrong -----------------------------------------------------------------------------


def test_files_that_cannot_be_read_are_told_of(page: Browser, tmp_path: Path) -> None:
    text_file = tmp_path / "notes.png"
    text_file.write_text("no image", encoding="utf-8")
    page.drop("#pad", text_file)
    page.wait(f"Boolean(document.querySelector('{MESSAGE}'))")
    assert text(page, MESSAGE) == "notes.png is not an image that can be read."
    one = image_of(tmp_path / "one.png", ONE, ink=255, paper=0)
    page.drop("#pad", one, text_file)
    page.wait(f"document.querySelector('{MESSAGE}')?.textContent.includes('these are 2 files')")
    page.drop("#pad", one)
    says(page, "Accept", "1")
    assert not is_seen(page, "#problem")


def test_what_the_server_refuses_is_shown_by_the_input(page: Browser, tmp_path: Path) -> None:
    gif, wide, heavy = tmp_path / "a.gif", tmp_path / "wide.png", tmp_path / "heavy.png"
    Image.new("L", (9, 9)).save(gif)  # the browser reads it, the server does not
    Image.new("L", (1100, 1000)).save(wide)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (600, 600), np.uint8)).save(heavy)
    for path, words, status in ((gif, "image", "422"), (wide, "pixels", "413")):
        page.drop("#pad", path)
        page.wait(f"document.querySelector('{MESSAGE}')?.textContent.includes('{words}')")
        assert any(status in each for each in page.complaints)
        expected(page, status)
        page.run("document.querySelector('#clear').click()")
    before = len(page.requests)
    page.drop("#pad", heavy)
    page.wait(f"document.querySelector('{MESSAGE}')?.textContent.includes('too large')")
    assert "the server takes up to 300 kB" in text(page, MESSAGE)
    assert len(page.requests) == before


def test_a_server_that_is_gone_and_comes_back(page: Browser) -> None:
    page.offline(True)
    draw(page, ONE)
    page.wait("!document.querySelector('#gone').hidden")
    assert "does not answer" in text(page, "#gone")
    page.offline(False)
    expected(page, "ERR_INTERNET_DISCONNECTED")
    page.click("#retry")
    says(page, "Accept", "1")
    assert not is_seen(page, "#gone")


def test_a_busy_server_is_asked_again(page: Browser) -> None:
    page.run(
        "(() => { const real = fetch; window.fetch = (...given) => { window.fetch = real;"
        "return Promise.resolve(new Response('{}', {status: 429, headers: {'Retry-After': '1'}}))"
        "}})()"
    )
    page.click("#examples .chip")
    page.wait(f"document.querySelector('{MESSAGE}')?.textContent.includes('busy')")
    says(page, "Accept", "3")
    assert not is_seen(page, "#problem")


def test_an_answer_that_nobody_waits_for_is_dropped(page: Browser) -> None:
    page.run(
        "(() => { const real = fetch; window.held = []; window.fetch = (...given) =>"
        "new Promise(done => held.push(() => done(real(...given)))) })()"
    )
    page.click("#examples .chip")
    page.wait("held.length === 1")
    page.click("#clear")
    page.run("held.pop()()")
    page.run("new Promise(done => setTimeout(done, 400))")
    assert is_seen(page, "#idle")
    assert not is_seen(page, "#verdict")


# --- looks ---------------------------------------------------------------------------------------


def background(page: Browser) -> Any:
    return page.run("getComputedStyle(document.body).backgroundColor")


def test_light_and_dark(page: Browser) -> None:
    assert background(page) == LIGHT
    page.prefer("dark", motion="reduce")
    assert background(page) == DARK
    page.click("#theme")
    assert background(page) == LIGHT
    page.open(page.requests[0])
    assert background(page) == LIGHT  # remembered, against the system
    page.run("localStorage.clear()")


def test_a_narrow_window_has_everything_and_scrolls_no_further_than_down(page: Browser) -> None:
    page.window(390, 844, phone=True)
    for number in (2, HEART):
        page.click(f"#examples .chip:nth-child({number})")
        says(page, {2: "Abstain", HEART: "Unfamiliar"}[number])
        page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert page.run("document.documentElement.scrollWidth") == 390
        outside = page.run(
            "[...document.querySelectorAll('main *')].filter(e => e.checkVisibility() &&"
            "!e.closest('.hidden') && e.getBoundingClientRect().right > 391).map(e => e.outerHTML)"
        )
        assert outside == []
    small = page.run(
        "[...document.querySelectorAll('button')].filter(e => e.checkVisibility() &&"
        "!e.matches('.link') && e.getBoundingClientRect().height < 32).map(e => e.outerHTML)"
    )
    assert small == []
