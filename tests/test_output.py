"""What reaches the terminal."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest
from tqdm import tqdm

from gemfi._text import PrintableStream, printable_output
from gemfi.cli import main
from gemfi.serve.logs import JsonLines

STEERING = "\x1b]0;x\x07\u202e\x7f"
SHOWN = r"\u001b]0;x\u0007\u202e\u007f"


def test_both_streams_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    with printable_output():
        print(f"a{STEERING}\n\tb")
        print(f"c\r{STEERING}", file=sys.stderr)
        sys.stdout.writelines([STEERING, "\n"])
    captured = capsys.readouterr()
    assert captured.out == f"a{SHOWN}\n\tb\n{SHOWN}\n"
    assert captured.err == f"c\\u000d{SHOWN}\n"
    print(STEERING)
    assert capsys.readouterr().out == f"{STEERING}\n"  # as before


def test_progress_bars_are_left_alone() -> None:
    def drawn(stream: object) -> None:
        with (
            tqdm(range(3), file=stream, ncols=40, desc="outer", mininterval=0) as outer,  # type: ignore[call-overload]
            tqdm(
                range(2), file=stream, ncols=40, desc="inner", mininterval=0, leave=False
            ) as inner,  # type: ignore[call-overload]
        ):
            for bar in (outer, inner):
                bar.format_dict["elapsed"] = 0
                bar.update(1)

    plain, safe = io.StringIO(), io.StringIO()
    drawn(plain)
    drawn(PrintableStream(safe))
    assert safe.getvalue().count("\r") == plain.getvalue().count("\r") > 2
    assert safe.getvalue().count("\x1b[A") == plain.getvalue().count("\x1b[A") > 0
    assert "\\u" not in safe.getvalue()


def test_a_line_of_the_log_stays_json() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, STEERING, None, None)
    stream = io.StringIO()
    print(JsonLines().format(record), file=PrintableStream(stream))  # type: ignore[call-overload]
    assert stream.getvalue().strip().isprintable()
    assert json.loads(stream.getvalue())["event"] == STEERING


def test_a_file_name_in_an_error_of_the_system(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(f"no {STEERING}\n")

    monkeypatch.setattr("gemfi.cli._run", fail)
    assert main(["show", "x"]) == 2
    assert capsys.readouterr().err == f"gemfi: error: no {SHOWN}\\u000a\n"
