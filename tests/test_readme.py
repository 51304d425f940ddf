"""The README tells the truth: its code runs, its table is the code's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemfi.methods.table import render

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_table_of_methods_is_the_codes_own() -> None:
    assert render("markdown") in README


def test_the_quick_start_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```", README)
    assert len([line for line in code.splitlines() if line.strip()]) <= 11
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own text
    auroc = float(capsys.readouterr().out.splitlines()[-1])
    assert auroc > 80


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (Path(__file__).parents[1] / target).exists(), target
