"""Checks of settings: what passes, and what each refusal says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gemfi._config import check_choice, check_int, check_number, check_seed
from gemfi.errors import InputError


def test_what_is_allowed_passes() -> None:
    check_int("n", 3, 3)
    check_int("n", np.int64(4), 3)
    check_number("x", 0, 0, 1)
    check_number("x", np.float32(1), 0, 1)
    check_number("x", -5.0)
    check_choice("kind", "a", ("a", "b"))


@pytest.mark.parametrize("value", [2, 3.0, True, None, "3"])
def test_not_a_large_enough_integer(value: object) -> None:
    with pytest.raises(InputError, match=f"n must be an integer of at least 3, got {value!r}"):
        check_int("n", value, 3)


@pytest.mark.parametrize("value", [True, None, "1"])
def test_not_a_number(value: object) -> None:
    with pytest.raises(InputError, match=f"x must be a number, got {value!r}"):
        check_number("x", value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_numbers_are_finite(value: float) -> None:
    with pytest.raises(InputError, match=f"x must be finite, got {value}"):
        check_number("x", value)


@pytest.mark.parametrize("value", [0, 1, math.nan])
def test_open_and_closed_bounds(value: float) -> None:
    with pytest.raises(InputError, match=f"x must be above 0 and below 1, got {value}"):
        check_number("x", value, above=0, below=1)
    with pytest.raises(InputError, match=f"x must be at least 2 and at most 3, got {value}"):
        check_number("x", value, 2, 3)


def test_a_choice_lists_the_choices() -> None:
    with pytest.raises(InputError, match="kind must be one of a, b, got 'c'"):
        check_choice("kind", "c", ("a", "b"))


def test_seeds_end_where_torch_ends() -> None:
    check_seed("seed", 2**63 - 2)
    with pytest.raises(InputError, match=r"seed must be at most 2\*\*63 - 2, got 9"):
        check_seed("seed", 2**63 - 1)
    with pytest.raises(InputError, match="seed must be an integer of at least 0, got -1"):
        check_seed("seed", -1)
