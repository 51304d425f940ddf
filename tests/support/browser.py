"""A headless Chromium, driven over its own protocol through two pipes: no other package needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-quic",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
    "--disable-extensions", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(each), fcntl.F_DUPFD_CLOEXEC, 10) for each in sys.argv[1:3]]
for end, descriptor in zip(ends, (3, 4)):  # on which the browser speaks its protocol
    os.dup2(end, descriptor)
os.execv(sys.argv[3], sys.argv[3:])
"""
Point = tuple[float, float]
PATIENCE = 60.0  # seconds for an answer; a busy machine is slow


def chromium() -> str:
    """The program, or a skip that says how to get it."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs a browser: install Debian's package chromium")
    return found


class Browser:
    """One window. Everything that a page complains of or asks for is kept.

    Attributes:
        complaints: errors and warnings of the page's scripts, and violations of its policy.
        requests: addresses that it asked for, but those that hold their own data.
    """

    def __init__(self, profile: Path) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._count, self._buffer = 0, b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._loaded = 0
        self._session: str | None = None
        command = [chromium(), *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        hears, self._write = os.pipe()
        self._read, tells = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(hears), str(tells), *command],
            pass_fds=(hears, tells),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(hears)
        os.close(tells)

    def attach(self) -> None:
        """Take hold of the window and listen to it."""
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser, which writes its profile before it goes and takes its helpers along."""
        try:
            os.write(self._write, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
            self._process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._read)
            os.close(self._write)

    # -- the protocol ---------------------------------------------------------------------------

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        number = self._count
        self._hear_until(lambda: number in self._answers, method)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _hear_until(self, is_done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not is_done():
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"the browser did not answer: {what}"
            data = os.read(self._read, 1 << 20)
            assert data, f"the browser ended: {what}"
            *whole, self._buffer = (self._buffer + data).split(b"\0")
            for each in whole:
                self._take(json.loads(each))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        method, of = message["method"], message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(of["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and of["type"] in {"error", "warning", "assert"}:
            self.complaints.append(json.dumps(of["args"]))
        elif method == "Log.entryAdded" and of["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(of["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = of["request"]["url"]
            self.requests += [] if url.startswith("data:") else [url]

    # -- what a reader does ---------------------------------------------------------------------

    def open(self, address: str) -> None:
        """Go to a page and wait until all of it is there."""
        before = self._loaded
        self.call("Page.navigate", url=address)
        self._hear_until(lambda: self._loaded > before, address)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def window(self, width: int, height: int, *, phone: bool = False) -> None:
        """The size of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def prefer(self, theme: str = "", medium: str = "", *, motion: str = "") -> None:
        """What the system says of light, dark and motion, and `print` for the look on paper."""
        features = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    def press(self, key: str, code: int) -> None:
        """A key of the keyboard, by its name and its virtual code."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        about = {"key": key, "windowsVirtualKeyCode": code, "text": text}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **about)

    def click(self, selector: str) -> None:
        """The mouse on the middle of an element, which is brought into sight first."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _middle(self, selector: str) -> Point:
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return x, y

    def drag(self, points: Sequence[Point]) -> None:
        """The mouse goes down at the first point, along the others, and up at the last."""
        for index, (x, y) in enumerate([points[0], *points, points[-1]]):
            kind = {0: "mousePressed", len(points) + 1: "mouseReleased"}.get(index, "mouseMoved")
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1,
                clickCount=1,
            )  # fmt: skip

    def swipe(self, points: Sequence[Point]) -> None:
        """The same with a finger."""
        for index, (x, y) in enumerate(points):
            kind = "touchMove" if index else "touchStart"
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def drop(self, selector: str, *paths: Path) -> None:
        """Files, dropped on the middle of an element."""
        x, y = self._middle(selector)
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def offline(self, is_offline: bool) -> None:
        """Cut the network, or give it back."""
        self.call(
            "Network.emulateNetworkConditions", offline=is_offline, latency=0,
            downloadThroughput=-1, uploadThroughput=-1,
        )  # fmt: skip

    def wait(self, script: str) -> Any:
        """Ask until the answer is true."""
        end = time.monotonic() + PATIENCE
        while not (found := self.run(script)):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
        return found

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """What is seen, or the whole page, as a PNG file."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def pdf(self) -> bytes:
        """The page on paper."""
        found = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(found["data"])


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser for the length of a block.

    Args:
        profile: an empty folder for what it keeps.
    """
    found = Browser(profile)
    try:
        found.attach()
        yield found
    finally:
        found.close()
