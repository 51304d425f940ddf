"""Numbers in JSON: the quick way and the careful way agree."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from gemfi.backbones import Tokens
from gemfi.serve.bodies import inputs_of_json, to_inputs
from gemfi.serve.formats import InputFormat
from gemfi.serve.schemas import ProblemError
from gemfi.serve.settings import Settings

ROW = InputFormat("row", (2,), "float32")
BYTES = InputFormat("image", (1, 1, 2), "uint8")
TEXT = InputFormat("text", (3,), "int64", Tokens(10))
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.floats()
    | st.just(10**400)
    | st.just("1"),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=12,
)


def read(value: Any, form: InputFormat, field: str = "inputs") -> Any:
    body = json.dumps({field: value}, allow_nan=True).encode()
    inputs, name = inputs_of_json(body, form, Settings(max_inputs=100))
    assert name == field
    return inputs


def fits(value: Any, form: InputFormat) -> bool:
    """What the format says, the slow way."""
    if not isinstance(value, list) or not value:
        return False
    if form.tokens is not None and len({len(x) if isinstance(x, list) else 0 for x in value}) > 1:
        return False
    return all(_fits(each, form, form.shape) for each in value)


def _fits(value: Any, form: InputFormat, shape: tuple[int, ...]) -> bool:
    if shape:
        if not isinstance(value, list):
            return False
        right = 1 <= len(value) <= shape[0] if form.tokens else len(value) == shape[0]
        return right and all(_fits(each, form, shape[1:]) for each in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if form.dtype == "uint8":
        return value in range(256)
    return value in range(10) if form.tokens else abs(value) <= float(np.finfo(np.float32).max)


@pytest.mark.parametrize("form", [ROW, BYTES, TEXT], ids=lambda form: form.kind)
@given(value=ANY)
def test_exactly_what_fits_is_read(form: InputFormat, value: Any) -> None:
    if fits(value, form):
        found = read(value, form)
        assert found.dtype == form.dtype
        assert np.array_equal(found, np.array(value, form.dtype))
        return
    with pytest.raises(ProblemError) as caught:
        read(value, form)
    assert caught.value.status == 422


@given(
    value=st.lists(
        st.lists(
            st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2
        ),
        min_size=1,
        max_size=5,
    )
)
def test_floats_are_read_to_the_bit(value: list[list[float]]) -> None:
    assert np.array_equal(read(value, ROW), np.array(value, np.float32))


def test_one_input() -> None:
    assert read([1, 2.5], ROW, "input").tolist() == [[1, 2.5]]


def test_strings_cannot_take_much_memory() -> None:
    """NumPy would make room for the longest text in every place: 40 GB here."""
    value = [["x" * 100_000, "y"]] + [["", ""]] * 50_000
    with pytest.raises(ProblemError) as caught:
        to_inputs(value, "inputs", ROW)
    assert (caught.value.code, caught.value.where) == ("not_a_number", "inputs[0][0]")
    assert len(caught.value.message) < 200


def test_texts_of_different_lengths() -> None:
    with pytest.raises(ProblemError, match="one length"):
        read([[1], [1, 2]], TEXT)
    assert read([[1, 2]], TEXT).tolist() == [[1, 2]]
    with pytest.raises(ProblemError, match="1 to 3 token ids from 0 to 9"):
        read([[1, 2, 3, 4]], TEXT)
    with pytest.raises(ProblemError, match="out of range"):
        read([[10]], TEXT)


def test_duplicate_keys_are_harmless() -> None:
    body = b'{"inputs": [["a", 2]], "inputs": [[1, 2]]}'
    assert inputs_of_json(body, ROW, Settings())[0].tolist() == [[1, 2]]
