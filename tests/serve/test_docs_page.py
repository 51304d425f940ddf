"""The page /docs in a browser: every route of the description, and nothing from elsewhere."""

from __future__ import annotations

import json
import shlex
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemfi.bundle import write_bundle
from support.browser import Browser, browser
from support.pages import opened, text
from support.served import make_rows
from support.server import running_server

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-the-tests"  # noqa: S105
ROUTES = {"/v1/predict", "/v1/model", "/v1/reload", "/healthz", "/metrics"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    bundle = write_bundle(folder / "rows.safetensors", make_rows())
    with running_server(folder / "log", str(bundle), GEMFI_TOKEN=TOKEN) as server:
        yield server.url


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def page(window: Browser, url: str) -> Iterator[Browser]:
    shown = opened(window, f"{url}/docs")
    shown.wait("document.querySelectorAll('.route').length > 0")
    yield shown
    assert shown.complaints == []
    assert [each for each in shown.requests if not each.startswith(f"{url}/")] == []


def test_every_route_is_there_with_its_form_and_examples(page: Browser) -> None:
    shown = page.run("[...document.querySelectorAll('.route h2 code')].map(e => e.textContent)")
    assert set(shown) == ROUTES
    predict = text(page, "#predict")
    assert "rows: labels, decisions and uncertainty." in text(page, "#lead")
    for words in ("with the token", "array of 4 numbers", "false_alarm", "application/json"):
        assert words in predict
    assert "curl -X POST" in text(page, "#reload")
    page.click("#predict summary")
    for words in ("p_value", '"accept", "abstain", "unfamiliar"', "Too many inputs wait."):
        assert words in text(page, "#predict")


def test_the_example_can_be_copied_and_sent(page: Browser, url: str) -> None:
    command = page.run("document.querySelector('#predict pre').textContent")
    parts = shlex.split(command.replace("$TOKEN", TOKEN))
    headers = [parts[at + 1] for at, each in enumerate(parts) if each == "-H"]
    request = urllib.request.Request(  # noqa: S310
        parts[-1],
        parts[parts.index("-d") + 1].encode(),
        dict(each.split(": ", 1) for each in headers),
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert json.load(answer)["predictions"][0]["label"] in {"ant", "bee", "cat"}
    assert parts[-1] == f"{url}/v1/predict"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_window(page: Browser, theme: str, width: int, tmp_path: Path) -> None:
    page.window(width, 844)
    page.prefer(theme)
    page.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    assert page.run("document.documentElement.scrollWidth") <= width
    page.screenshot(tmp_path / f"docs-{theme}-{width}.png", whole=True)
    assert (tmp_path / f"docs-{theme}-{width}.png").stat().st_size > 10_000
