"""`as_split`: the door through which a user's own data enters, and where it gets its role."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sized
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from gemfi.data.splits import Role, Split
from gemfi.data.tensors import as_tensor
from gemfi.errors import GemfiWarning, InputError, RoleError, user_level

Array = Tensor | npt.NDArray[Any]
Pair = tuple[Tensor, Tensor | None]

_LABELS = ("label", "labels", "target", "targets", "y", "class", "fine_label", "coarse_label")
_READ_AGAIN = 32  # samples, to see whether they are the same again


def as_split(
    data: Array | Dataset[Any] | DataLoader[Any],
    y: Array | None = None,
    *,
    role: Role | str,
    name: str = "data",
    num_classes: int | None = None,
    class_names: tuple[str, ...] | None = None,
    tokens: bool = False,
) -> Split:
    """Wrap data with a role.

    A `Dataset` or `DataLoader` of (x, y) pairs, or of x alone for data without labels, is read
    into memory once, in the order it gives; a loader that shuffles is refused. Random transforms
    are frozen by that, so a few samples are read twice, with a warning if they differ. Numpy
    arrays are copied, tensors are not.

    Args:
        data: (N, ...) tensor or array, or a Dataset or DataLoader.
        y: (N,) labels, when `data` is a tensor or an array.
        role: what the data may be used for, for good.
        name: for messages and tables.
        num_classes: C. The default is the number of class names; without them, for training data
            the largest label plus one, and for other roles unknown: a small set may lack the last
            class.
        class_names: C names.
        tokens: the inputs are token ids (N, L), for a text model.

    Example:
        >>> as_split(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]), role="train")
        Split('data', role=train, x=(4, 2) torch.float32, classes=2)
    """
    role = Role.parse(role)
    if isinstance(data, Split):
        raise RoleError(
            f"split {data.name!r} already has role {data.role}, and a role does not change; "
            "validation and calibration data come from train with carve"
        )
    if isinstance(data, Dataset | DataLoader):
        if y is not None:
            raise InputError(
                f"{name!r}: a {type(data).__name__} brings its own labels; leave y out"
            )
        inputs, labels = _materialise(data, name)
    else:
        _check_container(data, name, role)
        inputs = as_tensor(data, f"{name!r}: x", copy=True)
        labels = None if y is None else as_tensor(y, f"{name!r}: y", copy=True)
    if num_classes is None and class_names is not None:
        num_classes = len(class_names)
    split = Split(inputs, labels, role, name, num_classes, class_names, tokens=tokens)
    if isinstance(data, Dataset | DataLoader):
        _warn_if_random(data, split)
    if num_classes is None and role is Role.TRAIN:
        split = replace(split, num_classes=len(split.class_counts))
    return split


def _warn_if_random(data: Dataset[Any] | DataLoader[Any], split: Split) -> None:
    """Read the first samples again, and warn if they are others now."""
    start = 0
    for x, _ in _batches(data, split.name):
        before = split.x[start : start + len(x)]
        if x.shape != before.shape or not torch.equal(x.to(before), before):
            break
        start += len(x)
        if start >= _READ_AGAIN:
            return
    else:
        return
    remedy = "read them without random transforms"
    if split.role is Role.TRAIN:
        remedy += ", and augment with TrainConfig(augmentation=...)"
    warnings.warn(
        f"{split.name!r}: the {type(data).__name__} gives other samples at each reading, but a "
        f"split is read once, so every epoch would see the same draw; {remedy}",
        GemfiWarning,
        stacklevel=user_level(),
    )


def _batches(data: Dataset[Any] | DataLoader[Any], name: str) -> Iterator[Pair]:
    return _loader_batches(data, name) if isinstance(data, DataLoader) else _items(data, name)


def _materialise(data: Dataset[Any] | DataLoader[Any], name: str) -> Pair:
    inputs: list[Tensor] = []
    labels: list[Tensor] = []
    for index, (x, y) in enumerate(_batches(data, name)):
        if inputs and (x.shape[1:], x.dtype) != (inputs[0].shape[1:], inputs[0].dtype):
            raise InputError(
                f"{name!r}: x changes from {tuple(inputs[0].shape[1:])} {inputs[0].dtype} to "
                f"{tuple(x.shape[1:])} {x.dtype} at position {index}; all must agree"
            )
        if y is not None and len(y) != len(x):
            raise InputError(f"{name!r}: batch {index} has {len(x)} samples, but {len(y)} labels")
        if y is not None:
            labels.append(y)
        inputs.append(x)
        if labels and len(labels) != len(inputs):
            raise InputError(f"{name!r}: some items have labels and some do not (position {index})")
    if not inputs:
        raise InputError(f"{name!r}: the {type(data).__name__} is empty; expected (x, y) pairs")
    return torch.cat(inputs), torch.cat(labels) if labels else None


def _loader_batches(loader: DataLoader[Any], name: str) -> Iterator[Pair]:
    if loader.drop_last:
        raise InputError(
            f"{name!r}: the DataLoader has drop_last=True and would lose samples; write "
            "as_split(loader.dataset, role=...)"
        )
    batches = getattr(loader.batch_sampler, "sampler", None)
    if isinstance(loader.sampler, RandomSampler) or isinstance(batches, RandomSampler):
        raise InputError(
            f"{name!r}: the DataLoader shuffles, so that no second reading would give the same "
            "split and no run could be resumed; write as_split(loader.dataset, role=...) (training "
            "shuffles by itself)"
        )
    for index, batch in enumerate(loader):
        x, y = _pair(batch, f"{name!r}: batch {index}", batched=True)
        unclear = y is None and loader.batch_sampler is None  # x alone: a sample or a batch?
        if unclear or x.ndim == 0 or (y is not None and y.ndim == 0):
            raise InputError(
                f"{name!r}: the DataLoader gives samples, not batches; write "
                "as_split(loader.dataset, role=...)"
            )
        yield x, y


def _items(dataset: Dataset[Any], name: str) -> Iterator[Pair]:
    # Not through a DataLoader: that would draw from the global generator and collate by guessing.
    items: Iterator[Any]
    if isinstance(dataset, IterableDataset):
        items = iter(dataset)
    elif isinstance(dataset, Sized):
        items = (dataset[index] for index in range(len(dataset)))
    else:
        raise InputError(f"{name!r}: the {type(dataset).__name__} has no __len__")
    for index, item in enumerate(items):
        x, y = _pair(item, f"{name!r}: item {index}")
        if y is not None and y.numel() != 1:
            raise InputError(
                f"{name!r}: item {index} must have one label, got shape {tuple(y.shape)}"
            )
        yield x[None], None if y is None else y.reshape(1)


def _pair(item: Any, where: str, *, batched: bool = False) -> Pair:
    if isinstance(item, Mapping):
        _refuse_mapping(item, where, batched=batched)
    parts = item if isinstance(item, tuple | list) else (item,)
    if len(parts) not in (1, 2):
        raise InputError(f"{where}: expected (x, y) or x alone, got {len(parts)} parts")
    x = as_tensor(parts[0], f"{where}: x")
    if len(parts) == 1:
        return x, None
    label = torch.tensor(parts[1]) if isinstance(parts[1], int | float) else parts[1]
    return x, as_tensor(label, f"{where}: y")


def _check_container(data: Any, name: str, role: str) -> None:
    """Refuse mappings, Hugging Face data sets and lists of pairs, each with the line to write."""
    end = f'role="{role}")'
    columns = getattr(data, "column_names", None)
    if hasattr(data, "with_format") and isinstance(columns, list):
        x, y, tokens = _columns(columns)
        raise InputError(
            f"{name!r}: a Hugging Face data set of {', '.join(columns)} is not read by itself; "
            f'write rows = data.with_format("torch")[:], then '
            f'as_split(rows["{x}"], rows["{y}"], {tokens}{end}'
        )
    if isinstance(data, Mapping):
        x, y, tokens = _columns(list(data))
        if isinstance(columns, Mapping):
            line = f'data = data["{x}"], which is one of its parts, and give that to as_split'
        else:
            line = f'as_split(data["{x}"], data["{y}"], {tokens}{end}'
        raise InputError(f"{name!r}: a {type(data).__name__} of {_keys(data)}: write {line}")
    if _is_pairs(data):
        x, y = (
            f"{_join(data[0][place], 'stack')}([pair[{place}] for pair in data])"
            for place in (0, 1)
        )
        raise InputError(f"{name!r}: a list of pairs: write as_split({x}, {y}, {end}")


def _is_pairs(data: Any) -> bool:
    first = data[0] if isinstance(data, list) and data else None
    if not isinstance(first, tuple | list) or len(first) != 2:
        return False
    return isinstance(first[0], Tensor | np.ndarray)


def _refuse_mapping(item: Mapping[Any, Any], where: str, *, batched: bool) -> None:
    """Refuse an item of a data set or a batch of a loader that has names in place of an order."""
    part, source = ("batch", "loader") if batched else ("item", "data")
    x, y, tokens = _columns(list(item))
    how = "cat" if batched else "stack"
    made = ", ".join(
        f'{_join(item[key], how)}([{part}["{key}"] for {part} in {source}])' for key in (x, y)
    )
    raise InputError(
        f"{where} is a {type(item).__name__} of {_keys(item)}, and as_split takes pairs (x, y): "
        f"write as_split({made}, {tokens}role=...)"
    )


def _columns(names: list[Any]) -> tuple[Any, Any, str]:
    """The names of what look like the inputs and the labels, and the option for token ids."""
    label = next((name for name in names if str(name).lower() in _LABELS), names[-1])
    if "input_ids" in names:
        return "input_ids", label, "tokens=True, "
    return next((name for name in names if name != label), names[0]), label, ""


def _join(value: Any, how: str) -> str:
    """The function that makes one array or tensor of a list of such values."""
    if isinstance(value, Tensor):
        return f"torch.{how}"
    if isinstance(value, np.ndarray):
        return "np.concatenate" if how == "cat" else "np.stack"
    return "torch.tensor"


def _keys(item: Mapping[Any, Any]) -> str:
    shown = [str(key) for key in item]
    return ", ".join(shown[:6]) + (", ..." if len(shown) > 6 else "")
