"""OutlierConfig: its defaults, the paper's values, and what it refuses."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest

from gemfi.errors import InputError
from gemfi.outliers import NONE, VOS, Kind, OutlierConfig


def test_the_default_is_a_halo_and_scrambled_inputs() -> None:
    config = OutlierConfig()
    assert config.kind == "halo"
    assert config.scrambled > 0
    assert not config.is_none


def test_none_is_no_outliers() -> None:
    assert NONE.kind == "none"
    assert NONE.is_none


def test_vos_is_the_papers() -> None:
    assert (VOS.kind, VOS.ratio, VOS.scrambled) == ("vos", 0.3, 0.0)
    assert (VOS.covariance, VOS.queue, VOS.draws) == ("shared", 500, 500)
    assert (VOS.start, VOS.ramp) == (0.1, 0.1)
    assert not VOS.is_none


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("scrambled", [0.0, 0.01])
def test_none_needs_neither_source(kind: Kind, scrambled: float) -> None:
    config = OutlierConfig(kind=kind, scrambled=scrambled)
    assert config.is_none == (kind == "none" or (kind == "scrambled" and scrambled == 0))


@pytest.mark.parametrize(
    "options",
    [
        {"queue": 2},
        {"draws": 1},
        {"scrambled": 0.0},
        {"scrambled": 4.0},
        {"near": 1.0, "far": 1.0},
        {"start": 0.0, "ramp": 0.0},
        {"start": 0.99, "ramp": 1.0},
    ],
)
def test_the_ends_of_every_range_are_allowed(options: dict[str, Any]) -> None:
    config = OutlierConfig(**options)
    assert {name: getattr(config, name) for name in options} == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kind": "mixup"},
            "one of none, scrambled, halo, vos, noise, between, auxiliary, got 'mixup'",
        ),
        ({"covariance": "tied"}, "shared or per-class, got 'tied'"),
        ({"queue": 1}, "queue >= 2, .* got 1, 500, 1.0 and 3.0"),
        ({"draws": 0}, "draws >= 1, .* got 500, 0, 1.0 and 3.0"),
        ({"ratio": 0.0}, "ratio > 0 .* got 500, 500, 0.0 and 3.0"),
        ({"ratio": math.nan}, "ratio > 0"),
        ({"scale": 0.0}, "scale > 0, got 500, 500, 1.0 and 0.0"),
        ({"scrambled": -0.1}, "scrambled must be at least 0, got -0.1"),
        ({"scrambled": math.inf}, "scrambled must be at least 0, got inf"),
        ({"scrambled": math.nan}, "scrambled must be at least 0, got nan"),
        ({"near": 0.0}, "0 < near <= far, got 0.0 and 3.0"),
        ({"near": 3.5}, "0 < near <= far, got 3.5 and 3.0"),
        ({"far": math.inf}, "0 < near <= far, got 0.5 and inf"),
        ({"far": math.nan}, "0 < near <= far, got 0.5 and nan"),
        ({"start": 1.0}, r"start in \[0, 1\) .* got 1.0 and 0.1"),
        ({"start": -0.1}, "got -0.1 and 0.1"),
        ({"ramp": 1.5}, r"ramp in \[0, 1\] .* got 0.0 and 1.5"),
        ({"ramp": -0.5}, "got 0.0 and -0.5"),
    ],
)
def test_configuration_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OutlierConfig(**options)
