"""The strict decoder: what goes out comes back, and everything else is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from gemfi._config import decode, from_plain, to_plain, with_settings
from gemfi.errors import InputError
from gemfi.methods import GEMConfig


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


def test_the_outliers_of_gem_are_set_by_a_dotted_name() -> None:
    config = with_settings(GEMConfig(), ["outliers.kind=none", "ebm_clip=none"], "--set")
    assert config.outliers.kind == "none"
    assert config.ebm_clip is None


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
