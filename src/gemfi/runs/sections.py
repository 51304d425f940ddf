"""What a section of `metrics.json` must hold, so that a spoilt file is refused in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gemfi.errors import InputError

CLASSIFICATION: Final = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE"}
DETECTION: Final = {"auroc": "AUROC", "aupr_id": "AUPR", "fpr95": "FPR95"}
"""Metric -> its title in a table."""

_TEXTS: Final = ("split", "role", "checksum")
_SCORES: Final = ("aleatoric", "epistemic")


def check_section(section: Any, where: str) -> None:
    """Refuse a section without the fields that tables and summaries show; others may be there.

    Args:
        section: as it was read.
        where: its name, for messages.
    """
    inside = _mapping(section, "id", where)
    _check_facts(inside, f"{where}.id")
    _check_numbers(inside, CLASSIFICATION, f"{where}.id")
    _check_texts(_mapping(section, "scores", where), _SCORES, f"{where}.scores")
    for key in _mapping(section, "ood", where):
        _check_set(_mapping(section["ood"], key, f"{where}.ood"), f"{where}.ood.{key}")
    absent = section.get("absent")
    if not isinstance(absent, list) or not all(isinstance(each, str) for each in absent):
        raise InputError(f"{where}.absent: expected a list of names")


def _check_set(entry: Mapping[str, Any], where: str) -> None:
    """One OOD set."""
    _check_facts(entry, where)
    for kind in _SCORES:
        _check_numbers(_mapping(entry, kind, where), DETECTION, f"{where}.{kind}")
    every = _mapping(entry, "by_score", where)
    for score in every:
        inner = f"{where}.by_score"
        _check_numbers(_mapping(every, score, inner), DETECTION, f"{inner}.{score}")


def _check_facts(entry: Mapping[str, Any], where: str) -> None:
    _check_texts(entry, _TEXTS, where)
    if type(entry.get("n")) is not int:
        raise InputError(f"{where}.n: expected an integer")


def _check_texts(entry: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in names:
        if not isinstance(entry.get(name), str):
            raise InputError(f"{where}.{name}: expected a text")


def _check_numbers(entry: Mapping[str, Any], names: Mapping[str, str], where: str) -> None:
    for name in names:
        value = entry.get(name, "")
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise InputError(f"{where}.{name}: expected a number or null")


def _mapping(owner: Any, name: str, where: str) -> Mapping[str, Any]:
    found = owner.get(name) if isinstance(owner, Mapping) else None
    if not isinstance(found, Mapping):
        raise InputError(f"{where}.{name}: expected a mapping")
    return found
