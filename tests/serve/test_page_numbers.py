"""What the page computes by itself, against slow and obvious computations."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import gemfi.serve
from gemfi.decisions import Goal, Policy, Readings
from support.browser import Browser, browser

pytestmark = pytest.mark.slow

PAGE = Path(gemfi.serve.__file__).parent / "page"
VERDICTS = ("accept", "abstain", "unfamiliar")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """An empty page that can import the modules."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "static").symlink_to(PAGE)
    (folder / "index.html").write_text("<!doctype html><title>modules</title>", encoding="utf-8")
    handler = functools.partial(_Quiet, directory=str(folder))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        browser(tmp_path_factory.mktemp("profile")) as found,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            found.open(f"http://127.0.0.1:{server.server_port}/")
            yield found
        finally:
            server.shutdown()


def call(window: Browser, module: str, expression: str, *values: Any) -> Any:
    """The value of an expression with the names of a module, and `a`, the values."""
    return window.run(
        f"import('/static/{module}.js').then(m => {{ const a = {json.dumps(values)}; "
        f"return {expression}; }})"
    )


# --- the frame of a drawing ----------------------------------------------------------------------


def prepared(grey: npt.NDArray[np.float64], height: int, width: int) -> npt.NDArray[np.float64]:
    """Ink in 20/28 of the frame, each pixel the mean of what it covers, the centre of mass amid."""
    rows, columns = np.nonzero(grey >= 24)
    scale = max(np.ptp(columns) + 1, (np.ptp(rows) + 1) * width / height) / (width * 20 / 28)
    weights = []
    for axis, size in ((0, height), (1, width)):
        mass = grey.sum(axis=1 - axis)
        centre = (mass * (np.arange(len(mass)) + 0.5)).sum() / mass.sum()
        edges = centre + (np.arange(size + 1) - size / 2) * scale
        pixel = np.arange(len(mass))
        covered = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
        weights.append(covered.clip(min=0))  # (frame, image): the length of a pixel that is covered
    return np.asarray(weights[0] @ grey @ weights[1].T / scale**2)


@pytest.mark.parametrize(("height", "width"), [(28, 28), (8, 8), (32, 24)])
def test_a_drawing_is_prepared_as_mnist_was(window: Browser, height: int, width: int) -> None:
    rng = np.random.default_rng(height)
    grey = np.zeros((50, 60))
    grey[7:40, 20:31] = rng.integers(0, 256, (33, 11))
    given = {"width": 60, "height": 50, "values": grey.ravel().tolist()}
    found = np.array(call(window, "prepare", f"m.prepared(a[0], {height}, {width})", given))
    wanted = prepared(grey, height, width).clip(0, 255)
    assert found.shape == (height, width)
    assert np.abs(found - wanted).max() <= 0.5 + 1e-6
    assert found.max() > 60


def test_the_ink_fills_twenty_pixels_around_the_middle(window: Browser) -> None:
    grey = np.zeros((280, 280))
    grey[30:230, 200:240] = 255.0  # a bar, 200 high, at the side
    given = {"width": 280, "height": 280, "values": grey.ravel().tolist()}
    found = np.array(call(window, "prepare", "m.prepared(a[0], 28, 28)", given))
    assert np.flatnonzero(found.sum(axis=1)).tolist() == list(range(4, 24))
    assert np.flatnonzero(found.sum(axis=0)).tolist() == [12, 13, 14, 15]
    assert (found[4:24, 12:16] == 255).all()


def test_an_empty_pad_gives_nothing(window: Browser) -> None:
    given = {"width": 9, "height": 9, "values": [23] * 81}
    assert call(window, "prepare", "m.prepared(a[0], 28, 28)", given) is None


def test_dark_ink_on_paper_becomes_light_ink(window: Browser) -> None:
    paper = np.full((20, 20), 230.0)
    paper[8:12, 8:12] = 30.0
    found = []
    for image in (paper, 255 - paper):
        given = {"width": 20, "height": 20, "values": image.ravel().tolist()}
        ink = call(window, "prepare", "[...m.asInk(a[0]).values]", given)
        found.append(np.array(ink).reshape(20, 20))
    for ink in found:
        assert np.allclose(ink[8:12, 8:12], 255)
        assert ink.sum() == pytest.approx(16 * 255)


# --- the decision --------------------------------------------------------------------------------


