"""A user's own files as a task: a folder of images, an npz archive, a CSV or parquet table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gemfi.data import readers
from gemfi.data.columns import Columns
from gemfi.data.leaks import ColumnWarning, checked_columns
from gemfi.data.normalisation import Normalisation
from gemfi.data.splits import Role, Split, cut, cut_rows
from gemfi.data.task import Task
from gemfi.errors import InputError

_TABLES: Final = {".csv": readers.read_csv, ".parquet": readers.read_parquet}
_FORMATS: Final = (
    "own data is a folder with a sub-folder of images for each class, or a file: .npz, .csv, "
    ".parquet"
)
_ONE_FILE: Final = "one file cannot teach, tune and judge; give each a file of its own"
_KEYS: Final = (("x", "y"), ("images", "labels"))  # of an npz archive

Contents = tuple[Tensor, Tensor | None, tuple[str, ...] | None]
"""Inputs, and labels and names of classes where there are some."""


@dataclass(frozen=True)
class OwnData:
    """How a user's own files are read.

    Attributes:
        label: of a table, the column of the labels; by default the last.
        drop: of a table, columns to leave out.
        keep: of a table, columns to learn from though they look like a leak.
        size: of a folder, make every image size × size, cropped to a square.
        grey: of a folder, read one channel in place of three.
        ood_validation: files or folders of unfamiliar data of the same kind, for tuning.
        ood_test: files or folders of unfamiliar data of the same kind, to report.
    """

    label: str | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    size: int | None = None
    grey: bool = False
    ood_validation: tuple[str, ...] = ()
    ood_test: tuple[str, ...] = ()

    def task(self, path: Path | str) -> Task:
        """Cut a labelled set in one file or folder into the four splits of a task.

        A fifth is held out for test, a tenth each for validation and calibration, always the same.
        Rows and images are normalised with the mean and the spread of the training part.

        - a folder has a sub-folder of images for each class;
        - `.npz` holds `x` and `y`, or `images` and `labels`: (N, ...) numbers or uint8 images, and
          labels counted from 0;
        - `.csv` and `.parquet` hold a column for each feature, of numbers or of text, and one for
          the label; see `Columns` for categories and missing cells, and `leaks` for warnings.

        Labels of unfamiliar data do not matter, but a table needs the column all the same.
        """
        path = Path(path)
        self._check_options(path)
        given = {"--ood-validation": self.ood_validation, "--ood-test": self.ood_test}
        _check_places({"the data": (str(path),), **given})
        content = self._read(path)
        columns: Columns | None = None
        warnings: tuple[ColumnWarning, ...] = ()
        if isinstance(content, readers.Table):
            columns, warnings = _columns(content, path, self.drop, self.keep)
        x, y, names = _labelled(_numbers(content, path, columns), path)
        splits = cut(x, y, names, path.name)
        seen = {path.name: x}

        def outside(group: str, role: Role) -> dict[str, Split]:
            made = {}
            for place in map(Path, given[group]):
                other = self._read(place)
                if isinstance(content, readers.Table):
                    _check_columns(other, content, place)
                split = Split(_numbers(other, place, columns)[0], None, role, place.name)
                _check_other(split.x, seen, place.name)
                made[place.name] = split
            return made

        tuning = outside("--ood-validation", Role.OOD_VALIDATION)
        seen |= {name: split.x for name, split in tuning.items()}
        return Task(
            path.name,
            names,
            train=splits[Role.TRAIN],
            validation=splits[Role.VALIDATION],
            calibration=splits[Role.CALIBRATION],
            test=splits[Role.TEST],
            ood_validation=tuning,
            ood_test=outside("--ood-test", Role.OOD_TEST),
            normalisation=_normalisation(splits[Role.TRAIN], columns),
            columns=columns,
            label_name=content.label_name if isinstance(content, readers.Table) else None,
            warnings=warnings,
        )

    def _check_options(self, path: Path) -> None:
        """Refuse options that mean nothing for a file of this kind."""
        wrong = None
        is_table = path.suffix.lower() in _TABLES and not path.is_dir()
        if not is_table and (self.label is not None or self.drop or self.keep):
            wrong = (
                "label, drop and keep (--label, --drop, --keep) are for tables, .csv and .parquet"
            )
        if not path.is_dir() and (self.size is not None or self.grey):
            wrong = "size and grey (--size, --grey) are for folders of images"
        if wrong and path.exists():  # if not, the reader says so
            raise InputError(f"{wrong}, but {path} is not one; leave them out")

    def _read(self, path: Path) -> Contents | readers.Table:
        suffix = path.suffix.lower()
        if path.is_dir():
            mode: Literal["L", "RGB"] = "L" if self.grey else "RGB"
            pictures = readers.read_image_folder(
                path, size=self.size, mode=mode, crop=self.size is not None
            )
            y = None if pictures.labels is None else torch.from_numpy(pictures.labels)
            return torch.from_numpy(pictures.images), y, pictures.class_names
        if suffix in _TABLES:
            return _TABLES[suffix](path, label=-1 if self.label is None else self.label)
        if suffix == ".npz":
            return _read_archive(path)
        raise InputError(f"{path}{':' if path.exists() else ' does not exist;'} {_FORMATS}")


def _normalisation(train: Split, columns: Columns | None) -> Normalisation | None:
    if train.x.ndim not in {2, 4}:  # which axis of others holds channels, no one can tell
        return None
    own = Normalisation.of(train)
    if columns is None:
        return own
    mean, std = columns.unscaled(own.mean, own.std)
    return Normalisation(tuple(mean.tolist()), tuple(std.tolist()))


def _check_places(groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse one path in two groups, and two of one name in a group."""
    seen: dict[Path, str] = {}
    for group, paths in groups.items():
        if len({Path(place).name for place in paths}) < len(paths):
            raise InputError(
                f"files are named by themselves, but two of {', '.join(paths)} are alike"
            )
        resolved = {Path(place).resolve() for place in paths}
        for place in resolved & seen.keys():
            raise InputError(f"{place} is given as {seen[place]} and as {group}: {_ONE_FILE}")
        seen |= dict.fromkeys(resolved, group)


