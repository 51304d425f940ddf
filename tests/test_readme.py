"""The README tells the truth: its code runs, its table is the code's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemfi_bench import overview
from support.commands import Capture
from support.documents import code_blocks, run_block
from support.method_tables import detector_table, method_table, preset_table

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWS = {  # block of code, by its index -> what it prints, in this order
    0: (r"tensor\(", r"^(9|8)\d\.\d+$"),
    1: (r"9 steps, 3 epochs", r"validation NLL, .*: \S{3}"),
    2: (r"^\w+: label \d, confidence 0\.\d+, p = ", r"^True$"),
    3: (r"^\[.*\]$", r"^accept: label 0, "),
    4: (r"^\w+: label \d, confidence [01]\.\d+, p = ",),
}


def test_the_tables_of_methods_are_the_codes_own() -> None:
    assert method_table() in README
    docs = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    for table in (method_table(), detector_table(), preset_table()):
        assert table in docs


def test_the_tables_of_results_are_those_of_the_records() -> None:
    script = overview
    assert script.overview() in README, "python -m gemfi_bench.overview prints it"
    assert script.ledgers() in README, "python -m gemfi_bench.overview prints it"


def test_every_block_of_code_is_known_and_short() -> None:
    blocks = code_blocks(README)
    assert list(SHOWS) == list(range(len(blocks)))
    for block in blocks:
        assert len([line for line in block.splitlines() if line.strip()]) <= 12


@pytest.mark.parametrize("index", SHOWS)
def test_a_block_of_code_runs_alone(
    index: int, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of its own and with no name but those that it makes."""
    monkeypatch.chdir(tmp_path)
    run_block(code_blocks(README)[index], {}, f"README.md, block {index}")
    text = capsys.readouterr().out
    for pattern in SHOWS[index]:
        found = re.search(pattern, text, re.MULTILINE)
        assert found, f"no {pattern} in {text}"
        text = text[found.end() :]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
