"""A user's own files as a task: a folder of images, an npz archive, a CSV or parquet table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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

Paths = Mapping[str, Path | str]


@dataclass(frozen=True)
class _Options:
    """How files are to be read."""

    label: str | int
    drop: tuple[str, ...]
    keep: tuple[str, ...]
    size: int | None
    grey: bool


@dataclass(frozen=True)
class _Source:
    """What a file or folder holds; all but the inputs where there is such a thing."""

    x: Tensor
    y: Tensor | None = None
    class_names: tuple[str, ...] | None = None
    table: readers.Table | None = None
    columns: Columns | None = None  # of a table, as the model takes them
    warnings: tuple[ColumnWarning, ...] = ()


def task_from_path(
    path: Path | str,
    *,
    label: str | int = -1,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    size: int | None = None,
    grey: bool = False,
    ood_validation: Paths | None = None,
    ood_test: Paths | None = None,
) -> Task:
    """Cut a labelled set in one file or folder into the four splits of a task.

    A fifth is held out for test, a tenth each for validation and calibration, always the same.
    Rows and images are normalised with the mean and the spread of the training part.

    - a folder has a sub-folder of images for each class;
    - `.npz` holds `x` and `y`, or `images` and `labels`: (N, ...) numbers or uint8 images, and
      labels counted from 0;
    - `.csv` and `.parquet` hold a column for each feature, of numbers or of text, and one for the
      label; see `Columns` for categories and missing cells.

    Args:
        path: the file or folder.
        label: of a table, the column of the labels, by name or index; the last by default.
        drop: of a table, columns to leave out.
        keep: of a table, columns to learn from though they look like a leak; see `leaks`.
        size: of a folder, make every image size × size, cropped to a square.
        grey: of a folder, read one channel in place of three.
        ood_validation: name -> a file or folder of the same kind, for tuning. Its labels do not
            matter, but a table needs the column all the same.
        ood_test: likewise; to report.
    """
    path, options = Path(path), _Options(label, tuple(drop), tuple(keep), size, grey)
    _check_options(path, options)
    _check_places({"the data": [path], "--ood-validation": ood_validation, "--ood-test": ood_test})
    own, y, names = _labelled(_read(path, options), path)
    splits = cut(own.x, y, names, path.name)
    tuning = _outside(ood_validation, Role.OOD_VALIDATION, options, own, path)
    report = _outside(ood_test, Role.OOD_TEST, options, own, path)
    for name, split in report.items():
        _check_other(split.x, {other: tuned.x for other, tuned in tuning.items()}, name)
    normalised = own.x.ndim in {2, 4}  # which axis of others holds channels, no one can tell
    return Task(
        path.name,
        names,
        train=splits[Role.TRAIN],
        validation=splits[Role.VALIDATION],
        calibration=splits[Role.CALIBRATION],
        test=splits[Role.TEST],
        ood_validation=tuning,
        ood_test=report,
        normalisation=_normalisation(splits[Role.TRAIN], own.columns) if normalised else None,
        columns=own.columns,
        label_name=None if own.table is None else own.table.label_name,
        warnings=own.warnings,
    )


def _normalisation(train: Split, columns: Columns | None) -> Normalisation:
    own = Normalisation.of(train)
    if columns is None:
        return own
    mean, std = columns.unscaled(own.mean, own.std)
    return Normalisation(tuple(mean.tolist()), tuple(std.tolist()))


def _check_options(path: Path, options: _Options) -> None:
    """Refuse an option that says nothing about files of this options."""
    table, folder = path.suffix.lower() in _TABLES and not path.is_dir(), path.is_dir()
    if not path.exists():
        return  # which is said when it is read
    if (options.label != -1 or options.drop or options.keep) and not table:
        raise InputError(
            f"label, drop and keep (--label, --drop, --keep) are for tables, .csv and .parquet, "
            f"but {path} is not one; leave them out"
        )
    if (options.size is not None or options.grey) and not folder:
        raise InputError(
            f"size and grey (--size, --grey) are for folders of images, but {path} is not one; "
            "leave them out"
        )


def _check_places(groups: Mapping[str, Paths | list[Path] | None]) -> None:
    """Refuse one path in two groups."""
    seen: dict[Path, str] = {}
    for group, paths in groups.items():
        places = paths.values() if isinstance(paths, Mapping) else paths or ()
        resolved = {Path(place).resolve() for place in places}
        for place in resolved:
            if place in seen:
                raise InputError(f"{place} is given as {seen[place]} and as {group}: {_ONE_FILE}")
        seen |= dict.fromkeys(resolved, group)


def _check_other(x: Tensor, others: Mapping[str, Tensor], name: str) -> None:
    """Refuse the same samples under two names."""
    for other, samples in others.items():
        if x.dtype == samples.dtype and torch.equal(x, samples):
            raise InputError(f"{name!r} holds the same samples as {other!r}: {_ONE_FILE}")


def _outside(
    paths: Paths | None, role: Role, options: _Options, own: _Source, path: Path
) -> dict[str, Split]:
    """Files of unfamiliar data, by name."""
    splits: dict[str, Split] = {}
    for name, place in (paths or {}).items():
        splits[name] = Split(_read(Path(place), options, own).x, None, role, name)
        _check_other(splits[name].x, {path.name: own.x}, name)
    return splits


def _labelled(source: _Source, path: Path) -> tuple[_Source, Tensor, tuple[str, ...]]:
    """What was read, its labels and the names of its classes, which an archive only counts."""
    if source.y is None:
        raise InputError(f"{path} has no labels: {_expected(path)}")
    whole = Split(source.x, source.y, Role.TRAIN, path.name)  # says what is wrong with them
    names = source.class_names
    if names is None:
        largest = int(whole.labels.max())
        if largest >= len(whole):  # to count them would take as much memory
            raise InputError(
                f"{path} has a label {largest}, but {len(whole)} samples: number the classes "
                "0, 1, 2, ..."
            )
        unused = (whole.class_counts == 0).nonzero()[:, 0]
        if len(unused):
            raise InputError(
                f"{path} has labels up to {largest}, but none is {int(unused[0])}: number the "
                "classes 0, 1, 2, ... without gaps"
            )
        names = tuple(str(number) for number in range(largest + 1))
    if len(names) < 2:
        raise InputError(
            f"{path} has samples of one class, {names[0]!r}, and a classifier needs at least two; "
            "of a table, is --label the right column?"
        )
    return replace(source, x=whole.x), whole.labels, names


def _read(path: Path, options: _Options, own: _Source | None = None) -> _Source:
    """Read a file or folder; `own` is what was read of the data, if this is unfamiliar data."""
    suffix = path.suffix.lower()
    if path.is_dir():
        mode: Literal["L", "RGB"] = "L" if options.grey else "RGB"
        crop = options.size is not None
        pictures = readers.read_image_folder(path, size=options.size, mode=mode, crop=crop)
        y = None if pictures.labels is None else torch.from_numpy(pictures.labels)
        return _Source(torch.from_numpy(pictures.images), y, pictures.class_names)
    if suffix in _TABLES:
        table = _TABLES[suffix](path, label=options.label)
        return _own_table(table, path, options) if own is None else _other_table(table, path, own)
    if suffix == ".npz":
        return _read_archive(path)
    if path.exists():
        raise InputError(f"{path}: {_FORMATS}")
    raise InputError(f"{path} does not exist; {_FORMATS}")


def _own_table(table: readers.Table, path: Path, options: _Options) -> _Source:
    """The table to learn from: its columns are fitted on the training part."""
    assert table.labels is not None  # noqa: S101 - a column of them was asked for
    assert table.class_names is not None  # noqa: S101 - likewise
    y = torch.from_numpy(table.labels)
    train = cut_rows(y, table.class_names, path.name)[Role.TRAIN].numpy()
    try:
        cells, warnings = checked_columns(
            table.columns, table.labels, train, drop=options.drop, keep=options.keep
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    columns = Columns.fit(cells, train)
    x = columns.encode_all(cells, lambda row: f"{path}, row {row}")
    return _Source(torch.from_numpy(x).float(), y, table.class_names, table, columns, warnings)


def _other_table(table: readers.Table, path: Path, own: _Source) -> _Source:
    """A table of unfamiliar data: the same columns, made into the same numbers."""
    expected = None if own.table is None else own.table.feature_names
    if own.columns is None or table.feature_names != expected:
        raise InputError(
            f"{path} has other columns than the data beside the label's, which it needs too: "
            f"{table.feature_names}, expected {expected}"
        )
    x = own.columns.encode_all(table.columns, lambda row: f"{path}, row {row}")
    return _Source(torch.from_numpy(x).float(), table=table, columns=own.columns)


def _read_archive(path: Path) -> _Source:
    arrays = readers.read_npz(path)
    pair = next((pair for pair in _KEYS if pair[0] in arrays), None)
    if pair is None:
        held = ", ".join(arrays) or "nothing"
        raise InputError(f"{path} holds {held}; {_expected(path)}")
    inputs, labels = pair
    images = arrays[inputs]
    if images.dtype == np.uint8:
        images = readers.channels_first(images, f"{path}: {inputs!r}")
    x = _tensor(images, f"{path}: {inputs!r}")
    if labels not in arrays:
        return _Source(x)
    return _Source(x, _tensor(arrays[labels], f"{path}: {labels!r}"))


def _tensor(array: npt.NDArray[Any], where: str) -> Tensor:
    try:
        return torch.from_numpy(array)
    except TypeError:  # such as long double
        raise InputError(f"{where} holds {array.dtype}, which torch does not know") from None


def _expected(path: Path) -> str:
    if path.is_dir():
        return "a folder needs a sub-folder for each class, with its images"
    return "an archive needs x and y, or images and labels"
