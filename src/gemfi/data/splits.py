"""A split: samples that know what they may be used for.

`Split` holds its samples in memory, a `Stream` (`streams.py`) reads them as they are needed; what
both can do is `AnySplit`.

Rule 1 of the design: every split carries a role. `USES` is the one table of what each role may be
used for; whatever takes data calls `require_use(split, use)` before it looks at it. A role is
given once, when data enters (`as_split`, or a task's builder). Only `Split.carve` changes it: it
takes validation and calibration data out of training data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gemfi.data.sampling import stratified_indices
from gemfi.data.tensors import require_dense
from gemfi.errors import InputError, RoleError


class Role(StrEnum):
    """What a split is for."""

    TRAIN = "train"  # weights and statistics
    VALIDATION = "validation"  # selection, temperature, tuning
    CALIBRATION = "calibration"  # policies, and nothing else
    TEST = "test"  # reported, never learnt from
    OOD_VALIDATION = "ood-validation"  # tuning
    OOD_TEST = "ood-test"  # reported, never learnt from
    AUXILIARY = "auxiliary"  # outliers that training may see

    @classmethod
    def parse(cls, role: Role | str) -> Role:
        """Turn the name of a role into the role."""
        try:
            return cls(role)
        except ValueError:
            raise InputError(f"unknown role {role!r}; expected one of {', '.join(cls)}") from None


ID_ROLES = frozenset({Role.TRAIN, Role.VALIDATION, Role.CALIBRATION, Role.TEST})
"""Roles of in-distribution data, which needs labels."""

OOD_ROLES = frozenset({Role.OOD_VALIDATION, Role.OOD_TEST, Role.AUXILIARY})
"""Roles of data that are unlike the training data on purpose."""

CARVED_ROLES = frozenset({Role.VALIDATION, Role.CALIBRATION})
"""Roles that may be carved from training data."""


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


S = TypeVar("S")
Pair = tuple[Tensor, Tensor | None]
"""Inputs and labels of a batch."""


@dataclass(frozen=True)
class Rows:
    """A batch to be read.

    Attributes:
        index: (B,) its rows.
        seed: of what random transforms draw, together with epoch and row.
        epoch: likewise.
    """

    index: Tensor
    seed: str
    epoch: int = 0


@dataclass(frozen=True)
class Share:
    """Which part of each batch is a process's own: the `rank`-th of `count` of nearly one size."""

    rank: int
    count: int

    def of(self, batch: Tensor) -> Tensor:
        """The part of a batch (B, ...)."""
        first, last = (len(batch) * rank // self.count for rank in (self.rank, self.rank + 1))
        return batch if self.count == 1 else batch[first:last]


ALONE: Final = Share(0, 1)


class AnySplit:
    """Samples with a role, in memory or not.

    Attributes:
        role: what they may be used for.
        name: for messages and tables.
        num_classes: C, or None where it is not known.
        class_names: C names, or None.
    """

    role: Role
    name: str
    num_classes: int | None
    class_names: tuple[str, ...] | None

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def tokens(self) -> bool:
        """Whether the inputs are token ids of texts."""
        raise NotImplementedError

    @property
    def batch_size(self) -> int | None:
        """The one that the user chose for these data, if any."""
        return None

    @property
    def has_rows(self) -> bool:
        """Whether rows can be asked for."""
        return True

    @property
    def has_labels(self) -> bool:
        """Whether its samples have labels."""
        raise NotImplementedError

    @property
    def is_random(self) -> bool:
        """Whether samples differ from reading to reading."""
        return False

    @property
    def labels(self) -> Tensor:
        """(N,) where labels are needed; an error where there are none."""
        raise NotImplementedError

    @property
    def class_counts(self) -> Tensor:
        """(C,) samples of each class; up to the largest label where C is not known."""
        return torch.bincount(self.labels, minlength=self.num_classes or 0)

    def first(self, count: int) -> Tensor:
        """Some of the first inputs, at most `count`."""
        raise NotImplementedError

    def read(
        self, order: Iterable[Rows], share: Share = ALONE, *, pin: bool = False
    ) -> Iterator[Pair]:
        """This process's share of a batch for each element of `order`."""
        raise NotImplementedError

    def walk(self, batch_size: int, share: Share = ALONE) -> Iterator[Pair]:
        """Every sample once, in order; of p processes each reads every p-th batch."""
        raise NotImplementedError

    def load(self) -> Split:
        """All of it in memory."""
        raise NotImplementedError

    def checksum(self) -> str:
        """By which a run knows its data again."""
        raise NotImplementedError

    def subset(self, indices: Any) -> Self:
        """The samples at `indices` (in 0..N-1, in that order), with the same role."""
        raise NotImplementedError

    def carve(
        self, size: float, role: Role | str = Role.VALIDATION, *, seed: int = 0
    ) -> tuple[Self, Self]:
        """Take validation or calibration data out of training data.

        The two parts are disjoint, cover everything, keep the order and the proportions of the
        classes; each class keeps at least one training sample.

        Args:
            size: a float is a fraction in (0, 1), an int is a count.
            role: `validation` or `calibration`.
            seed: of the split, not of the run: keep it fixed across runs that are compared.

        Returns:
            The rest, still `train`, and the carved part.
        """
        role = Role.parse(role)
        if self.role is not Role.TRAIN:
            raise RoleError(
                f"split {self.name!r} has role {self.role}: only train can be carved, since a part "
                f"of {self.role} data under another role would escape the guard"
            )
        if role not in CARVED_ROLES:
            raise RoleError(
                f"cannot carve role {role} from split {self.name!r}: expected validation or "
                "calibration; other roles are given when data enters, with as_split(..., role=)"
            )
        count = _count(size, len(self))
        labels = self.labels.cpu().numpy()
        chosen = torch.from_numpy(stratified_indices(labels, count, seed))
        kept = torch.ones(len(self), dtype=torch.bool)
        kept[chosen] = False
        return self.subset(kept.nonzero()[:, 0]), replace(self.subset(chosen), role=role)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False, repr=False)
