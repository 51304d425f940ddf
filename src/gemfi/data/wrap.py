"""`as_split`: the door through which a user's own data enters, and where it gets its role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from gemfi.data.splits import AnySplit, Role, Split
from gemfi.data.streams import Feed, Stream, listed_classes, listed_labels
from gemfi.data.tensors import as_tensor
from gemfi.errors import InputError, RoleError

Array = Tensor | npt.NDArray[Any]


@overload
def as_split(
    data: Array | TensorDataset,
    y: Array | None = ...,
    *,
    role: Role | str,
    name: str = ...,
    num_classes: int | None = ...,
    class_names: tuple[str, ...] | None = ...,
    tokens: bool | None = ...,
) -> Split: ...
@overload
def as_split(
    data: Any,
    y: None = ...,
    *,
    role: Role | str,
    name: str = ...,
    num_classes: int | None = ...,
    class_names: tuple[str, ...] | None = ...,
    tokens: bool | None = ...,
    version: str = ...,
    length: int | None = ...,
) -> Stream: ...


def as_split(
    data: Any,
    y: Array | None = None,
    *,
    role: Role | str,
    name: str = "data",
    num_classes: int | None = None,
    class_names: tuple[str, ...] | None = None,
    tokens: bool | None = None,
    version: str = "",
    length: int | None = None,
) -> Split | Stream:
    """Give data a role.

    Tensors and arrays (and a `TensorDataset`) become a `Split` in memory; numpy arrays are copied,
    tensors are not. A `Dataset`, a `DataLoader` or a Hugging Face data set becomes a `Stream`,
    which is read batch by batch: its items are pairs (x, y), x alone, or mappings with a name such
    as `pixel_values`, `input_ids` or `image` for the inputs and `label` or `labels` for the labels.
    Of a loader the batch size, the workers and the collation stay; training draws the order.

    Args:
        data: (N, ...) tensor or array, or a data set or loader.
        y: (N,) labels, when `data` is a tensor or an array.
        role: what the data may be used for, for good.
        name: for messages and tables.
        num_classes: C. The default is the number of class names, or for training data the largest
            label plus one where it is known without reading; for other roles it is unknown: a small
            set may lack the last class.
        class_names: C names; by default those that the data set has.
        tokens: the inputs are token ids (N, L), for a text model. By default only what a data set
            names `input_ids` is.
        version: of a data set, a name for its state: a run resumes on the same version alone.
        length: samples of an epoch, for an iterable data set that does not know its length.

    Example:
        >>> as_split(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]), role="train")
        Split('data', role=train, x=(4, 2) torch.float32, classes=2)
    """
    role = Role.parse(role)
    if isinstance(data, AnySplit):
        raise RoleError(
            f"split {data.name!r} already has role {data.role}, and a role does not change; "
            "validation and calibration data come from train with carve"
        )
    if y is not None and is_data_set(data):
        raise InputError(f"{name!r}: a {type(data).__name__} brings its own labels; leave y out")
    if isinstance(data, TensorDataset) and len(data.tensors) <= 2:
        data, y = data.tensors[0], data.tensors[1] if len(data.tensors) == 2 else None
    if is_data_set(data):
        return _stream(data, role, name, num_classes, class_names, tokens, version, length)
    _check_container(data, name, role)
    if num_classes is None and class_names is not None:
        num_classes = len(class_names)
    inputs = as_tensor(data, f"{name!r}: x", copy=True)
    labels = None if y is None else as_tensor(y, f"{name!r}: y", copy=True)
    split = Split(inputs, labels, role, name, num_classes, class_names, tokens=bool(tokens))
    if num_classes is None and role is Role.TRAIN:
        split = replace(split, num_classes=len(split.class_counts))
    return split


def given_role(data: Any, role: Role, *, tokens: bool | None = None) -> Any:
    """A data set or a loader as a split of the role that it is given as; all else as it is."""
    named = str(role)
    return as_split(data, role=role, name=named, tokens=tokens) if is_data_set(data) else data


def is_data_set(data: object) -> bool:
    """Whether it is read batch by batch: a data set of torch or of Hugging Face, or a loader."""
    is_table = isinstance(getattr(data, "column_names", None), list)
    return isinstance(data, Dataset | DataLoader) or (is_table and hasattr(data, "with_format"))


def _stream(
    data: Any,
    role: Role,
    name: str,
    num_classes: int | None,
    class_names: tuple[str, ...] | None,
    tokens: bool | None,
    version: str,
    length: int | None,
) -> Stream:
    source = data.dataset if isinstance(data, DataLoader) else data
    class_names = listed_classes(source) if class_names is None else class_names
    if num_classes is None and class_names is not None:
        num_classes = len(class_names)
    if num_classes is None and role is Role.TRAIN:
        labels = listed_labels(source)
        num_classes = None if labels is None else int(labels.max()) + 1
    feed = Feed.of(data, name, tokens=tokens, num_classes=num_classes)
    return Stream(feed, role, name, num_classes, class_names, version, length)


def _check_container(data: Any, name: str, role: str) -> None:
    """Refuse mappings and lists of pairs, each with the line to write."""
    end = f'role="{role}")'
    if isinstance(data, Mapping):
        keys = [str(key) for key in data]
        if isinstance(getattr(data, "column_names", None), Mapping):
            line = f'as_split(data["{keys[0]}"], {end}, of one of its parts'
        else:
            line = f'as_split(data["{keys[0]}"], data["{keys[-1]}"], {end}'
        raise InputError(
            f"{name!r}: a {type(data).__name__} of {', '.join(keys[:6])}: write {line}"
        )
    first = data[0] if isinstance(data, list) and data else None
    pair = first if isinstance(first, tuple | list) and len(first) == 2 else (None,)
    if isinstance(pair[0], Tensor | np.ndarray):
        raise InputError(
            f"{name!r}: a list of pairs: write as_split(torch.stack([torch.as_tensor(x) for x, _ "
            f"in data]), torch.tensor([int(y) for _, y in data]), {end}"
        )
