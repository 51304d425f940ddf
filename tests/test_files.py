"""JSON of strangers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemfi.files import DEEPEST, strict_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(VALUES)
def test_ordinary_json_is_read(value: Any) -> None:
    assert strict_json(json.dumps(value)) == value
    assert strict_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9223372036854775808", "an integer of 19 digits is beyond 64 bits"),
        ("-9223372036854775809", "beyond 64 bits"),
        ("[1" + "0" * 9000 + "]", "an integer of 9001 digits"),
        ("1e400", "the number 1e400 is too large"),
        ("[NaN]", "NaN is no number of JSON"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ("[" * 34 + "]" * 34, f"nested deeper than {DEEPEST}"),
        ("[" * 99_999 + "]" * 99_999, f"nested deeper than {DEEPEST}"),
        ('{"a":' * 34 + "1" + "}" * 34, f"nested deeper than {DEEPEST}"),
        (r'["\ud800"]', "surrogates not allowed"),
        (r'{"\ud800": 1}', "surrogates not allowed"),
        ("{", "Expecting"),
        (b"\xff\xfe\xfd", "decode"),
    ],
)
def test_what_nobody_can_use_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strict_json(text)


def test_the_deepest_is_read() -> None:
    strict_json("[" * DEEPEST + "]" * DEEPEST)