class Split(AnySplit):
    """Samples, their labels and their role, checked once at construction.

    Tensors are not copied when they already have the right type. Floating-point `x` becomes
    float32, labels become int64 on the device of `x`, and gradients are cut.

    Args:
        x: (N, ...) finite floating point, or uint8 (images), or integers (N, L) with `tokens`.
        y: (N,) integer labels in 0..C-1; None where there are none (OOD and auxiliary sets only).
        role: what the split may be used for.
        name: for messages and tables.
        num_classes: C, or None where it is not known: then labels only have to be non-negative.
        class_names: C names, or None.
        tokens: x holds the token ids of texts, for a backbone that takes them; they become int64.
    """

    x: Tensor
    y: Tensor | None
    role: Role
    name: str
    num_classes: int | None = None
    class_names: tuple[str, ...] | None = None
    tokens: bool = False

    def __post_init__(self) -> None:
        where = f"split {self.name!r}"
        object.__setattr__(self, "role", Role.parse(self.role))
        object.__setattr__(self, "x", checked_inputs(self.x, where, self.tokens))
        if self.num_classes is not None and self.num_classes < 1:
            raise InputError(f"{where}: num_classes must be at least 1, got {self.num_classes}")
        if self.class_names is not None and len(self.class_names) != self.num_classes:
            raise InputError(
                f"{where}: {len(self.class_names)} class names for num_classes={self.num_classes}"
            )
        if self.y is not None:
            y = checked_labels(self.y, len(self.x), self.num_classes, where)
            object.__setattr__(self, "y", y.to(self.x.device))
        elif self.role in ID_ROLES:
            raise InputError(
                f"{where}: role {self.role} needs labels; only OOD and auxiliary sets go without"
            )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        shape, labels = tuple(self.x.shape), "no labels" if self.y is None else self.num_classes
        return f"Split({self.name!r}, role={self.role}, x={shape} {self.x.dtype}, classes={labels})"

    @property
    def labels(self) -> Tensor:
        """`y`."""
        if self.y is None:
            raise InputError(f"split {self.name!r} (role {self.role}) has no labels")
        return self.y

    @property
    def has_labels(self) -> bool:
        """Whether there is a `y`."""
        return self.y is not None

    def first(self, count: int) -> Tensor:
        """Of the inputs."""
        return self.x[:count]

    def read(
        self, order: Iterable[Rows], share: Share = ALONE, *, pin: bool = False
    ) -> Iterator[Pair]:
        """By indexing; what is in memory is pinned when it is moved."""
        del pin
        for rows in order:
            index = share.of(rows.index)
            yield self.x[index], None if self.y is None else self.y[index]

    def walk(self, batch_size: int, share: Share = ALONE) -> Iterator[Pair]:
        """Slices."""
        for start in range(share.rank * batch_size, len(self), share.count * batch_size):
            rows = slice(start, start + batch_size)
            yield self.x[rows], None if self.y is None else self.y[rows]

    def load(self) -> Split:
        """Itself."""
        return self

    def checksum(self) -> str:
        """Of the inputs and labels."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(self.x.contiguous().cpu().numpy().data)
        if self.y is not None:
            digest.update(self.y.contiguous().cpu().numpy().data)
        return digest.hexdigest()

    def subset(self, indices: Tensor | npt.NDArray[np.integer[Any]] | Sequence[int]) -> Split:
        """By indexing."""
        index = torch.as_tensor(indices)
        if index.ndim != 1 or not _is_integer(index):
            raise InputError(
                f"indices must be a list of integers, got shape {tuple(index.shape)} "
                f"{index.dtype}; of a mask take mask.nonzero()[:, 0]"
            )
        if len(index) == 0:
            raise InputError(f"split {self.name!r}: a subset needs at least one index")
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= len(self):
            raise InputError(
                f"split {self.name!r}: indices must be in 0..{len(self) - 1}, found {low}..{high}"
            )
        index = index.to(self.x.device, torch.int64)
        return replace(self, x=self.x[index], y=None if self.y is None else self.y[index])


def require_role(split: S, allowed: Iterable[Role | str], purpose: str) -> S:
    """Return `split` if its role is allowed; otherwise a `RoleError` that says why not.

    Args:
        split: what the caller was given; anything but a split or a stream is an `InputError`.
        allowed: the roles that may be used for the purpose.
        purpose: in words, for the message.
    """
    if not isinstance(split, AnySplit):
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


def require_use(split: S, use: str) -> S:
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


_FRACTIONS: Final = {Role.TEST: 0.2, Role.VALIDATION: 0.1, Role.CALIBRATION: 0.1}


def cut(
    x: Tensor, y: Tensor, class_names: tuple[str, ...], name: str, *, seed: int = 0
) -> dict[Role, Split]:
    """A fifth for test, a tenth each for validation and calibration, the rest for training.

    Each keeps the proportions of the classes and the order of the samples.

    Args:
        x: (N, ...) samples.
        y: (N,) labels.
        class_names: one a class.
        name: of each split.
        seed: which samples go where; not the seed of a run.
    """
    classes = len(class_names)
    return {
        role: Split(x[rows], y[rows], role, name, classes, class_names)
        for role, rows in cut_rows(y, class_names, name, seed=seed).items()
    }


def cut_rows(
    y: Tensor, class_names: tuple[str, ...], name: str, *, seed: int = 0
) -> dict[Role, Tensor]:
    """Which samples go where; arguments as in `cut`."""
    total = len(y)
    counts = torch.bincount(y, minlength=len(class_names))
    if int(counts.min()) < 5:
        rare = int(counts.argmin())
        raise InputError(
            f"{name!r}: class {class_names[rare]!r} has {int(counts[rare])} samples; cutting a set "
            "into train, validation, calibration and test takes at least 5 of each class"
        )
    labels, rest = y.numpy(), np.arange(total)
    rows = {}
    for role, fraction in _FRACTIONS.items():
        held = stratified_indices(labels[rest], round(fraction * total), seed)
        rows[role] = torch.from_numpy(rest[held])
        rest = np.delete(rest, held)
    return {Role.TRAIN: torch.from_numpy(rest), **rows}


def _count(size: float, total: int) -> int:
    if isinstance(size, bool):
        raise InputError("size must be a fraction or a count, got a bool")
    if isinstance(size, int | np.integer):
        return int(size)
    if not 0 < size < 1:
        raise InputError(f"a fraction must be between 0 and 1, got {size}; a count is an int")
    return round(size * total)


def _is_integer(value: Tensor) -> bool:
    floating = value.is_floating_point() or value.is_complex()
    return not floating and value.dtype is not torch.bool


def checked_inputs(x: Tensor, where: str, tokens: bool) -> Tensor:
    """Inputs (N, ...) as float32, uint8 or token ids; an error that says what is wrong."""
    if not isinstance(x, Tensor):
        raise InputError(f"{where}: x must be a tensor, got {type(x).__name__}; use as_split")
    require_dense(x, f"{where}: x")
    shape = tuple(x.shape)
    if x.ndim == 0 or len(x) == 0:
        raise InputError(f"{where} is empty: expected x of shape (N, ...) with N > 0, got {shape}")
    if x.ndim == 1:
        raise InputError(
            f"{where}: x must have shape (N, ...) with at least one feature axis, got {shape}; "
            "a single feature is x[:, None]"
        )
    if x.numel() == 0:
        raise InputError(f"{where}: x has no features, shape {shape}")
    if tokens:
        return _checked_tokens(x, where)
    if x.dtype is torch.uint8:
        return x
    if not x.is_floating_point():
        raise InputError(
            f"{where}: x must be floating point or uint8, got {x.dtype}; convert it to float32 "
            "(token ids of texts take tokens=True)"
        )
    x = x.detach().to(torch.float32)
    pieces = torch.split(x, 1 << 14)  # so that the check of many takes little memory
    finite = torch.cat([piece.flatten(1).isfinite().all(dim=1) for piece in pieces])  # (N,)
    if not bool(finite.all()):
        bad = (~finite).nonzero()[:, 0]
        raise InputError(
            f"{where}: x must be finite, but sample {int(bad[0])} holds NaN or infinity in float32 "
            f"({len(bad)} of {len(x)} samples do)"
        )
    return x


def _checked_tokens(x: Tensor, where: str) -> Tensor:
    if not _is_integer(x) or x.ndim != 2:
        raise InputError(
            f"{where}: token ids must be integers (N, L), got {x.dtype} of shape {tuple(x.shape)}"
        )
    if int(x.min()) < 0:
        raise InputError(f"{where}: token ids must not be negative, found {int(x.min())}")
    return x.to(torch.int64)


def checked_labels(y: Tensor, total: int, num_classes: int | None, where: str) -> Tensor:
    """Labels (N,) as int64; an error that says what is wrong."""
    if not isinstance(y, Tensor):
        raise InputError(f"{where}: y must be a tensor, got {type(y).__name__}; use as_split")
    require_dense(y, f"{where}: y")
    if y.ndim != 1:
        raise InputError(
            f"{where}: y must have shape (N,), got {tuple(y.shape)}; of one-hot rows take argmax(1)"
        )
    if len(y) != total:
        raise InputError(f"{where}: x has {total} samples, but y has {len(y)} labels")
    if not _is_integer(y):
        raise InputError(f"{where}: labels must be integers, got {y.dtype}")
    y = y.to(torch.int64)
    low, high = int(y.min()), int(y.max())
    if low < 0 or (num_classes is not None and high >= num_classes):
        allowed = "non-negative" if num_classes is None else f"in 0..{num_classes - 1}"
        raise InputError(
            f"{where}: labels must be {allowed}, found {low}..{high}; "
            "count classes from 0 (data without labels has y=None)"
        )
    return y
