"""The command line: one function a command, here or in a file of its own beside this.

To add a command, write the function (its docstring and arguments become `--help`) and enter it in
`COMMANDS`, or in the table of its group.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import tyro

from gemfi._version import __version__
from gemfi.cli.bench import bench, report
from gemfi.cli.bundles import bundle, show
from gemfi.cli.data import DATA_COMMANDS
from gemfi.cli.export import export
from gemfi.cli.methods import methods
from gemfi.cli.output import printable_output
from gemfi.cli.parsing import parse
from gemfi.cli.predict import predict
from gemfi.cli.runs import evaluate, train
from gemfi.cli.serve import serve
from gemfi.demo import command
from gemfi.errors import CheckFailedError, GemfiError, GemfiWarning
from gemfi.printable import printable
from gemfi.training.interrupt import Terminated, terminable


def demo(
    out: str = "demo-out", seed: int = 0, json: str | None = None, *, quick: bool = False
) -> None:
    """Train on digits and toy data, print a table, write figures and a report.

    Softmax, EDL, GEM-CORE, GEM-MIX and GEM-FI learn the digits 0 to 6 and meet 8, 9 and synthetic
    images; EDL, DAEDL and GEM-FI learn two toys. Nothing is downloaded.

    Args:
        out: folder for the figures and report.html; it is created.
        seed: of weights and training.
        json: also write the numbers to this file.
        quick: fewer epochs and so a coarser picture, in seconds.
    """
    command.main(out=out, seed=seed, json_file=json, quick=quick)


def data(arguments: Annotated[tuple[str, ...], tyro.conf.Positional] = ()) -> None:
    """List, fetch, verify, describe and corrupt data sets: see gemfi data --help."""
    _run(["data", *arguments])  # `_run` itself goes there, so that options pass too


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "bundle": bundle,
    "show": show,
    "export": export,
    "serve": serve,
    "bench": bench,
    "report": report,
    "data": data,
    "methods": methods,
}

GROUPS: Final[Mapping[str, tuple[str, Mapping[str, Callable[..., None]]]]] = {
    "data": ("The data sets of the paper, and corrupted copies of them.", DATA_COMMANDS),
}
"""Commands with commands of their own: a description and their table."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code.

    0; 1 for a check that failed; 2 for bad input; 130 after Ctrl-C, and 143 after SIGTERM.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"gemfi {__version__}")
        return 0
    try:
        with terminable(), warnings_in_one_line():
            _run(arguments)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (GemfiError, OSError) as error:
        print(f"gemfi: error: {printable(str(error))}", file=sys.stderr)
        return 1 if isinstance(error, CheckFailedError) else 2
    except KeyboardInterrupt as error:
        print("gemfi: stopped", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
    return 0


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Warnings of gemfi as one line on standard error each."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, GemfiWarning):
            print(f"gemfi: warning: {printable(str(message))}", file=sys.stderr)
        else:
            usual(message, category, *rest)

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _run(arguments: list[str]) -> None:
    prog, text = "gemfi", "Single-pass uncertainty for PyTorch classifiers."
    commands: Mapping[str, Callable[..., None]] = COMMANDS
    if arguments and arguments[0] in GROUPS:
        prog = f"gemfi {arguments[0]}"
        text, commands = GROUPS[arguments[0]]
        arguments = arguments[1:]
    call = parse(commands, arguments, prog, text)
    with printable_output():
        call()
