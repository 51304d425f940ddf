"""Where data and runs live, on each platform."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gemfi.errors import InputError
from gemfi.places import data_root, runs_root

VARIABLES = ("GEMFI_DATA", "GEMFI_RUNS", "XDG_CACHE_HOME", "XDG_DATA_HOME", "LOCALAPPDATA")


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of /people/me, and nothing in the environment that moves folders."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/people/me")
    monkeypatch.setattr(Path, "home", lambda: Path("/people/me"))
    monkeypatch.setattr(sys, "platform", "linux")


def test_linux() -> None:
    assert data_root() == Path("/people/me/.cache/gemfi/data")
    assert runs_root() == Path("/people/me/.local/share/gemfi/runs")


def test_linux_with_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/fast")
    monkeypatch.setenv("XDG_DATA_HOME", "/large")
    assert data_root() == Path("/fast/gemfi/data")
    assert runs_root() == Path("/large/gemfi/runs")


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_what_xdg_says_to_ignore(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("XDG_DATA_HOME", value)
    assert data_root() == Path("/people/me/.cache/gemfi/data")
    assert runs_root() == Path("/people/me/.local/share/gemfi/runs")


def test_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("XDG_CACHE_HOME", "/fast")  # not a custom there
    assert data_root() == Path("/people/me/Library/Caches/gemfi/data")
    assert runs_root() == Path("/people/me/Library/Application Support/gemfi/runs")


def test_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert data_root() == Path("/people/me/AppData/Local/gemfi/data")
    assert runs_root() == Path("/people/me/AppData/Local/gemfi/runs")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert data_root() == Path("/local/gemfi/data")
    assert runs_root() == Path("/local/gemfi/runs")


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize(("name", "root"), [("GEMFI_DATA", data_root), ("GEMFI_RUNS", runs_root)])
def test_the_variables_go_before_all(
    monkeypatch: pytest.MonkeyPatch, platform: str, name: str, root: Callable[[], Path]
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    before = root()
    monkeypatch.setenv("XDG_CACHE_HOME", "/fast")
    monkeypatch.setenv("XDG_DATA_HOME", "/large")
    monkeypatch.setenv(name, "/mine/here")
    assert root() == Path("/mine/here")
    monkeypatch.setenv(name, "~/here")
    assert root() == Path("/people/me/here")
    monkeypatch.setenv(name, "relative")
    assert root() == Path("relative")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv(name, "")  # as if it were not set
    assert root() == before


@pytest.mark.parametrize(("name", "root"), [("GEMFI_DATA", data_root), ("GEMFI_RUNS", runs_root)])
def test_a_file_is_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, root: Callable[[], Path]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    monkeypatch.setenv(name, str(file))
    with pytest.raises(InputError) as caught:
        root()
    assert str(caught.value) == f"{name} is {file}, which is a file; name a folder"
    monkeypatch.setenv(name, str(file / "below"))
    with pytest.raises(InputError) as caught:
        root()
    assert str(caught.value) == f"{name} is {file / 'below'}, but {file} is a file; name a folder"


def test_asking_makes_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEMFI_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GEMFI_RUNS", str(tmp_path / "runs"))
    data_root()
    runs_root()
    assert list(tmp_path.iterdir()) == []
