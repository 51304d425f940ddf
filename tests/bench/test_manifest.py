"""Every table and figure of the paper has something that stands for it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from gemfi_bench import tables
from gemfi_bench.figures import FIGURES, PARENT
from gemfi_bench.manifest import PAPER_FIGURES, PAPER_TABLES, file_stem
from gemfi_bench.tables import TABLES

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


def test_every_table_has_its_words_and_no_others_are_kept() -> None:
    path = Path(tables.__file__).with_name("words.toml")
    words = tomllib.loads(path.read_text(encoding="utf-8"))
    assert set(words) - {"shared"} == set(TABLES)


def test_panels_are_of_figures_that_exist() -> None:
    assert set(PARENT.values()) <= set(FIGURES)


def test_files_have_names_that_every_system_takes() -> None:
    for label in (*PAPER_TABLES, *PAPER_FIGURES):
        assert re.fullmatch(r"[\w.-]+", file_stem(label))
