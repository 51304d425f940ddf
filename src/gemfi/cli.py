"""The command line: `gemfi demo` and `gemfi methods`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import tyro

from gemfi._version import __version__
from gemfi.demo import command
from gemfi.errors import GemfiError
from gemfi.methods import table


def demo(
    out: str = "demo-out", seed: int = 0, json: str | None = None, *, quick: bool = False
) -> None:
    """Train on digits and toy data, print a table, write figures and a report.

    Softmax, EDL, GEM-CORE, GEM-MIX and GEM-FI learn the digits 0 to 6 and meet 8, 9 and synthetic
    images; EDL and GEM-FI learn two toys. Nothing is downloaded.

    Args:
        out: folder for the figures and report.html; it is created.
        seed: of weights and training.
        json: also write the numbers to this file.
        quick: fewer epochs and so a coarser picture, in seconds.
    """
    command.main(out=out, seed=seed, json_file=json, quick=quick)


def methods() -> None:
    """List the methods with their papers and scores."""
    print(table.render("text"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 for bad input, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"gemfi {__version__}")
        return 0
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"demo": demo, "methods": methods},
            prog="gemfi",
            description="Single-pass uncertainty for PyTorch classifiers.",
            args=arguments,
        )
    except (GemfiError, OSError) as error:
        print(f"gemfi: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gemfi: stopped", file=sys.stderr)
        return 130
    return 0