def _check_other(x: Tensor, others: Mapping[str, Tensor], name: str) -> None:
    """Refuse the same samples under two names."""
    for other, samples in others.items():
        if x.dtype == samples.dtype and torch.equal(x, samples):
            raise InputError(f"{name!r} holds the same samples as {other!r}: {_ONE_FILE}")


def _labelled(source: Contents, path: Path) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Checked inputs and labels, and the names of the classes, which an archive only counts."""
    x, y, names = source
    if y is None:
        expected = "an archive needs x and y, or images and labels"
        if path.is_dir():
            expected = "a folder needs a sub-folder for each class, with its images"
        raise InputError(f"{path} has no labels: {expected}")
    checked = Split(x, y, Role.TRAIN, path.name)  # says what is wrong with them
    if names is None:
        used = np.unique(checked.labels.numpy())  # to count them takes memory up to the largest
        gaps = np.flatnonzero(used != np.arange(len(used)))
        if len(gaps):
            raise InputError(
                f"{path} has labels up to {int(used[-1])}, but none is {int(gaps[0])}: number the "
                "classes 0, 1, 2, ... without gaps"
            )
        names = tuple(map(str, range(len(used))))
    if len(names) < 2:
        raise InputError(
            f"{path} has samples of one class, {names[0]!r}, and a classifier needs at least two; "
            "of a table, is --label the right column?"
        )
    return checked.x, checked.labels, names


def _numbers(content: Contents | readers.Table, path: Path, columns: Columns | None) -> Contents:
    """A table as the numbers of its columns; everything else as it is."""
    if not isinstance(content, readers.Table) or columns is None:
        return content  # type: ignore[return-value]
    x = columns.encode_all(content.columns, lambda row: f"{path}, row {row}")
    y = None if content.labels is None else torch.from_numpy(content.labels)
    return torch.from_numpy(x).float(), y, content.class_names


def _columns(
    table: readers.Table, path: Path, drop: Sequence[str], keep: Sequence[str]
) -> tuple[Columns, tuple[ColumnWarning, ...]]:
    """The columns to learn from, fitted on the training part, and what to warn about."""
    assert table.labels is not None  # noqa: S101 - a column of them was asked for
    assert table.class_names is not None  # noqa: S101 - likewise
    y = torch.from_numpy(table.labels)
    train = cut_rows(y, table.class_names, path.name)[Role.TRAIN].numpy()
    try:
        cells, warnings = checked_columns(table.columns, table.labels, train, drop=drop, keep=keep)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return Columns.fit(cells, train), warnings


def _check_columns(other: Contents | readers.Table, own: readers.Table, path: Path) -> None:
    """Refuse unfamiliar data that do not have the columns of the data."""
    names = other.feature_names if isinstance(other, readers.Table) else ()
    if names != own.feature_names:
        raise InputError(
            f"{path} has other columns than the data beside the label's, which it needs too: "
            f"{names}, expected {own.feature_names}"
        )


def _read_archive(path: Path) -> Contents:
    arrays = readers.read_npz(path)
    keys = next((pair for pair in _KEYS if pair[0] in arrays), None)
    if keys is None:
        held = ", ".join(arrays) or "nothing"
        raise InputError(f"{path} holds {held}; an archive needs x and y, or images and labels")
    inputs, labels = keys
    where = f"{path}: {inputs!r}"
    if arrays[inputs].dtype == np.uint8:
        arrays[inputs] = readers.channels_first(arrays[inputs], where)
    y = _tensor(arrays[labels], f"{path}: {labels!r}") if labels in arrays else None
    return _tensor(arrays[inputs], where), y, None


def _tensor(array: npt.NDArray[Any], where: str) -> Tensor:
    try:
        return torch.from_numpy(array)
    except TypeError:  # such as long double
        raise InputError(f"{where} holds {array.dtype}, which torch does not know") from None