def test_it_decides_as_the_policy_does(window: Browser) -> None:
    rng = np.random.default_rng(0)
    doubts, levels = rng.uniform(size=(2, 400))
    scores = np.round(rng.normal(size=400), 1)
    known = Readings(scores, doubts, np.zeros(400, int), 1 - doubts, rng.uniform(size=400) < doubts)
    policy = Policy.from_readings(known, Goal(false_alarm=0.1, coverage=0.8))
    plain = {"threshold": policy.threshold, "level": policy.level, "least_level": 1 / 201}
    wanted, given = [], []
    equal = policy.decide(known).p_value[:10]  # a p-value that is the level is unfamiliar
    for level in (1 / 201, 0.1, *equal[equal < 1], *levels[:20].clip(0.01)):
        decisions = policy.at(float(level)).decide(known)
        wanted += [VERDICTS[each] for each in decisions.verdict]
        pairs = zip(decisions.p_value.tolist(), doubts.tolist(), strict=True)
        given += [[{"p_value": p, "doubt": doubt}, float(level)] for p, doubt in pairs]
    found = call(
        window, "decide", "a[0].map(([p, level]) => m.decide(p, a[1], level))", given, plain
    )
    assert found == wanted
    assert set(wanted) == set(VERDICTS)


def test_without_a_limit_all_that_is_familiar_is_accepted(window: Browser) -> None:
    policy = {"threshold": None, "level": 0.05, "least_level": 0.01, "facts": {"coverage": 0.9}}
    found = [
        call(window, "decide", "m.decide(a[0], a[1], 0.05)", {"p_value": p, "doubt": 0.9}, policy)
        for p in (0.05, 0.06)
    ]
    assert found == ["unfamiliar", "accept"]
    nothing = policy | {"facts": {"coverage": 0}}
    given = {"p_value": 0.5, "doubt": 0.0}
    assert call(window, "decide", "m.decide(a[0], a[1], 0.05)", given, nothing) == "abstain"
    assert call(window, "decide", "m.decide(a[0], null, 0.05)", given) is None


def test_the_slider_has_the_policys_own_level_and_grows_evenly(window: Browser) -> None:
    policy = {"level": 0.05, "least_level": 1 / 2501}
    script = "Array.from({length: m.STEPS + 1}, (_, step) => m.levelAt(step, a[0]))"
    levels = np.array(call(window, "decide", script, policy))
    assert levels[0] == pytest.approx(1 / 2501)
    assert levels[-1] == 0.5
    assert (levels == 0.05).sum() == 1
    assert (np.diff(levels) > 0).all()
    assert np.diff(np.log(levels)).std() < 0.002


# --- pictures ------------------------------------------------------------------------------------


def test_the_rank_among_quantiles(window: Browser) -> None:
    data = np.random.default_rng(0).normal(size=20_000)
    quantiles = np.quantile(data, np.linspace(0, 1, 201)).tolist()
    for value in (-9.0, -1.3, 0.0, 0.4, 2.2, 9.0):
        found = call(window, "distribution", "m.rank(a[0], a[1])", quantiles, value)
        assert found == pytest.approx((data < value).mean(), abs=0.003)


def test_the_hill_is_a_density_of_the_quantiles(window: Browser) -> None:
    quantiles = stats.norm(1, 2).ppf((np.arange(201) + 0.5) / 201)
    curve = np.array(call(window, "distribution", "m.density(a[0], -7, 9)", quantiles.tolist()))
    x, height = curve.T
    height /= height.sum() * (x[1] - x[0])
    assert np.abs(height - stats.norm(1, 2).pdf(x)).max() < 0.012


def test_dots_are_draws_from_the_dirichlets(window: Browser) -> None:
    heads = [
        {"weight": 0.75, "evidence": 30.0, "probs": [0.6, 0.1, 0.2, 0.1]},
        {"weight": 0.25, "evidence": 1.5, "probs": [0.1, 0.5, 0.2, 0.2]},
    ]
    detail = {"heads": heads, "rho": 0.5, "alpha": [1, 2, 3, 4]}
    found = call(window, "simplex", "m.draws(a[0], [0, 1, 2], 8000)", detail)
    for index, head in enumerate(heads):
        alpha = np.array(head["probs"][:3]) * head["evidence"] * 0.5  # type: ignore[index]
        total = alpha.sum()
        mean = alpha / total
        shares = np.array([each["share"] for each in found if each["head"] == index])
        assert len(shares) == 8000 * head["weight"]  # type: ignore[operator]
        assert np.allclose(shares.sum(axis=1), 1)
        assert np.abs(shares.mean(axis=0) - mean).max() < 0.025
        assert np.allclose(shares.var(axis=0), mean * (1 - mean) / (total + 1), rtol=0.12)


def test_a_vanishing_concentration_has_draws_too(window: Browser) -> None:
    head = {"weight": 1, "evidence": 1e-9, "probs": [0.5, 0.3, 0.2]}
    found = call(window, "simplex", "m.draws(a[0], [0, 1, 2], 50)", {"heads": [head], "rho": 1e-3})
    shares = np.array([each["share"] for each in found])
    assert np.isfinite(shares).all()
    assert np.allclose(shares.max(axis=1), 1)  # all in the corners


