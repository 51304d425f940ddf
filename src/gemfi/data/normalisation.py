"""Normalisation of inputs: subtract a mean and divide by a spread, one of each a channel.

The numbers come from training data alone, and go with the model: its weights carry them, so that
it is asked with the same raw inputs that it was trained on.

    normalisation = Normalisation.of(task.train)
    model = build_model("gem-fi", "convnet", 10, normalisation=normalisation)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gemfi.data.splits import AnySplit, require_use
from gemfi.errors import InputError

_ROWS, _SHARE = 10, 0.8  # rows that tell of a scale, and how many of them must be far
_COLUMNS, _DEVIATIONS = 0.25, 3  # how many of a row's columns, and how far they must be
CHUNK = 1 << 22  # numbers held in float64 at a time while a split is read: 32 MiB
_SMALLEST, _LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation along axis 1: of channels (B, C, H, W), or features (B, D).

    Bytes are in units of [0, 1], as a model sees them.

    Args:
        mean: what is subtracted; numbers that float32 can hold.
        std: what is divided by, each above zero.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            try:
                numbers = tuple(float(value) for value in values)
            except (TypeError, ValueError):
                raise InputError(f"{name} must be a sequence of numbers, got {values!r}") from None
            for index, value in enumerate(numbers):
                if not abs(value) <= _LARGEST:  # NaN too
                    raise InputError(
                        f"{name} must be finite in float32, got {value} at index {index}"
                    )
            object.__setattr__(self, name, numbers)
        if not self.mean or len(self.mean) != len(self.std):
            raise InputError(
                "a normalisation needs one mean and one std for each channel or feature, got "
                f"{len(self.mean)} and {len(self.std)}"
            )
        for index, std in enumerate(self.std):
            if std < _SMALLEST:
                raise InputError(
                    f"std must be above zero, got {std} at index {index}; what does not vary "
                    "takes std 1"
                )

    @classmethod
    def of(cls, split: AnySplit) -> Normalisation:
        """The mean and standard deviation (over N, not N − 1) of training images or rows.

        They are read in pieces, in float64. A channel or feature that does not vary gets std 1.
        """
        x = require_use(split, "statistics").first(1)
        if x.ndim not in {2, 4}:
            raise InputError(
                f"split {split.name!r}: expected images (N, C, H, W) or rows (N, D) to normalise, "
                f"got samples {tuple(x.shape[1:])}; for others give Normalisation(mean, std), of "
                "axis 1"
            )
        mean, variance = _moments(split, x)
        # Bytes are divided here and not one by one: so a constant one has a variance of exactly 0.
        unit = 255 if x.dtype == torch.uint8 else 1
        std = variance.sqrt() / unit
        std = torch.where(std < _SMALLEST, 1.0, std)
        return cls(_rounded(mean / unit), _rounded(std))

    def tensors(self) -> tuple[Tensor, Tensor]:
        """`mean` and `std` as tensors (C,)."""
        return torch.tensor(self.mean), torch.tensor(self.std)


def standardised(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x − mean) / std along axis 1 of a batch."""
    check_channels(x, len(mean))
    shape = (-1, *(1 for _ in x.shape[2:]))
    return (x - mean.reshape(shape)) / std.reshape(shape)


def check_channels(x: Tensor, count: int) -> None:
    """Refuse a batch that does not have `count` channels or features on axis 1."""
    if x.ndim < 2 or x.shape[1] != count:
        raise InputError(
            f"this model normalises inputs of {count} channels or features, (B, {count}, H, W) or "
            f"(B, {count}), got shape {tuple(x.shape)}; a single input needs a batch dimension "
            "(x[None]), other inputs a model with a normalisation of their own"
        )


def is_on_another_scale(x: Tensor, mean: Tensor, std: Tensor) -> bool:
    """Whether rows look as if they had not gone through the preprocessing of the training data.

    In more than 80 % of at least ten rows (N, D), a quarter of the columns (and two of them, where
    there are two) are more than three deviations from their mean. Of 42 real tables with their
    columns standardised, 27 asked with raw rows are found (in the others many columns have nearly
    unit scale as they are); of 189 classes alone none is taken for it, and of 488 divisions of a
    table in halves by one of its columns, one.
    """
    if len(x) < _ROWS:
        return False
    columns = x.shape[1]
    needed = min(columns, max(2, math.ceil(_COLUMNS * columns)))
    far = ((x - mean).abs() > _DEVIATIONS * std).sum(dim=1) >= needed
    return bool(far.double().mean() > _SHARE)


def _moments(split: AnySplit, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (C,) over all axes but 1."""
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415 - slow to import

    scaler = StandardScaler()
    for piece, _ in split.walk(max(1, CHUNK // x[0].numel())):
        scaler.partial_fit(
            piece.cpu().to(torch.float64).movedim(1, -1).reshape(-1, x.shape[1]).numpy()
        )
    return torch.from_numpy(scaler.mean_), torch.from_numpy(scaler.var_)


def _rounded(values: Tensor) -> tuple[float, ...]:
    """Nine digits are all that float32 holds; those beyond depend on the number of threads.

    With them, a run could not be resumed on another machine.
    """
    return tuple(float(f"{value:.9g}") for value in values.tolist())
