"""A task: an in-distribution data set with the OOD sets it is judged against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gemfi.data.splits import Role, Split
from gemfi.errors import InputError, RoleError


@dataclass(frozen=True, eq=False)
class Task:
    """Four disjoint ID splits and named OOD sets, each with the role of its field.

    Args:
        name: as in `TASKS`.
        num_classes: C.
        class_names: C names.
        train: for weights and statistics.
        validation: for selection, temperature and tuning.
        calibration: for policies.
        test: to report.
        ood_validation: name -> OOD set for tuning.
        ood_test: name -> OOD set to report.
    """

    name: str
    num_classes: int
    class_names: tuple[str, ...]
    train: Split
    validation: Split
    calibration: Split
    test: Split
    ood_validation: Mapping[str, Split]
    ood_test: Mapping[str, Split]

    def __post_init__(self) -> None:
        if len(self.class_names) != self.num_classes:
            raise InputError(
                f"task {self.name!r}: {len(self.class_names)} class names for "
                f"num_classes={self.num_classes}"
            )
        expected = (self.train.x.shape[1:], self.train.x.dtype)
        for role, split in self._with_roles():
            if split.role is not role:
                raise RoleError(
                    f"task {self.name!r}: split {split.name!r} has role {split.role} in the place "
                    f"of {role}"
                )
            if (split.x.shape[1:], split.x.dtype) != expected:
                raise InputError(
                    f"task {self.name!r}: split {split.name!r} ({role}) has samples "
                    f"{tuple(split.x.shape[1:])} {split.x.dtype}, but train has "
                    f"{tuple(expected[0])} {expected[1]}"
                )
        for split in (self.train, self.validation, self.calibration, self.test):
            if split.num_classes != self.num_classes:
                raise InputError(
                    f"task {self.name!r}: split {split.name!r} ({split.role}) has "
                    f"num_classes={split.num_classes}, expected {self.num_classes}"
                )

    def splits(self) -> Iterator[Split]:
        """Every split: train, validation, calibration, test, then the OOD sets."""
        return (split for _, split in self._with_roles())

    def _with_roles(self) -> Iterator[tuple[Role, Split]]:
        yield Role.TRAIN, self.train
        yield Role.VALIDATION, self.validation
        yield Role.CALIBRATION, self.calibration
        yield Role.TEST, self.test
        yield from ((Role.OOD_VALIDATION, split) for split in self.ood_validation.values())
        yield from ((Role.OOD_TEST, split) for split in self.ood_test.values())
