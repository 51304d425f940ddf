"""Settings compared."""

from __future__ import annotations

from gemfi._config import described, differences


def test_differences_are_dotted() -> None:
    there = {"a": {"b": 1, "c": 2, "e": {}}, "f": [1]}
    here = {"a": {"b": 1, "c": 3, "e": {}}, "d": 4, "f": [1]}
    assert differences(there, here) == {"a.c": (2, 3), "d": (None, 4)}
    assert differences(here, here) == {}
    assert differences({"a": {}}, {"a": {"b": 1}}) == {"a.b": (None, 1), "a": ({}, None)}


def test_they_are_told_in_one_line_and_long_values_are_cut() -> None:
    found = {"a.c": (2, "x"), "d": (None, [7] * 99)}
    first, second = described(found).split("; ")
    assert first == 'a.c: 2 there, "x" here'
    assert second.startswith("d: null there, [7, 7,")
    assert second.endswith("… here")
    assert len(second) < 100
