"""Configurations: checks of values, plain values and back, differences."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pytest

from gemfi._config import (
    check_choice,
    check_int,
    check_number,
    check_seed,
    decode,
    described,
    differences,
    from_plain,
    to_plain,
    with_settings,
)
from gemfi.errors import InputError
from gemfi.methods import EDLConfig
from gemfi.outliers import VOS

# ---------------------------------------------------------------- checks of settings


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


# ---------------------------------------------------------------- the strict decoder


@dataclass(frozen=True)
class Inner:
    kind: Literal["none", "some"] = "some"
    pair: tuple[float, float] = (0.5, 1.0)


@dataclass(frozen=True)
class Outer:
    count: int
    rate: float = 0.1
    on: bool = True
    name: str = "a"
    limit: float | None = None
    sizes: tuple[int, ...] = ()
    inner: Inner = field(default_factory=Inner)
    by_name: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise InputError(f"count must be at least 0, got {self.count}")


FULL = Outer(3, 0.25, False, "b", 2.0, (1, 2), Inner("none", (0.0, 0.25)), {"x": 1})


@pytest.mark.parametrize("value", [FULL, Outer(0)])
def test_what_is_written_comes_back(value: Outer) -> None:
    plain = json.loads(json.dumps(to_plain(value)))
    assert from_plain(Outer, plain, "file") == value


def test_an_integer_is_a_number_and_becomes_one() -> None:
    found = from_plain(Outer, {"count": 1, "rate": 1}, "file")
    assert found.rate == 1.0
    assert type(found.rate) is float


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cuont": 1}, r"^file\.cuont: unknown field; did you mean count\?$"),
        ({"zzz": 1}, r"^file\.zzz: unknown field; known: count, rate, "),
        ({"count": "3"}, r"^file\.count: expected an integer, got '3'$"),
        ({"count": 3.0}, r"^file\.count: expected an integer, got 3\.0$"),
        ({"count": True}, r"^file\.count: expected an integer, got True$"),
        ({"rate": False}, r"^file\.rate: expected a number, got False$"),
        ({"rate": 10**400}, r"^file\.rate: 10{36}\.\.\. is too large$"),
        ({"rate": None}, r"^file\.rate: expected a number, got null$"),
        ({"on": 1}, r"^file\.on: expected true or false, got 1$"),
        ({"name": 1}, r"^file\.name: expected a text, got 1$"),
        ({"limit": "none"}, r"^file\.limit: expected a number, got 'none'$"),
        ({"sizes": 3}, r"^file\.sizes: expected a list, got 3$"),
        ({"sizes": [1, "2"]}, r"^file\.sizes\[1\]: expected an integer, got '2'$"),
        ({"inner": 3}, r"^file\.inner: expected a mapping of fields, got 3$"),
        ({"inner": {"kind": "x"}}, r"^file\.inner\.kind: expected one of none, some, got 'x'$"),
        ({"inner": {"pair": [1.0]}}, r"^file\.inner\.pair: expected 2 values, got 1$"),
        ({"inner": {"more": 1}}, r"^file\.inner\.more: unknown field; known: kind, pair$"),
        ({"by_name": []}, r"^file\.by_name: expected a mapping, got \[\]$"),
        ({"by_name": {"x": 0.5}}, r"^file\.by_name\.x: expected an integer, got 0\.5$"),
        ({"count": -1}, r"^file: count must be at least 0, got -1$"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_dotted_name(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        from_plain(Outer, {"count": 1, **change}, "file")


def test_a_field_without_a_default_must_be_there() -> None:
    with pytest.raises(InputError, match=r"^file: field count is missing$"):
        from_plain(Outer, {}, "file")


def test_null_is_for_fields_that_hold_nothing() -> None:
    assert decode(type(None), None, "head") is None
    with pytest.raises(InputError, match=r"^head: expected null, got 3$"):
        decode(type(None), 3, "head")


def test_settings_reach_inside_and_take_the_type_of_the_field() -> None:
    texts = ["count=7", "rate=1e-3", "on=False", "limit=none", "sizes=4,5", "inner.kind=none"]
    changed = with_settings(FULL, [*texts, "inner.pair=0.1,0.2", "name=none"], "--set")
    inner = Inner("none", (0.1, 0.2))
    assert changed == Outer(7, 1e-3, False, "none", None, (4, 5), inner, {"x": 1})
    assert FULL.count == 3


def test_the_outliers_of_a_method_are_set_by_a_dotted_name() -> None:
    start = EDLConfig(outliers=VOS, kl_weight=0.5)
    config = with_settings(start, ["outliers.kind=none", "kl_weight=none"], "--set")
    assert config == EDLConfig(outliers=replace(VOS, kind="none"))
    assert config.kl_weight is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate", "^--set rate: expected name=value$"),
        ("=3", "^--set =3: expected name=value$"),
        ("raet=3", r"^--set raet=3: Outer has no field 'raet'; did you mean rate\?$"),
        ("inner.knid=3", r"Inner has no field 'knid'; did you mean kind\?$"),
        ("rate.x=3", "^--set rate.x=3: float has no field 'x'"),
        ("rate=fast", "^--set rate=fast: expected a number, got 'fast'$"),
        ("count=1.5", "^--set count=1.5: expected an integer, got '1.5'$"),
        ("on=yes", "^--set on=yes: expected true or false, got 'yes'$"),
        ("inner=some", "^--set inner=some: set one of its fields, with a dot: kind, pair$"),
        ("inner.kind=x", "^--set inner.kind=x: expected one of none, some, got 'x'$"),
        ("inner.pair=1", r"inner\.pair: expected 2 values, got 1$"),
        ("count=-1", "^--set: count must be at least 0, got -1$"),
    ],
)
def test_a_setting_that_does_not_fit_says_why(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_settings(FULL, [text], "--set")


# ---------------------------------------------------------------- differences


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
    assert second.endswith("... here")
    assert len(second) < 100
