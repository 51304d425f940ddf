"""The command line: one function a command, in a file beside this.

To add a command, write the function (its docstring and arguments become `--help`) and enter it in
`COMMANDS`. A command's module is imported when it is asked for.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from gemfi._text import printable, printable_output
from gemfi._version import __version__
from gemfi.cli.options import parse
from gemfi.errors import CheckFailedError, GemfiError, GemfiWarning, InputError
from gemfi.interrupt import Terminated, terminable

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "demo": ("gemfi_bench.demo:demo", "Train on digits and toys, and write a report."),
    "train": ("gemfi.cli.train:train", "Train a model on a task or on your own data."),
    "evaluate": ("gemfi_bench.side_by_side:evaluate", "Judge finished runs on test and OOD data."),
    "predict": ("gemfi.cli.predict:predict", "Label files, with uncertainties and verdicts."),
    "bundle": ("gemfi.cli.export:bundle", "Write a run into one file, with its policy."),
    "show": ("gemfi.cli.export:show", "Say what a run or a bundle is."),
    "export": ("gemfi.cli.export:export", "Write a model as ONNX, and check it."),
    "serve": ("gemfi.cli.serve:serve", "Answer over HTTP, with a page to try it on."),
    "bench": ("gemfi_bench.cli:bench", "Do the runs of a protocol, and render them."),
    "report": ("gemfi_bench.cli:report", "Render the tables and figures of a benchmark again."),
    "data list": ("gemfi_bench.data_sets.command:list_sets", "List the data sets."),
    "data fetch": ("gemfi_bench.data_sets.command:fetch", "Download data sets."),
    "data verify": ("gemfi_bench.data_sets.command:verify_sets", "Check the files of data sets."),
    "data info": (
        "gemfi_bench.data_sets.command:info",
        "Say what a data set is.",
    ),
    "data corrupt": ("gemfi_bench.corruptions.command:corrupt", "Write corrupted images."),
    "methods": ("gemfi.cli.methods:methods", "List methods, detectors and presets."),
}
"""Name -> where its function is, and what it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code.

    0; 1 for a check that failed; 2 for bad input; 130 after Ctrl-C, and 143 after SIGTERM.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
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
    if arguments == ["--version"]:
        print(f"gemfi {__version__}")
        return
    words = 2 if arguments[:1] == ["data"] else 1
    name = " ".join(arguments[:words])
    if name not in COMMANDS:
        _help(arguments)
        return
    module, _, function = COMMANDS[name][0].partition(":")
    call = parse(getattr(import_module(module), function), arguments[words:], f"gemfi {name}")
    with printable_output():
        call()


def _help(arguments: Sequence[str]) -> None:
    """What there is, for `--help`; for anything else an error that says where to find it."""
    group = "data" if arguments[:1] == ["data"] else ""
    prog, rest = (f"gemfi {group}", arguments[1:]) if group else ("gemfi", arguments)
    shown = {name: text for name, (_, text) in COMMANDS.items() if name.startswith(group)}
    if not rest or rest[0] not in {"-h", "--help"}:
        wrong = f"unknown command {rest[0]!r}." if rest else "which command?"
        known = ", ".join(name.removeprefix(f"{group} ") for name in shown)
        raise InputError(f"{wrong} Known: {known}; see {prog} --help")
    print(f"usage: {prog} COMMAND ...\n\nSingle-pass uncertainty for PyTorch classifiers.\n")
    wide = max(map(len, shown))
    for name, text in shown.items():
        print(f"  {name:<{wide}}  {text}")
    print(f"\nEach has a help of its own, such as: gemfi {next(iter(shown))} --help")
