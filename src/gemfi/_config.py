"""Configurations: checks of values, plain JSON values and back, and differences in words."""

from __future__ import annotations

import difflib
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from gemfi.errors import InputError

T = TypeVar("T")

LATER: Final = {"later": True}
"""Metadata of a field that is younger than kept records: plain values leave its default out, so
that the keys of those records stay what they are."""

_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)  # resolving takes time
_NUMBERS = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


def to_plain(value: Any) -> Any:
    """Dataclasses and mappings as dicts, tuples as lists; everything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: to_plain(getattr(value, one.name))
            for one in fields(value)
            if not ("later" in one.metadata and getattr(value, one.name) == one.default)
        }
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    return [to_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def from_plain(kind: type[T], mapping: Any, where: str, **overrides: Any) -> T:
    """A dataclass from a plain mapping of its fields; those with a default may be left out.

    Args:
        kind: the dataclass.
        mapping: to read.
        where: what is being read, for messages, such as `run.json: spec`.
        overrides: field -> type, for fields whose annotation does not say it.
    """
    if not isinstance(mapping, Mapping):
        raise InputError(f"{where}: expected a mapping of fields, got {_shown(mapping)}")
    hints = _hints(kind) | overrides
    known = {one.name: one for one in fields(kind) if one.init}  # type: ignore[arg-type]
    for name in mapping:
        if name not in known:
            raise InputError(f"{where}.{name}: unknown field{_hint(str(name), known)}")
    for name, one in known.items():
        is_required = one.default is MISSING and one.default_factory is MISSING
        if is_required and name not in mapping:
            raise InputError(f"{where}: field {name} is missing")
    values = {name: decode(hints[name], mapping[name], f"{where}.{name}") for name in mapping}
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def decode(hint: Any, value: Any, where: str) -> Any:
    """A plain value as the type of an annotation, or an error that says what was expected."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _COMPOSED:
        return _COMPOSED[origin](arguments, value, where)
    if is_dataclass(hint) and isinstance(hint, type):
        return from_plain(hint, value, where)
    return value if hint is Any else _scalar(hint, value, where)


def with_settings(config: T, settings: Sequence[str], option: str, inside: str = "") -> T:
    """A configuration with some fields changed by texts `name=value`; dots reach inside.

    Args:
        config: a frozen dataclass.
        settings: such as `["fi_reg_weight=0.1", "outliers.kind=none"]`.
        option: what the texts were given as, for messages.
        inside: what stood before each text there, such as `spectral.`.
    """
    plain = to_plain(config)
    for text in settings:
        name, value = split_setting(text, f"{option} {inside}".rstrip())
        hint: Any = type(config)
        for part in name.split("."):
            known = _hints(hint) if is_dataclass(hint) else {}
            if part not in known:
                owner = getattr(hint, "__name__", str(hint))
                raise InputError(
                    f"{option} {inside}{text}: {owner} has no field {part!r}{_hint(part, known)}"
                )
            hint = known[part]
        *folders, last = name.split(".")
        inner = plain
        for folder in folders:
            inner = inner[folder]
        inner[last] = to_plain(parse(hint, value, f"{option} {inside}{text}"))
    where = f"{option} {inside}".rstrip(" .")
    return from_plain(type(config), plain, where) if settings else config


def split_setting(text: str, option: str) -> tuple[str, str]:
    """Name and value of a text `name=value`."""
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise InputError(f"{option} {text}: expected name=value")
    return name, value


