"""A data folder for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and no mirror."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("GEMFI_DATA", str(folder))
    monkeypatch.delenv("GEMFI_MIRROR", raising=False)
    return folder
