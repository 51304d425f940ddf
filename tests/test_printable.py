"""Texts that are safe to print."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemfi._text import printable
from gemfi.errors import CheckpointError, GemfiError, InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ä 手 é 😀 × ≤", "ä 手 é 😀 × ≤"),
        ("\x1b]0;x\x07", r"\u001b]0;x\u0007"),
        ("\u202eabc\u2066\u200f", r"\u202eabc\u2066\u200f"),
        ("a\r\nb\tc\x7f\x9b", r"a\u000d\u000ab\u0009c\u007f\u009b"),
        ("no\u00a0break\u202fhere", "no\u00a0break\u202fhere"),
        ("\udcff \U000e0041", r"\udcff \U000e0041"),
    ],
)
def test_what_steers_is_shown(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert str(InputError(text)) == str(CheckpointError(text)) == expected


@given(st.text())
def test_nothing_unprintable_is_left(text: str) -> None:
    found = printable(text, keep="\n")
    assert all(each.isprintable() or each in "\n " or each.isspace() for each in found)
    assert printable(found, keep="\n") == found
    found.encode()


@given(st.text())
def test_json_stays_json(text: str) -> None:
    assert json.loads(printable(json.dumps(text))) == text


def test_an_error_without_a_text_is_empty() -> None:
    assert str(GemfiError()) == ""
    assert GemfiError("a", 1).args == ("a", 1)
