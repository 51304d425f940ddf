"""A task: an in-distribution data set with the OOD sets it is judged against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from gemfi.data.splits import ID_ROLES, Role, Split
from gemfi.errors import InputError, RoleError

if TYPE_CHECKING:
    from gemfi.data.columns import Columns
    from gemfi.data.leaks import ColumnWarning
    from gemfi.data.normalisation import Normalisation

Source = Split | Callable[[], Split]
"""A split, or what reads it when it is first asked for."""
_OWN = (Role.TRAIN, Role.VALIDATION, Role.CALIBRATION, Role.TEST)


class Task:
    """Four disjoint ID splits and named OOD sets, each with the role of its field.

    A source that is a function is called when its split is first asked for, and once: training on
    a task never opens its test files.

    Args:
        name: as in `TASKS`.
        class_names: C names.
        train: for weights and statistics.
        validation: for selection, temperature and tuning.
        calibration: for policies.
        test: to report.
        ood_validation: name -> OOD set for tuning.
        ood_test: name -> OOD set to report.
        normalisation: of the inputs, where the data set has customary constants.
        absent: OOD set -> why it is not among them; for sets that are known, but not here.
        columns: of a table, and the numbers that they become.
        label_name: of a table, the column of the labels.
        warnings: about columns of a table that may give the label away.
    """

    def __init__(
        self,
        name: str,
        class_names: tuple[str, ...],
        *,
        train: Source,
        validation: Source,
        calibration: Source,
        test: Source,
        ood_validation: Mapping[str, Source],
        ood_test: Mapping[str, Source],
        normalisation: Normalisation | None = None,
        absent: Mapping[str, str] | None = None,
        columns: Columns | None = None,
        label_name: str | None = None,
        warnings: Sequence[ColumnWarning] = (),
    ) -> None:
        self.name, self.class_names = name, tuple(class_names)
        self.num_classes = len(self.class_names)
        self.normalisation = normalisation
        self.absent = dict(absent or {})
        self.columns, self.label_name, self.warnings = columns, label_name, tuple(warnings)
        self._sample: tuple[torch.Size, torch.dtype] | None = None
        own: dict[str, Source] = dict(
            zip(_OWN, (train, validation, calibration, test), strict=True)
        )
        self._own = _LazySplits(own, self._check)
        self.ood_validation = _LazySplits(ood_validation, self._check, Role.OOD_VALIDATION)
        self.ood_test = _LazySplits(ood_test, self._check, Role.OOD_TEST)

    def __repr__(self) -> str:
        ood = f"ood_validation={list(self.ood_validation)}, ood_test={list(self.ood_test)}"
        return f"Task({self.name!r}, {self.num_classes} classes, {ood})"

    @property
    def train(self) -> Split:
        """For weights and statistics."""
        return self._own[Role.TRAIN]

    @property
    def validation(self) -> Split:
        """For selection, temperature and tuning."""
        return self._own[Role.VALIDATION]

    @property
    def calibration(self) -> Split:
        """For policies."""
        return self._own[Role.CALIBRATION]

    @property
    def test(self) -> Split:
        """To report."""
        return self._own[Role.TEST]

    def splits(self) -> Iterator[Split]:
        """Every split: train, validation, calibration, test, then the OOD sets."""
        for splits in (self._own, self.ood_validation, self.ood_test):
            yield from splits.values()

    def _check(self, role: Role, split: Split) -> None:
        if split.role is not role:
            raise RoleError(
                f"task {self.name!r}: split {split.name!r} has role {split.role} in the place of "
                f"{role}"
            )
        if role in ID_ROLES and split.num_classes != self.num_classes:
            raise InputError(
                f"task {self.name!r}: split {split.name!r} ({role}) has "
                f"num_classes={split.num_classes}, but there are {self.num_classes} class names"
            )
        sample = (split.x.shape[1:], split.x.dtype)
        if self._sample is None:
            self._sample = sample
        elif sample != self._sample:
            raise InputError(
                f"task {self.name!r}: split {split.name!r} ({role}) has samples "
                f"{tuple(sample[0])} {sample[1]}, but the others have {tuple(self._sample[0])} "
                f"{self._sample[1]}"
            )


class _LazySplits(Mapping[str, Split]):
    """Names at once; a split that is a function is read when it is asked for, and once.

    Args:
        sources: name -> split, or what reads it.
        check: of a split and its role; called at once where a split is here already.
        role: that each of them must have; None for the role that is its name.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        check: Callable[[Role, Split], None],
        role: Role | None = None,
    ) -> None:
        self._sources, self._check, self._role = dict(sources), check, role
        for name, source in self._sources.items():
            if isinstance(source, Split):
                check(role or Role(name), source)

    def __getitem__(self, name: str) -> Split:
        source = self._sources[name]
        if not isinstance(source, Split):
            source = source()
            self._check(self._role or Role(name), source)
            self._sources[name] = source
        return source

    def __contains__(self, name: object) -> bool:
        return name in self._sources  # the inherited one would read the split

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)
