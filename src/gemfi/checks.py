"""Checks of settings: each refuses a value by the name of its field and says what it may be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from gemfi.errors import InputError

SEEDS = 2**63 - 1
"""How many seeds there are."""


def seed(name: str, value: object) -> None:
    """Refuse what torch's generators cannot begin with."""
    whole(name, value, 0)
    if not isinstance(value, int | np.integer) or value >= SEEDS:
        raise InputError(f"{name} must be at most 2**63 - 2, got {value}")


def whole(name: str, value: object, least: int) -> None:
    """Refuse what is not an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be an integer of at least {least}, got {value!r}")


def number(
    name: str,
    value: object,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: float | None = None,
    below: float | None = None,
) -> None:
    """Refuse what is not a finite number within the bounds, of which above and below are open."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InputError(f"{name} must be a number, got {value!r}")
    inside = least <= value <= most
    inside = inside and (above is None or value > above) and (below is None or value < below)
    if not (inside and _is_finite(value)):
        bounds = [
            f"{words} {bound:g}"
            for words, bound in (
                ("at least", least), ("at most", most), ("above", above), ("below", below),
            )
            if bound is not None and math.isfinite(bound)
        ]  # fmt: skip
        raise InputError(f"{name} must be {' and '.join(bounds) or 'finite'}, got {value}")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse what is not one of a few words."""
    choices = tuple(choices)
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