@pytest.mark.parametrize(
    ("goal", "threshold", "asks"),
    [
        ("false_alarm=0.05", None, False),
        ("youden", None, False),
        ("false_alarm=0.05", 0.2, True),
        ("false_alarm=0.05,risk=0.02,delta=0.1", None, True),
        ("false_alarm=0.05,coverage=0.9", 0.3, True),
        ("error=1,unfamiliar=5,abstain=0.1,prevalence=0.02", None, True),
    ],
)
def test_the_page_knows_whether_clarity_is_asked(
    window: Browser, goal: str, threshold: float | None, asks: bool
) -> None:
    policy = {"goal": goal, "threshold": threshold}
    assert call(window, "decide", "m.asksClarity(a[0])", policy) == asks
    assert Goal.parse(goal).asks_clarity == (asks and threshold != 0.2)
    why = call(window, "words", "m.decision('accept', 'a 7', a[0]).why", policy)
    assert ("sure enough" in why) == asks


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.43, "Of 100 ordinary digits, about 43 look at least this strange."),
        (0.034, "Of 100 ordinary digits, about 3 look at least this strange."),
        (0.0104, "Of 100 ordinary digits, about 1 looks at least this strange."),
        (0.0036, "Of 1,000 ordinary digits, about 4 look at least this strange."),
        (1 / 2501, "Not one of the 2,500 ordinary digits kept for comparison looks this strange."),
    ],
)
def test_a_p_value_in_words(window: Browser, p: float, text: str) -> None:
    policy = {"least_level": 1 / 2501, "calibration": 2500}
    assert call(window, "words", "m.strangeness(a[0], a[1], 'digits')", p, policy) == text


def test_a_p_value_within_a_small_class_says_nothing_of_all(window: Browser) -> None:
    """Of 50 of its class 4 look as strange: that p-value is less than the least of another."""
    policy = {"least_level": 1 / 11, "calibration": 60}
    said = call(window, "words", "m.strangeness(a[0], a[1], 'rows')", 5 / 51, policy)
    assert said == "Of 100 ordinary rows, about 10 look at least this strange."
    said = call(window, "words", "m.strangeness(a[0], a[1], 'rows')", 2 / 51, policy)
    assert said == "Of 100 ordinary rows, about 4 look at least this strange."


@pytest.mark.parametrize(
    ("names", "shape", "noun"),
    [
        ("0123456789", [1, 28, 28], "digits"),
        ("0123456789", [3, 32, 32], "images"),
        ("01", [1, 28, 28], "images"),
        ("abcdefghij", [1, 28, 28], "images"),
    ],
)
def test_what_ordinary_inputs_are_called(
    window: Browser, names: str, shape: list[int], noun: str
) -> None:
    model = {"classes": [*names], "input": {"kind": "image", "shape": shape}}
    assert call(window, "words", "m.nouns(a[0])", model) == noun


def test_shares_are_honest_at_both_ends(window: Browser) -> None:
    given = [0, 1e-5, 0.0123, 0.5, 0.987, 0.9962, 0.99999, 1, None]
    wanted = ["0%", "<0.1%", "1.2%", "50%", "99%", "99.6%", ">99.9%", "100%", "–"]
    assert call(window, "words", "a[0].map(m.percent)", given) == wanted


def test_a_promise_holds_at_its_own_level_alone(window: Browser) -> None:
    policy = {"level": 0.05, "goal": "false_alarm=0.05,risk=0.005,delta=0.1"}
    at, off = (call(window, "words", "m.promise(a[0], a[1])", policy, x) for x in (0.05, 0.051))
    assert at == (
        "Promised at this rate: at most 0.5% of the accepted ordinary inputs are wrong, with a "
        "certainty of 90%."
    )
    assert "tested at 5% only" in off
    assert call(window, "words", "m.promise(a[0], 0.05)", {"goal": "false_alarm=0.05"}) == ""


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("1,2.5,-3e2", [1, 2.5, -300]),
        ("1\t2\t3\r\n", [1, 2, 3]),
        (" [1, 2, 3] ", [1, 2, 3]),
        ("a;b;c\n4;5;6\n7;8;9", [4, 5, 6]),
        ("1 2   3", [1, 2, 3]),
        ("1,,3", [1, None, 3]),
        ("", []),
    ],
)
def test_the_numbers_of_a_text(window: Browser, text: str, row: list[float | None]) -> None:
    found = call(window, "rows", "m.numbersOf(a[0]).map(v => isNaN(v) ? null : v)", text)
    assert found == row


def test_an_array_is_read_over_its_lines_and_brackets(window: Browser) -> None:
    assert call(window, "rows", "m.numbersOf(a[0], true)", "[[1, 2],\n [3, 4]]\n") == [1, 2, 3, 4]


def test_a_flat_list_takes_the_shape_of_the_model(window: Browser) -> None:
    found = call(window, "rows", "m.shaped(a[0], [2, 3, 1])", [1, 2, 3, 4, 5, 6])
    assert found == [[[1], [2], [3]], [[4], [5], [6]]]
