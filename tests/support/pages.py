"""What a person does on the page of the server, and what they see."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from support.browser import Browser, Point

Strokes = list[list[Point]]
"""Lines of a drawing, with points in 0 to 1."""

SEVEN: Strokes = [[(0.27, 0.22), (0.5, 0.2), (0.72, 0.2), (0.6, 0.42), (0.52, 0.6), (0.46, 0.86)]]
MESSAGE = "#problem:not([hidden])"
ONE: Strokes = [[(0.53, 0.16), (0.52, 0.4), (0.5, 0.6), (0.48, 0.86)]]


def opened(window: Browser, url: str) -> Browser:
    """The page as somebody opens it first."""
    window.complaints.clear()
    window.requests.clear()
    window.window(1280, 800)
    window.prefer("light", motion="reduce")
    window.open(url)
    return window


def text(page: Browser, selector: str) -> str:
    """What is to be read there; nothing if it is hidden."""
    found: str = page.run(
        f"(e => e && e.checkVisibility() ? e.innerText : '')"
        f"(document.querySelector({json.dumps(selector)}))"
    )
    return found


def is_seen(page: Browser, selector: str) -> bool:
    return bool(
        page.run(f"Boolean(document.querySelector({json.dumps(selector)})?.checkVisibility())")
    )


def says(page: Browser, word: str, label: str | None = None) -> None:
    """Wait for a verdict."""
    wanted = f"document.querySelector('#word').textContent === {json.dumps(word)}"
    if label is not None:
        wanted += f" && document.querySelector('#label b').textContent === {json.dumps(label)}"
    page.wait(f"!document.querySelector('#verdict').hidden && {wanted}")


def on_pad(page: Browser, strokes: Strokes) -> Strokes:
    """Points of the window for points in 0 to 1, with those between them."""
    x, y, side = page.run(
        "(b => [b.x, b.y, b.width])(document.querySelector('#pad').getBoundingClientRect())"
    )
    found = []
    for stroke in strokes:
        at = np.linspace(0, len(stroke) - 1, 6 * len(stroke))
        along = [np.interp(at, range(len(stroke)), axis) for axis in np.array(stroke).T]
        found.append([(x + side * u, y + side * v) for u, v in zip(*along, strict=True)])
    return found


def draw(page: Browser, strokes: Strokes) -> None:
    for stroke in on_pad(page, strokes):
        page.drag(stroke)


def press(page: Browser, key: str, times: int = 1) -> None:
    codes = {"ArrowDown": 40, "ArrowRight": 39, "ArrowLeft": 37, " ": 32, "Tab": 9, "Enter": 13}
    codes |= {"Delete": 46, "Backspace": 8, "Home": 36, "End": 35}
    for _ in range(times):
        page.press(key, codes[key])


def image_of(path: Path, strokes: Strokes, *, ink: int, paper: int) -> Path:
    """Strokes as a picture, as large as MNIST has them."""
    image = Image.new("L", (280, 280), paper)
    pen = ImageDraw.Draw(image)
    for stroke in strokes:
        pen.line([(280 * x, 280 * y) for x, y in stroke], fill=ink, width=22, joint="curve")
    image.save(path)
    return path


def expected(page: Browser, status: str) -> None:
    """The browser's own note of a failed request is no complaint of the page."""
    page.complaints[:] = [each for each in page.complaints if status not in each]
