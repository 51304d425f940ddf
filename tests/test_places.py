"""Where data and runs live: where the platform has them, or where two variables say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest

from gemfi._files import data_root, runs_root
from gemfi.errors import InputError


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMFI_DATA", "GEMFI_RUNS", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_where_the_platform_has_them() -> None:
    assert data_root() == platformdirs.user_cache_path("gemfi", False) / "data"
    assert runs_root() == platformdirs.user_data_path("gemfi", False) / "runs"


def test_the_customs_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/fast")
    monkeypatch.setenv("XDG_DATA_HOME", "/large")
    assert data_root() == Path("/fast/gemfi/data")
    assert runs_root() == Path("/large/gemfi/runs")


@pytest.mark.parametrize(("name", "root"), [("GEMFI_DATA", data_root), ("GEMFI_RUNS", runs_root)])
def test_the_variables_go_before_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, root: Callable[[], Path]
) -> None:
    monkeypatch.setenv("HOME", "/people/me")
    for value, expected in (("/mine/here", "/mine/here"), ("~/x", "/people/me/x"), ("rel", "rel")):
        monkeypatch.setenv(name, value)
        assert root() == Path(expected)
    (tmp_path / "file").touch()
    for value, words in (("file", "which is a file"), ("file/below", "is a file; name a folder")):
        monkeypatch.setenv(name, str(tmp_path / value))
        with pytest.raises(InputError, match=words):
            root()
