"""What a backbone says of an input that is not for it."""

from __future__ import annotations

import math

from torch import Tensor

from gemfi.errors import InputError


def check_images(x: Tensor, name: str, channels: int, size: int) -> None:
    """Refuse what is not (B, channels, size, size)."""
    if x.ndim != 4 or tuple(x.shape[1:]) != (channels, size, size):
        raise InputError(
            f"{name} was built for images ({channels}, {size}, {size}) in a batch, got shape "
            f"{tuple(x.shape)}; set in_channels and size, or add the batch dimension"
        )


def check_rows(x: Tensor, name: str, features: int) -> None:
    """Refuse what is not (B, ...) with `features` numbers a sample."""
    if x.ndim < 2 or math.prod(x.shape[1:]) != features:
        raise InputError(
            f"{name} was built for {features} numbers a sample in a batch, got shape "
            f"{tuple(x.shape)}; set in_features, or add the batch dimension"
        )
