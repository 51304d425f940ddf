"""What the header of a bundle says: all but numbers that are tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gemfi._config import from_plain, to_plain
from gemfi.backbones import Blueprint
from gemfi.data.columns import Columns
from gemfi.errors import InputError
from gemfi.methods import method
from gemfi.methods.upgrade import upgraded

LARGEST_SAMPLE: Final = 1 << 26
"""Numbers of one input, which nothing else in a file may bound: a quarter of a gigabyte."""


@dataclass(frozen=True)
class Description:
    """A model in words and small numbers.

    Attributes:
        method: a name in `METHODS`.
        config: the method's configuration; None for a method without choices.
        backbone: by name and arguments; None for a module of somebody's own.
        network: the class of the backbone, for people.
        num_features: D of the features.
        class_names: of the C classes.
        sample_shape: of one input; None if the model was never trained, or takes texts.
        sample_dtype: of the inputs, such as `uint8`; None if it is not known.
        dtype: of the weights.
        channels: how many means and spreads the normalisation of the inputs has; None for none.
        temperature: whether beliefs have a temperature.
        feature_names: of the numbers, where an input is a row of a table.
        columns: of a table, where they are not the numbers themselves: categories, missing values.
        policy: the policy in plain values, without its reference.
        metrics: numbers of the model, by whatever names.
        provenance: where it comes from: environment, and spec, data and training of a run.
    """

    method: str
    config: Any
    backbone: Blueprint | None
    network: str
    num_features: int
    class_names: tuple[str, ...]
    sample_shape: tuple[int, ...] | None
    sample_dtype: str | None
    dtype: Literal["float32", "float64"] = "float32"
    channels: int | None = None
    temperature: bool = False
    feature_names: tuple[str, ...] | None = None
    columns: Columns | None = None
    policy: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_names)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], where: str) -> Description:
        """The inverse; anything that is not known is refused by name."""
        if not isinstance(plain.get("method"), str):
            raise InputError(f"{where}: field method is missing")
        name, config = upgraded(plain["method"], plain.get("config"))
        kind = type(method(name).default_config())
        found = from_plain(cls, {**plain, "method": name, "config": config}, where, config=kind)
        found.check(where)
        return found

    def check(self, where: str) -> None:
        """Refuse what cannot be."""
        _check_shape(self.sample_shape or (), f"{where}.sample_shape")
        if self.sample_dtype not in {None, "uint8", "int64", "float16", "float32", "float64"}:
            raise InputError(f"{where}.sample_dtype: unknown type {self.sample_dtype!r}")
        columns = self.sample_shape
        if self.feature_names is not None and columns != (len(self.feature_names),):
            raise InputError(
                f"{where}.feature_names: {len(self.feature_names)} names for inputs of shape "
                f"{columns}"
            )
        if self.columns is not None and self.columns.outputs != self.feature_names:
            raise InputError(f"{where}.columns: they do not become the numbers of feature_names")


def _check_shape(shape: tuple[int, ...], where: str) -> None:
    if len(shape) > 8 or any(each < 1 for each in shape):
        raise InputError(f"{where}: expected at most 8 sizes above 0")
    if math.prod(shape) > LARGEST_SAMPLE:
        raise InputError(
            f"{where}: an input of {math.prod(shape):,} numbers, and {LARGEST_SAMPLE:,} is the "
            "limit of a bundle"
        )
