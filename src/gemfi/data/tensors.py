"""`as_tensor`: what a user hands in as one dense tensor, or an error that says what to write."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from gemfi.errors import InputError


def as_tensor(value: object, what: str, *, copy: bool = False) -> Tensor:
    """A tensor as it is; a numpy array as a tensor, in this machine's byte order and strides.

    Args:
        value: a dense tensor, or an array of numbers of any byte order, strides and flags.
        what: its name in messages; the last word is that of the caller's variable.
        copy: copy an array even where its memory could be shared.
    """
    if isinstance(value, Tensor):
        require_dense(value, what)
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _from_array(value, what, copy)
    raise InputError(
        f"{what} must be a tensor or a numpy array, got {type(value).__name__}"
        f"{_remedy(value, _variable(what))}"
    )


def require_dense(value: object, what: str) -> None:
    """Refuse sparse and nested tensors, and arrays in which values are masked."""
    name = _variable(what)
    if isinstance(value, Tensor) and value.is_nested:
        raise InputError(f"{what} must be dense, got a nested tensor: write torch.stack([*{name}])")
    if isinstance(value, Tensor) and value.layout is not torch.strided:
        raise InputError(f"{what} must be dense, got {value.layout}: write {name}.to_dense()")
    if np.ma.is_masked(value):
        count = int(np.ma.count_masked(value))  # type: ignore[no-untyped-call]
        raise InputError(
            f"{what} has {count} masked values, which a model cannot leave out: write "
            f"{name}.filled(v) with a value v, or drop the rows"
        )


def _from_array(value: npt.NDArray[Any] | np.generic, what: str, copy: bool) -> Tensor:
    require_dense(value, what)
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        remedy = f": write {_variable(what)}.astype(np.float32)" if array.dtype == object else ""
        raise InputError(f"{what} must hold numbers, got dtype {array.dtype}{remedy}")
    dtype = array.dtype.newbyteorder("=")
    if dtype in (np.longdouble, np.clongdouble):  # torch has none so long
        dtype = np.dtype(np.float64 if dtype.kind == "f" else np.complex128)
    # torch takes neither negative strides nor, without a warning, what it may not write to
    if copy or not array.flags.writeable or any(step < 0 for step in array.strides):
        return torch.from_numpy(np.array(array, dtype=dtype, order="C"))
    return torch.from_numpy(np.asarray(array, dtype=dtype))


def _remedy(value: Any, name: str) -> str:
    """What to write instead of a value that is no array."""
    if isinstance(value, DataLoader | Dataset):
        return ': write as_split(data, role="test").load().x'
    for method, call in (("toarray", "toarray()"), ("to_numpy", "to_numpy()")):
        if hasattr(value, method):  # of scipy's sparse matrices; of pandas and polars
            return f": write {name}.{call}"
    if hasattr(value, "getbands"):  # an image of Pillow
        grey = len(value.getbands()) == 1
        axes = "[None]" if grey else ".transpose(2, 0, 1)"
        return f": write np.array({name}){axes}, such as transform=lambda {name}: ... of a data set"
    if isinstance(value, list | tuple):
        stacked = bool(value) and isinstance(value[0], Tensor)
        return f": write torch.{'stack' if stacked else 'tensor'}({name})"
    return ""


def _variable(what: str) -> str:
    return what.rpartition(" ")[2]
