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
_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}
_UNIONS = (Union, types.UnionType)


def to_plain(value: Any) -> Any:
    """Dataclasses and mappings as dicts, tuples as lists; everything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_plain(getattr(value, field.name))
            for field in fields(value)
            if not ("later" in field.metadata and getattr(value, field.name) == field.default)
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
    known = {field.name: field for field in fields(kind) if field.init}  # type: ignore[arg-type]
    for name in mapping:
        if name not in known:
            raise InputError(f"{where}.{name}: unknown field{_hint(str(name), known)}")
    for name, field in known.items():
        required = field.default is MISSING and field.default_factory is MISSING
        if required and name not in mapping:
            raise InputError(f"{where}: field {name} is missing")
    values = {name: decode(hints[name], mapping[name], f"{where}.{name}") for name in mapping}
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def decode(hint: Any, value: Any, where: str) -> Any:
    """A plain value as the type of an annotation, or an error that says what was expected."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or (value is None and type(None) in (hint, *arguments)):
        return value
    if origin is Literal:
        if not any(value == choice and type(value) is type(choice) for choice in arguments):
            listed = ", ".join(map(str, arguments))
            raise InputError(f"{where}: expected one of {listed}, got {_shown(value)}")
        return value
    if origin in _UNIONS:
        return decode(_not_none(arguments), value, where)
    if origin in (tuple, list):
        return origin(_items(arguments, value, where, any_length=origin is list))
    if origin in (Mapping, dict):
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: expected a mapping, got {_shown(value)}")
        return {key: decode(arguments[1], v, f"{where}.{key}") for key, v in value.items()}
    return _single(hint, value, where)


def _not_none(kinds: tuple[Any, ...]) -> Any:
    """The type that an optional field has if it has a value."""
    return next(kind for kind in kinds if kind is not type(None))


def _items(kinds: tuple[Any, ...], value: Any, where: str, *, any_length: bool) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise InputError(f"{where}: expected a list, got {_shown(value)}")
    if any_length or kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise InputError(f"{where}: expected {len(kinds)} values, got {len(value)}")
    pairs = enumerate(zip(kinds, value, strict=True))
    return [decode(kind, inner, f"{where}[{index}]") for index, (kind, inner) in pairs]


def _single(hint: Any, value: Any, where: str) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        return from_plain(hint, value, where)
    accepted = (int, float) if hint is float else (hint,)
    if type(value) not in accepted:
        expected = "null" if hint is type(None) else _WORDS.get(hint, hint)
        raise InputError(f"{where}: expected {expected}, got {_shown(value)}")
    try:
        return hint(value)
    except OverflowError:
        raise InputError(f"{where}: {_shown(value)} is too large") from None


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
        where = f"{option} {inside}{text}"
        name, value = split_setting(text, where)
        *folders, last = name.split(".")
        hint: Any = type(config)
        for part in (*folders, last):
            known = _hints(hint) if is_dataclass(hint) else {}
            if part not in known:
                owner = getattr(hint, "__name__", str(hint))
                raise InputError(f"{where}: {owner} has no field {part!r}{_hint(part, known)}")
            hint = known[part]
        inner = plain
        for folder in folders:
            inner = inner[folder]
        inner[last] = to_plain(parse(hint, value, where))
    where = f"{option} {inside}".rstrip(" .")
    return from_plain(type(config), plain, where) if settings else config


def split_setting(text: str, where: str) -> tuple[str, str]:
    """Name and value of a text `name=value`."""
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise InputError(f"{where}: expected name=value")
    return name, value


def parse(hint: Any, text: str, where: str) -> Any:
    """A text as the type of an annotation: `true`, `3`, `0.1`, `none`, `a choice`, `0.1,0.3`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        is_none = type(None) in arguments and text.lower() == "none"
        return None if is_none else parse(_not_none(arguments), text, where)
    if origin is tuple:
        kinds = arguments[:1] if arguments[-1] is Ellipsis else arguments
        parts = text.split(",")
        return [parse(kinds[min(i, len(kinds) - 1)], part, where) for i, part in enumerate(parts)]
    if is_dataclass(hint):
        names = ", ".join(field.name for field in fields(hint))
        raise InputError(f"{where}: set one of its fields, with a dot: {names}")
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            raise InputError(f"{where}: expected {_WORDS[hint]}, got {text!r}") from None
    return decode(hint, text, where)


def _shown(value: Any) -> str:
    """A value in a message."""
    return _cut("null" if value is None else repr(value), 40)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _hint(name: str, known: Mapping[str, Any]) -> str:
    if not known:
        return ": it has nothing to set"
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


# -- checks of values ---------------------------------------------------------------------------

SEEDS: Final = 2**63 - 1
"""How many seeds torch's generators can begin with."""


def check_seed(name: str, value: Any) -> None:
    """Refuse what torch's generators cannot begin with."""
    check_int(name, value, 0)
    if value >= SEEDS:
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
    above: float = -math.inf,
    below: float = math.inf,
) -> None:
    """Refuse what is not a finite number within the bounds, of which above and below are open."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InputError(f"{name} must be a number, got {value!r}")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        finite = False
    if not (finite and least <= value <= most and above < value < below):
        named = {"at least": least, "at most": most, "above": above, "below": below}
        bounds = [f"{words} {bound:g}" for words, bound in named.items() if math.isfinite(bound)]
        raise InputError(f"{name} must be {' and '.join(bounds) or 'finite'}, got {value}")


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


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> the two JSON values, where they differ; None for one that is absent."""
    first, second = _flat(there), _flat(here)
    return {
        name: (first.get(name), second.get(name))
        for name in second | first
        if first.get(name) != second.get(name)
    }


def described(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences in one line, for a message; the means of many features are long, and cut."""
    return "; ".join(
        f"{name}: {_cut(json.dumps(there), 60)} there, {_cut(json.dumps(here), 60)} here"
        for name, (there, here) in changes.items()
    )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names."""
    if not isinstance(value, Mapping) or not value:
        return {prefix.removesuffix("."): value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{prefix}{key}.")
    return flat