def parse(hint: Any, text: str, where: str) -> Any:
    """A text as the type of an annotation: `true`, `3`, `0.1`, `none`, `a choice`, `0.1,0.3`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if type(None) in arguments and text.lower() == "none":
            return None
        inner = next(kind for kind in arguments if kind is not type(None))
        return parse(inner, text, where)
    if origin is tuple:
        kinds = arguments[:1] if arguments[-1] is Ellipsis else arguments
        parts = text.split(",")
        return [parse(kinds[min(i, len(kinds) - 1)], part, where) for i, part in enumerate(parts)]
    if is_dataclass(hint):
        names = ", ".join(one.name for one in fields(hint))
        raise InputError(f"{where}: set one of its fields, with a dot: {names}")
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            raise InputError(f"{where}: expected {_NUMBERS[hint]}, got {text!r}") from None
    return decode(hint, text, where)


def _choice(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        listed = ", ".join(map(str, choices))
        raise InputError(f"{where}: expected one of {listed}, got {_shown(value)}")
    return value


def _union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Optional fields: null, or the one other type."""
    if value is None and type(None) in kinds:
        return None
    (inner,) = (kind for kind in kinds if kind is not type(None))
    return decode(inner, value, where)


def _tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InputError(f"{where}: expected a list, got {_shown(value)}")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise InputError(f"{where}: expected {len(kinds)} values, got {len(value)}")
    return tuple(
        decode(kind, inner, f"{where}[{index}]")
        for index, (kind, inner) in enumerate(zip(kinds, value, strict=True))
    )


def _mapping(kinds: tuple[Any, ...], value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected a mapping, got {_shown(value)}")
    return {key: decode(kinds[1], inner, f"{where}.{key}") for key, inner in value.items()}


_COMPOSED: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    Literal: _choice,
    Union: _union,
    types.UnionType: _union,
    tuple: _tuple,
    list: lambda kinds, value, where: list(_tuple((*kinds, ...), value, where)),
    Mapping: _mapping,
    dict: _mapping,
}


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is type(None):
        if value is not None:
            raise InputError(f"{where}: expected null, got {_shown(value)}")
        return None
    accepted = (int, float) if hint is float else (hint,)
    if type(value) not in accepted:
        raise InputError(f"{where}: expected {_NUMBERS.get(hint, hint)}, got {_shown(value)}")
    try:
        return hint(value)
    except OverflowError:
        raise InputError(f"{where}: {_shown(value)} is too large") from None


def _shown(value: Any) -> str:
    """A value in a message, cut short."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _hint(name: str, known: Mapping[str, Any]) -> str:
    if not known:
        return ": it has nothing to set"
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


# -- checks of values ---------------------------------------------------------------------------

SEEDS = 2**63 - 1
"""How many seeds there are."""


def check_seed(name: str, value: object) -> None:
    """Refuse what torch's generators cannot begin with."""
    check_int(name, value, 0)
    if not isinstance(value, int | np.integer) or value >= SEEDS:
        raise InputError(f"{name} must be at most 2**63 - 2, got {value}")


def check_int(name: str, value: object, least: int) -> None:
    """Refuse what is not an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_number(
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
        named = {"at least": least, "at most": most, "above": above, "below": below}
        bounds = [
            f"{words} {bound:g}"
            for words, bound in named.items()
            if bound is not None and math.isfinite(bound)
        ]
        raise InputError(f"{name} must be {' and '.join(bounds) or 'finite'}, got {value}")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse what is not one of a few words."""
    choices = tuple(choices)
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_choices(config: Any) -> None:
    """Refuse a configuration with a `Literal` field that holds none of its words."""
    for name, hint in _hints(type(config)).items():
        if get_origin(hint) is Literal:
            check_choice(name, getattr(config, name), get_args(hint))


# -- differences of configurations --------------------------------------------------------------

_SHOWN: Final = 60  # characters of a value, as the means of many features are long


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> the two JSON values, where they differ; None for one that is absent."""
    first, second = _flat(there), _flat(here)
    return {
        name: (first.get(name), second.get(name))
        for name in second | first
        if first.get(name) != second.get(name)
    }


def described(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences in one line, for a message."""
    return "; ".join(
        f"{name}: {_shortened(there)} there, {_shortened(here)} here"
        for name, (there, here) in changes.items()
    )


def _shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names."""
    if not isinstance(value, Mapping) or not value:
        return {prefix.removesuffix("."): value}
    return {
        name: leaf
        for key, inner in value.items()
        for name, leaf in _flat(inner, f"{prefix}{key}.").items()
    }
