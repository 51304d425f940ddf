"""Two nested settings compared: which differ, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_SHOWN: Final = 60  # characters of a value, as the means of many features are long


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> the two JSON values, where they differ; None for one that is absent."""
    first, second = _flat(there), _flat(here)
    return {
        name: (first.get(name), second.get(name))
        for name in second | first
        if first.get(name) != second.get(name)
    }


def described(found: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences in one line, for a message."""
    return "; ".join(
        f"{name}: {_shown(there)} there, {_shown(here)} here"
        for name, (there, here) in found.items()
    )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names."""
    if not isinstance(value, Mapping) or not value:
        return {prefix.removesuffix("."): value}
    return {
        name: leaf
        for key, inner in value.items()
        for name, leaf in _flat(inner, f"{prefix}{key}.").items()
    }


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
