"""InputSpec: what a model takes and tells apart, in one record."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import torch
from torch import Tensor

from gemfi.data.columns import Columns
from gemfi.data.splits import AnySplit
from gemfi.errors import InputError

LARGEST_SAMPLE: Final = 1 << 26
"""Numbers of one input, which nothing else in a file may bound: a quarter of a gigabyte."""

DTYPES: Final = ("uint8", "int64", "float16", "float32", "float64")


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """The inputs and classes of a model, as far as they are known.

    A `Model` holds one as `model.inputs`; bundles and records of runs have its fields among their
    own. The normalisation is not here, because it is made of weights: see `Model.input_mean`.

    Attributes:
        class_names: of the C classes.
        sample_shape: of one input; None before training, and for texts, which have any length.
        sample_dtype: of the inputs, such as `uint8`; None if it is not known.
        feature_names: of the numbers, where an input is a row of a table.
        columns: of a table, where they are not the numbers themselves: categories, missing values.
    """

    class_names: tuple[str, ...] | None = None
    sample_shape: tuple[int, ...] | None = None
    sample_dtype: str | None = None
    feature_names: tuple[str, ...] | None = None
    columns: Columns | None = None

    @property
    def inputs(self) -> InputSpec:
        """These fields alone, of a record that has more."""
        return InputSpec(**{field.name: getattr(self, field.name) for field in fields(InputSpec)})

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """`sample_dtype` as torch has it."""
        return None if self.sample_dtype is None else getattr(torch, self.sample_dtype)

    def trained_on(self, split: AnySplit) -> Self:
        """The same with the shape and type of the samples of a split."""
        x = split.first(1)
        shape = None if split.tokens else tuple(x.shape[1:])
        return replace(self, sample_shape=shape, sample_dtype=dtype_name(x))

    def with_columns(self, columns: Columns | None) -> Self:
        """The same with the columns of a table; plain numbers leave their names alone."""
        if columns is None:
            return self
        kept = None if columns.is_plain else columns
        return replace(self, feature_names=tuple(columns.outputs), columns=kept)

    def check_samples(self, x: Tensor) -> None:
        """Refuse a batch (B, ...) of another shape or scale than the training data.

        Beliefs on inputs of another scale mean nothing.
        """
        if self.sample_shape is not None and tuple(x.shape[1:]) != self.sample_shape:
            raise InputError(
                f"this model was trained on inputs {self.sample_shape} in a batch, got shape "
                f"{tuple(x.shape)}; a single input needs a batch dimension: x[None]"
            )
        if x.dtype != torch.uint8 and not x.is_floating_point():
            raise InputError(f"inputs must be floating point, or uint8 images, got {x.dtype}")
        if self.sample_dtype is None:
            return
        if x.dtype == torch.uint8 and self.sample_dtype != "uint8":
            raise InputError(
                "this model was trained on floating-point inputs, and bytes would be scaled to "
                "[0, 1]: convert them as the training data were"
            )
        if self.sample_dtype == "uint8" and x.dtype != torch.uint8 and bool((x > 1).any()):
            raise InputError(
                "this model was trained on bytes, which it scales to [0, 1], but these reach "
                f"{float(x.max()):g}: pass uint8, or divide by 255"
            )

    def check(self, where: str) -> None:
        """Refuse what cannot be, in a record (`where`) that a stranger may have written."""
        shape = self.sample_shape or ()
        if len(shape) > 8 or any(size < 1 for size in shape):
            raise InputError(f"{where}.sample_shape: expected at most 8 sizes above 0")
        if math.prod(shape) > LARGEST_SAMPLE:
            raise InputError(
                f"{where}.sample_shape: an input of {math.prod(shape):,} numbers, and "
                f"{LARGEST_SAMPLE:,} is the limit of a bundle"
            )
        if self.sample_dtype not in {None, *DTYPES}:
            raise InputError(f"{where}.sample_dtype: unknown type {self.sample_dtype!r}")
        names = self.feature_names
        if names is not None and self.sample_shape != (len(names),):
            raise InputError(
                f"{where}.feature_names: {len(names)} names for inputs of shape {self.sample_shape}"
            )
        if self.columns is not None and self.columns.outputs != names:
            raise InputError(f"{where}.columns: they do not become the numbers of feature_names")


def dtype_name(x: Tensor) -> str:
    """The type of a tensor without its package, such as `float32`."""
    return str(x.dtype).removeprefix("torch.")
