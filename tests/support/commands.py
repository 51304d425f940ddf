"""What the tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemfi.cli import main

Capture = pytest.CaptureFixture[str]


def refused(arguments: list[str], capsys: Capture) -> str:
    """The one line that a command says of bad input, and nothing else."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("gemfi: error: ")
    return line


def printed(arguments: list[str], capsys: Capture) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def quiet(arguments: list[str], capsys: Capture) -> Path:
    """The folder of a run that is trained without words."""
    (folder,) = printed(["train", *arguments, "--quiet"], capsys).splitlines()
    return Path(folder)
