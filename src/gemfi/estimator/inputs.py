"""What a user hands in, as arrays; and the standardisation of their columns or channels."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from gemfi.data.columns import Columns
from gemfi.data.tensors import require_dense
from gemfi.errors import InputError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
T = TypeVar("T")

CHUNK = 1 << 22  # numbers that are held in float64 at a time: 32 MiB
ROWS = 1 << 14  # samples likewise, since a belief on one may be larger than the sample


def without_torch(data: Any, name: str = "X") -> Any:
    """A tensor as an array, on the CPU and without gradients; anything else as it is.

    Args:
        data: of any kind.
        name: of the argument, for messages.
    """
    require_dense(data, name)
    if not isinstance(data, Tensor):
        return data
    tensor = data.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def as_frame(columns: dict[str, Floats], index: Any) -> Any:
    """Named columns as a data frame of pandas; None numbers the rows."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        raise InputError("data frames need pandas: pip install pandas") from None
    return pandas.DataFrame(columns, index=index)


def check_samples(x: Array) -> None:
    """Refuse what is neither rows nor images."""
    if x.ndim not in {2, 4}:
        raise InputError(
            f"X must be rows (N, D) or images (N, C, H, W), got shape {x.shape}; flatten each "
            "sample with X.reshape(len(X), -1)"
        )


def chunks(x: Array) -> Iterator[Array]:
    """The samples in pieces of bounded size, each a copy in float64, row by row."""
    rows = max(1, min(ROWS, CHUNK // max(1, x[:1].size)))
    for start in range(0, len(x), rows):
        yield np.array(x[start : start + rows], dtype=np.float64, order="C")


def joined(parts: Sequence[T]) -> T:
    """One record of arrays from several of one kind, in order; what is None stays so."""
    first: Any = parts[0]
    values = {
        each.name: None
        if getattr(first, each.name) is None
        else np.concatenate([getattr(part, each.name) for part in parts])
        for each in fields(first)
    }
    found: T = replace(first, **values)
    return found


@dataclass(frozen=True, eq=False)
class Scaling:
    """(x − mean) / std along axis 1, in float64.

    Float64, since a column such as a time in seconds has all its spread in digits that float32
    does not hold.

    Attributes:
        mean: (C,) of each column of rows, or of each channel of images.
        std: (C,) likewise, over all samples; 1 for what does not vary.
    """

    mean: Floats
    std: Floats

    @classmethod
    def of(cls, x: Array, columns: Columns | None = None) -> Scaling:
        """From training samples (N, C) or (N, C, H, W); indicators of `columns` stay 0 and 1."""
        scaler = StandardScaler()
        with np.errstate(over="ignore", invalid="ignore"):
            for piece in chunks(x):
                scaler.partial_fit(np.moveaxis(piece, 1, -1).reshape(-1, x.shape[1]))
        bad = ~(np.isfinite(scaler.mean_) & np.isfinite(scaler.scale_))
        if bad.any():
            raise InputError(
                f"column {int(bad.argmax())} of X has values too far apart for a standard "
                "deviation in float64: scale it, or take its logarithm"
            )
        if columns is not None:
            return cls(*columns.unscaled(scaler.mean_, scaler.scale_))
        return cls(scaler.mean_, scaler.scale_)

    def apply(self, x: Array) -> Tensor:
        """Standardised samples as float32."""
        shape = (-1, *(1 for _ in x.shape[2:]))
        mean, std = self.mean.reshape(shape), self.std.reshape(shape)
        found = torch.empty(x.shape)
        start = 0
        for piece in chunks(x):
            found[start : start + len(piece)] = torch.from_numpy((piece - mean) / std)
            start += len(piece)
        return found
