"""The code in the docs runs: the blocks of a page one after another, and nothing beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.documents import code_blocks, run_block

DOCS = Path(__file__).parents[1] / "docs"
NOT_RUN = {  # page -> blocks that read data sets with files, which tests/data does
    "data.md": (0, 1),
}
SLOW = {"attach.md"}  # it trains three networks
PAGES = [page.name for page in sorted(DOCS.glob("*.md")) if code_blocks(page.read_text("utf-8"))]


def test_only_pages_with_code_are_named() -> None:
    assert {*NOT_RUN, *SLOW} <= set(PAGES)


@pytest.mark.parametrize(
    "page",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PAGES],
)
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, Any] = {}
    for index, block in enumerate(code_blocks((DOCS / page).read_text(encoding="utf-8"))):
        if index not in NOT_RUN.get(page, ()):
            run_block(block, names, f"{page}, block {index}")
