"""The page with other models than digits: rows behind a token, and one that has little to show."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import uvicorn
from PIL import Image

from gemfi import TrainConfig, build_model, fit
from gemfi.bundle import Bundle, make_bundle
from gemfi.data.inputs import InputSpec
from gemfi.data.toys import two_moons
from gemfi.methods import PaperConfig
from gemfi.serve.app import create_app
from gemfi.serve.running import address, listen
from gemfi.serve.settings import Settings
from support.browser import Browser, browser
from support.pages import MESSAGE, ONE, draw, expected, is_seen, opened, press, says, text

pytestmark = pytest.mark.slow

TOKEN = "a-secret-of-the-tests"  # noqa: S105 - of no server but these


def moons() -> Bundle:
    """For rows, with the paper's gate for each class."""
    task = two_moons(200)
    torch.manual_seed(0)
    config = PaperConfig(gate="prob", sn=False)
    model = build_model("gem-paper", "mlp", 2, config=config, in_features=2, width=32, depth=1)
    settings = TrainConfig(epochs=15, batch_size=32, learning_rate=0.01)
    fit(model, task.train, task.validation, settings, progress=False)
    return make_bundle(
        "moons",
        model,
        calibration=task.calibration,
        policy="false_alarm=0.05",
        class_names=("upper moon", "lower moon"),
        feature_names=("across", "up"),
    )


def colours() -> Bundle:
    """For images of three colours, without a policy and with nothing but probabilities."""
    torch.manual_seed(0)
    model = build_model("softmax", "convnet", 3, in_channels=3, size=8, channels=4)
    model.inputs = InputSpec(sample_shape=(3, 8, 8), sample_dtype="uint8")
    return make_bundle("colours", model, class_names=("cat", "dog", "house"))


@contextmanager
def served(bundle: Bundle, settings: Settings) -> Iterator[str]:
    """The address of the app in a thread, which is there sooner than a process."""
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(create_app(bundle, settings), log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield address(listening)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def row_page(window: Browser) -> Iterator[Browser]:
    with served(moons(), Settings(token=TOKEN.encode())) as url:
        yield opened(window, url)


@pytest.fixture
def plain_page(window: Browser) -> Iterator[Browser]:
    with served(colours(), Settings()) as url:
        yield opened(window, url)


def give_token(page: Browser, token: str) -> None:
    page.wait("document.querySelector('#token-dialog').open")
    page.run("document.querySelector('#token').focus()")
    page.call("Input.insertText", text=token)
    press(page, "Enter")


def type_row(page: Browser, text: str) -> None:
    page.run("(e => { e.focus(); e.select(); })(document.querySelector('#row-text'))")
    page.call("Input.insertText", text=text)


def test_rows_behind_a_token(row_page: Browser) -> None:
    page = row_page
    give_token(page, "wrong–token")  # with a dash that no header can hold
    page.wait("document.querySelector('#token-note').textContent.includes('did not accept')")
    give_token(page, TOKEN)
    page.wait("!document.querySelector('#desk').hidden")
    assert text(page, "#headline").startswith("Enter a row.")
    assert not is_seen(page, "#pad")
    type_row(page, "0.0")
    assert text(page, MESSAGE) == "1 of 2 numbers."
    type_row(page, "across,up\n0.0,1.0")
    says(page, "Accept", "upper moon")
    assert text(page, "#says") == "Most likely upper moon."
    assert text(page, "#why").endswith("How sure the model is, this policy does not ask.")
    assert text(page, "#doubt-fact").startswith("not asked by this policy (")
    page.run("document.querySelectorAll('.fields input')[1].select()")
    page.call("Input.insertText", text="-0.5")
    page.wait("document.querySelector('#label b').textContent === 'lower moon'")
    assert page.run("document.querySelector('#row-text').value") == "0, -0.5"
    assert page.run("document.querySelectorAll('#gate .bar').length") == 2
    assert page.run("document.querySelectorAll('#simplex line.frame').length") == 1
    page.run("document.querySelectorAll('.fields input')[1].select()")
    page.call("Input.insertText", text="x")
    assert text(page, MESSAGE) == "Number 2 (up) is missing or is no number."
    assert not is_seen(page, "#verdict")  # nothing is left of an earlier row
    page.open(page.requests[0])  # the tab remembers the token
    page.wait("!document.querySelector('#desk').hidden")
    assert not page.run("document.querySelector('#token-dialog').open")
    expected(page, "401")
    assert page.complaints == []


ROW_FORM = """
  import("/static/rows.js").then((m) => {
    const told = [];
    const place = document.createElement("div");
    const model = { input: { kind: "text", shape: [5] }, feature_names: null };
    const form = m.rowForm(place, model, {
      onRow: (row) => told.push(row), onPart: (text) => told.push(text),
    });
    for (const text of ["7 8 9", "1,2,3,4,5,6", ""]) form.set(text);
    return [told, place.querySelectorAll(".fields input").length,
      place.querySelector("textarea").placeholder];
  })"""


def test_a_text_may_be_shorter_than_the_longest(plain_page: Browser) -> None:
    told, fields, hint = plain_page.run(ROW_FORM)
    assert told == [[7, 8, 9], "6 of 5 numbers.", "0 of 5 numbers."]
    assert fields == 0
    assert hint.startswith("1 to 5 token ids")


TABLE_FORM = """
  import("/static/rows.js").then((m) => {
    const told = [];
    const place = document.createElement("div");
    const columns = [
      { name: "age", kind: "number", missing: true, categories: [] },
      { name: "size", kind: "number", missing: false, categories: [] },
      { name: "city", kind: "category", missing: false, categories: ["Oslo", "Rome"] },
    ];
    const form = m.rowForm(place, { input: { kind: "row", shape: [6] }, columns }, {
      onRow: (row) => told.push(row), onPart: (text) => told.push(text),
    });
    for (const text of ["30, 1.5, Rome", ", 2, ", "1, , x", "1, two, x", "1, 2"]) form.set(text);
    return [told, [...place.querySelectorAll(".fields input")].map((each) => each.placeholder)];
  })"""


def test_a_row_with_categories_and_missing_cells(plain_page: Browser) -> None:
    told, hints = plain_page.run(TABLE_FORM)
    assert told == [
        {"age": 30, "size": 1.5, "city": "Rome"},
        {"age": None, "size": 2, "city": None},
        "Cell 2 (size) is missing or is no number.",
        "Cell 2 (size) is missing or is no number.",
        "2 of 3 cells.",
    ]
    assert hints == ["", "", "Oslo, Rome"]


def test_without_policy_heads_and_energy(plain_page: Browser, tmp_path: Path) -> None:
    page = plain_page
    page.wait("!document.querySelector('#desk').hidden")
    assert "without a policy" in text(page, "#idle-note")
    assert not is_seen(page, "#try")
    draw(page, ONE)  # a model of colours has nothing to draw
    assert page.run("document.querySelector('#pad').tabIndex") == -1
    Image.new("RGB", (9, 9), "teal").save(tmp_path / "teal.png")
    page.drop("#pad", tmp_path / "teal.png")
    says(page, "No verdict")
    assert "without a policy" in text(page, "#no-policy")
    assert "cannot tell ambiguity from ignorance" in text(page, "#split-says")
    assert len([each for each in page.requests if "/v1/predict" in each]) == 1
    names = ("probs", "split", "heads", "simplex", "hill", "gate", "flow")
    assert [name for name in names if is_seen(page, f"#panel-{name}")] == ["probs", "split"]
    assert not is_seen(page, "#steps")
    assert page.run("document.querySelectorAll('#probs .has-long').length") == 1
    assert page.complaints == []
