"""Every table and figure of the paper has something that stands for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemfi_bench import demo
from gemfi_bench.claims import CLAIMS
from gemfi_bench.figures import FIGURES, PARENT
from gemfi_bench.manifest import PAPER_FIGURES, PAPER_TABLES, file_stem
from gemfi_bench.tables import TABLES
from gemfi_bench.words import read_words

PAPER = Path(__file__).resolve().parents[2].parent / "shared" / "paper"


class TestAgainstThePaper:
    def test_no_label_is_missing(self) -> None:
        texts = [path.read_text(encoding="utf-8") for path in PAPER.glob("*.txt")]
        if not texts:
            pytest.skip("the paper's LaTeX is not beside the checkout")
        labels = re.findall(r"\\label\{(tab|fig):([^}]*)\}", texts[0])
        assert {name for kind, name in labels if kind == "tab"} == set(PAPER_TABLES)
        assert {name for kind, name in labels if kind == "fig"} == set(PAPER_FIGURES)


def test_every_table_of_the_paper_is_made() -> None:
    assert set(PAPER_TABLES) <= set(TABLES)


def test_every_figure_of_the_paper_is_made() -> None:
    assert set(PAPER_FIGURES) <= set(FIGURES) | set(PARENT)


@pytest.mark.parametrize(
    ("room", "said"),
    [
        ("tables", {*TABLES, "published", "published-audit"}),
        ("figures", {*FIGURES, "demo"}),
        ("claims", {claim.name.removesuffix(" (the paper's settings)") for claim in CLAIMS}),
    ],
)
def test_all_have_their_words_and_no_others_are_kept(room: str, said: set[str]) -> None:
    assert set(read_words(room)) - {"shared"} == said
    assert set(read_words("figures")["demo"]) == set(demo.FIGURES)


def test_panels_are_of_figures_that_exist() -> None:
    assert set(PARENT.values()) <= set(FIGURES)


def test_files_have_names_that_every_system_takes() -> None:
    for label in (*PAPER_TABLES, *PAPER_FIGURES):
        assert re.fullmatch(r"[\w.-]+", file_stem(label))
