"""Arguments that several commands have, and how a command is called with its arguments."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from gemfi.errors import InputError


def shown_as(metavar: str, hint: str = "") -> Any:
    """How the help shows an argument, and what it says of the default: nothing."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint)


Model = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Goal = Annotated[str | None, shown_as("GOAL")]
Backbone = Annotated[str | None, shown_as("MODULE:NAME")]
File = Annotated[str | None, shown_as("FILE")]
Folder = Annotated[str | None, shown_as("PATH")]
Ray = Annotated[str | None, shown_as("ADDRESS")]
Device = Annotated[str, shown_as("DEVICE", "(default: auto)")]


def check_target(option: str, path: Path) -> None:
    """Refuse a file that could not be written, before the work and not after it."""
    folder = path.resolve().parent
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder; give a file")
    if not folder.is_dir():
        raise InputError(f"{option} {path}: its folder does not exist")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{option} {path}: its folder cannot be written to")


def parse(command: Callable[..., None], arguments: Sequence[str], prog: str) -> Callable[[], None]:
    """The call that arguments ask for, not made yet; `--help` prints and exits.

    Args:
        command: a function, whose arguments and docstring are its options and its help.
        arguments: of the shell, after the command's name.
        prog: what the help calls the program.
    """

    @functools.wraps(command)
    def later(*given: Any, **named: Any) -> Any:
        return functools.partial(command, *given, **named)

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            call: Callable[[], None] = tyro.cli(later, prog=prog, args=arguments)
    except SystemExit as end:
        if not end.code:
            raise
        raise InputError(f"{one_line(said.getvalue())}; see {prog} --help") from None
    sys.stderr.write(said.getvalue())
    return call


def one_line(box: str) -> str:
    """What a box of tyro's says is wrong, without its frame, its title and its advice.

    Of several types that an argument might have had, None is not worth a word.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    framed = [line for line in plain.splitlines() if not line.startswith(("╭", "╰"))]
    lines = [line.strip("│ ") for line in framed]
    rules = [at for at, line in enumerate(lines) if line and not line.strip("─-")]
    if "╭" not in plain and rules:  # where the output is not UTF-8, a rule is below the title
        lines, rules = lines[rules[0] + 1 :], [at - rules[0] - 1 for at in rules[1:]]
    lines = lines[: rules[0]] if rules else lines  # what follows explains
    wrong = " ".join(" ".join(lines).split())
    wrong = re.sub(r"- <class 'NoneType'>: .*?(?=- <class|$)", "", wrong)
    wrong = re.sub(r"- <class '(\w+)'>: ", "", wrong).replace(" Got errors: ", " ")
    wrong = re.sub(r"\{None\}\||'None', |, 'None'", "", wrong)
    return wrong.strip().rstrip(".") or box.strip()
