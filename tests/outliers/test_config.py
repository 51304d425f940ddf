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
        ({"covariance": "tied"}, "covariance must be one of shared, per-class, got 'tied'"),
        ({"queue": 1}, "queue must be an integer of at least 2, got 1"),
        ({"queue": 2.5}, "queue must be an integer of at least 2, got 2.5"),
        ({"draws": 0}, "draws must be an integer of at least 1, got 0"),
        ({"ratio": 0.0}, "ratio must be above 0, got 0.0"),
        ({"ratio": math.nan}, "ratio must be above 0, got nan"),
        ({"scale": 0.0}, "scale must be above 0, got 0.0"),
        ({"scale": math.inf}, "scale must be above 0, got inf"),
        ({"scrambled": -0.1}, "scrambled must be at least 0, got -0.1"),
        ({"scrambled": math.inf}, "scrambled must be at least 0, got inf"),
        ({"scrambled": math.nan}, "scrambled must be at least 0, got nan"),
        ({"near": 0.0}, "near must be above 0, got 0.0"),
        ({"near": 3.5}, "far must be at least 3.5, got 3.0"),
        ({"far": math.inf}, "far must be at least 0.5, got inf"),
        ({"far": math.nan}, "far must be at least 0.5, got nan"),
        ({"start": 1.0}, "start must be at least 0 and below 1, got 1.0"),
        ({"start": -0.1}, "start must be at least 0 and below 1, got -0.1"),
        ({"ramp": 1.5}, "ramp must be at least 0 and at most 1, got 1.5"),
        ({"ramp": -0.5}, "ramp must be at least 0 and at most 1, got -0.5"),
    ],
)
def test_configuration_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OutlierConfig(**options)
