"""The guard of rule 1: what each role may be used for, and the reason when it may not.

`USES` is the one table. Whatever takes data calls `require_use(split, use)` before it looks at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from gemfi.data.splits import Role, Split
from gemfi.errors import InputError, RoleError

USES: Final[Mapping[str, frozenset[Role]]] = MappingProxyType(
    {
        "training": frozenset({Role.TRAIN}),
        "statistics": frozenset({Role.TRAIN}),
        "selection": frozenset({Role.VALIDATION}),
        "density scaling": frozenset({Role.VALIDATION, Role.TRAIN}),
        "temperature": frozenset({Role.VALIDATION}),
        "policy": frozenset({Role.CALIBRATION}),
        "auxiliary outliers": frozenset({Role.AUXILIARY}),
        "tuning": frozenset({Role.VALIDATION, Role.OOD_VALIDATION}),
        "evaluation": frozenset(
            {Role.VALIDATION, Role.TEST, Role.OOD_VALIDATION, Role.OOD_TEST},
        ),
    }
)
"""Use of data -> the roles that may be used so. Read-only."""

_WHY: Final[Mapping[Role, str]] = {
    Role.TRAIN: "numbers on data that the model has learnt flatter it; take validation or "
    "calibration data out of it with carve",
    Role.VALIDATION: "validation data chooses the epoch, the temperature and the options; used "
    "for more than that, it would judge its own choices",
    Role.CALIBRATION: "a policy's guarantee holds only while nothing else has seen its "
    "calibration data",
    Role.TEST: "a test set is looked at to report, and its numbers mean nothing once it has "
    "shaped a model or a threshold; take validation or calibration data out of train with carve",
    Role.OOD_VALIDATION: "OOD validation data is for tuning; outliers that training may see have "
    "role auxiliary",
    Role.OOD_TEST: "learning or choosing anything on an OOD test set makes every OOD number "
    "meaningless; use role ood-validation for tuning or auxiliary for outlier exposure",
    Role.AUXILIARY: "auxiliary outliers carry no ID labels, and the model has learnt to reject "
    "them",
}


def require_role(split: object, allowed: Iterable[Role | str], purpose: str) -> Split:
    """Return `split` if its role is allowed; otherwise a `RoleError` that says why not.

    Args:
        split: what the caller was given; anything but a `Split` is an `InputError`.
        allowed: the roles that may be used for the purpose.
        purpose: in words, for the message.
    """
    if not isinstance(split, Split):
        raise InputError(
            f"{purpose} needs a Split with a role, got {type(split).__name__}; "
            "wrap it with as_split(..., role=...)"
        )
    roles = frozenset(Role.parse(role) for role in allowed)
    if split.role not in roles:
        wanted = " or ".join(role for role in Role if role in roles)
        raise RoleError(
            f"split {split.name!r} has role {split.role}, which {purpose} refuses (it takes "
            f"{wanted}): {_WHY[split.role]}"
        )
    return split


def require_use(split: object, use: str) -> Split:
    """Return `split` if its role may be used for `use`, a key of `USES`.

    Example:
        >>> train = require_use(train, "training")
    """
    if use not in USES:
        raise InputError(f"unknown use {use!r}; expected one of {', '.join(USES)}")
    return require_role(split, USES[use], use)


def require_classes(split: Split) -> Split:
    """Return `split` if it holds at least two classes, as training needs."""
    present = split.class_counts.nonzero()[:, 0]
    if len(present) < 2:
        raise InputError(
            f"split {split.name!r} has one class only: all {len(split)} labels are "
            f"{int(present[0])}; training needs at least two classes"
        )
    return split
