"""`gemfi methods` and the tables in the docs: everything that there is, from one source."""

from __future__ import annotations

import pytest

from gemfi.cli import main
from gemfi.detectors import DETECTORS
from gemfi.methods import METHODS
from gemfi.methods.gem_paper import meaning, presets
from support.method_tables import detector_table, method_table, preset_table


def test_the_terminal_list_fits_and_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    for name in (*METHODS, *DETECTORS, *presets()):
        assert f"\n{name}  " in text
    for info in (each.info for each in (*METHODS.values(), *DETECTORS.values())):
        assert info.summary in words
        assert f"{info.paper} ({info.venue} {info.year})" in words
    for name in presets():
        assert meaning(name) in words


def test_a_row_for_each_in_markdown() -> None:
    for table, known in (
        (method_table(), METHODS),
        (detector_table(), DETECTORS),
        (preset_table(), presets()),
    ):
        rows = table.splitlines()[2:]
        assert [row.split("`")[1] for row in rows] == list(known)
        assert len({row.count("|") for row in table.splitlines()}) == 1
