"""Augmentation of a batch of images: crop, flip, rotation, colour jitter and erasing.

Plain torch on uint8 or floating-point (B, C, H, W), on any device. Each image has draws of its
own, all from one generator, so that a run repeats bit for bit. `Augmentation` makes the draws.

    x = AUGMENTATIONS["standard"](x, torch.Generator().manual_seed(0))
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from gemfi._config import check_int, check_number
from gemfi.devices import move
from gemfi.errors import InputError


@dataclass(frozen=True)
class Augmentation:
    """What is done to each image of a batch, in the order of the fields.

    Args:
        crop: pixels of reflected border, from which a window of the old size is cut.
        flip: probability of a horizontal flip. Not for digits and letters.
        rotation: largest angle in degrees; uniform between ± it, bilinear, black outside.
        jitter: brightness, contrast and saturation are scaled by factors uniform on 1 ± it. Meant
            for uint8 or for [0, 1]; floating-point results are not clipped.
        erase: probability that a rectangle is filled with the image's mean colour.
        erase_area: smallest and largest share of the image that is erased.
        erase_aspect: largest ratio of the rectangle's sides, either way.
    """

    crop: int = 0
    flip: float = 0.0
    rotation: float = 0.0
    jitter: float = 0.0
    erase: float = 0.0
    erase_area: tuple[float, float] = (0.02, 0.33)
    erase_aspect: float = 3.3

    def __post_init__(self) -> None:
        check_int("crop", self.crop, 0)
        for name, limit in (("flip", 1), ("erase", 1), ("jitter", 1), ("rotation", 180)):
            check_number(name, getattr(self, name), 0, limit)
        check_number("erase_aspect", self.erase_aspect, 1)
        low, high = self.erase_area
        if not 0 < low <= high <= 1:
            raise InputError(f"erase_area must be 0 < low <= high <= 1, got {self.erase_area}")

    @property
    def is_nothing(self) -> bool:
        """Whether images stay as they are, and nothing is drawn."""
        return not (self.crop or self.flip or self.rotation or self.jitter or self.erase)

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Augment (B, C, H, W); dtype, shape and device stay. `x` itself is not changed."""
        if not isinstance(generator, torch.Generator):
            raise InputError(f"generator must be a torch.Generator, got {type(generator).__name__}")
        self.check_images(x)
        count, _, height, width = x.shape
        source = generator.device  # draws are made there, and used where the images are

        def uniform(low: float = 0.0, high: float = 1.0) -> Tensor:
            draws = move(torch.rand(count, generator=generator, device=source), x.device)
            return low + (high - low) * draws

        if self.crop or self.flip:
            corners = [
                torch.randint(2 * self.crop + 1, (count,), generator=generator, device=source)
                for _ in range(2)
            ]
            top, left = (move(corner, x.device) for corner in corners)
            x = crop_flip(x, top, left, uniform() < self.flip, self.crop)
        if self.rotation:
            x = rotate(x, uniform(-self.rotation, self.rotation))
        if self.jitter:
            x = jitter(x, *(uniform(1 - self.jitter, 1 + self.jitter) for _ in range(3)))
        if self.erase:
            chosen = uniform() < self.erase
            area = uniform(*self.erase_area) * (height * width)
            reach = math.log(self.erase_aspect)
            aspect = uniform(-reach, reach).exp()
            tall = (area * aspect).sqrt().round().clamp(1, height).long()
            wide = (area / aspect).sqrt().round().clamp(1, width).long()
            top = (uniform() * (height - tall + 1)).long()
            left = (uniform() * (width - wide + 1)).long()
            x = erase(x, top, left, tall * chosen, wide * chosen)
        return x

    def check_images(self, x: Tensor) -> None:
        """Refuse what is not a batch of images, or of images too small for the border."""
        if x.ndim != 4 or not (x.dtype == torch.uint8 or x.is_floating_point()):
            raise InputError(
                "images must be uint8 or floating point of shape (B, C, H, W), got "
                f"{x.dtype} of shape {tuple(x.shape)}"
            )
        if self.crop >= min(x.shape[2:]):
            raise InputError(
                f"crop must be smaller than the image to be reflected: crop={self.crop}, "
                f"images of {x.shape[2]}×{x.shape[3]}"
            )


AUGMENTATIONS: Final[Mapping[str, Augmentation]] = MappingProxyType(
    {
        "none": Augmentation(),
        "standard": Augmentation(crop=4, flip=0.5),
        "daedl": Augmentation(crop=4, flip=0.5, rotation=15),
        "strong": Augmentation(crop=4, flip=0.5, rotation=15, jitter=0.4, erase=0.5),
    }
)
"""Name -> augmentation. `standard` is the usual one for CIFAR; `strong` adds colour and holes."""


def crop_flip(x: Tensor, top: Tensor, left: Tensor, flipped: Tensor, pad: int) -> Tensor:
    """Cut a window from the image with a reflected border, and mirror it: one gather for both.

    The window begins at `top` and `left`, (B,) in 0..2·pad; the edge pixel is not repeated.
    """
    count, channels, height, width = x.shape

    def reflected(index: Tensor, size: int) -> Tensor:
        index = (index - pad).abs()
        return torch.minimum(index, 2 * (size - 1) - index)

    column = torch.arange(width, device=x.device)
    column = torch.where(flipped[:, None], width - 1 - column, column)  # (B, W)
    rows = reflected(torch.arange(height, device=x.device) + top[:, None], height)  # (B, H)
    columns = reflected(column + left[:, None], width)
    source = (rows[:, :, None] * width + columns[:, None, :]).reshape(count, 1, height * width)
    flat = x.reshape(count, channels, height * width)
    return flat.gather(2, source.expand(-1, channels, -1)).reshape(x.shape)


def rotate(x: Tensor, degrees: Tensor) -> Tensor:
    """Rotate counter-clockwise about the centre by (B,) degrees, bilinearly; outside is zero."""
    angle = torch.deg2rad(degrees.to(_work_dtype(x)))
    cos, sin = angle.cos(), angle.sin()
    height, width = x.shape[2:]
    rows = torch.arange(height, device=x.device, dtype=angle.dtype) - (height - 1) / 2
    columns = torch.arange(width, device=x.device, dtype=angle.dtype) - (width - 1) / 2
    r, c = rows[None, :, None], columns[None, None, :]
    source_c = cos[:, None, None] * c - sin[:, None, None] * r  # (B, H, W)
    source_r = sin[:, None, None] * c + cos[:, None, None] * r
    grid = torch.stack([source_c * 2 / width, source_r * 2 / height], dim=3)
    turned = functional.grid_sample(x.to(angle.dtype), grid, align_corners=False)
    return _as(turned, x)


def jitter(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    """Scale brightness, then contrast about the mean grey, then saturation about each grey.

    The factors are (B,); where images do not have three channels, saturation does nothing.
    """
    b, c, s = (
        f.to(_work_dtype(x))[:, None, None, None] for f in (brightness, contrast, saturation)
    )
    y = x.to(b.dtype) * b
    mean = _grey(y).mean(dim=(2, 3), keepdim=True)
    y = mean + c * (y - mean)
    if x.shape[1] == 3:
        grey = _grey(y)
        y = grey + s * (y - grey)
    return _as(y, x)


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=x.dtype, device=x.device)
    return (x * weights[:, None, None]).sum(dim=1, keepdim=True)


def erase(x: Tensor, top: Tensor, left: Tensor, tall: Tensor, wide: Tensor) -> Tensor:
    """Fill a rectangle of each image with the image's mean colour; a side of 0 erases nothing."""
    rows = torch.arange(x.shape[2], device=x.device)
    columns = torch.arange(x.shape[3], device=x.device)
    in_rows = (rows >= top[:, None]) & (rows < (top + tall)[:, None])  # (B, H)
    in_columns = (columns >= left[:, None]) & (columns < (left + wide)[:, None])  # (B, W)
    hole = (in_rows[:, :, None] & in_columns[:, None, :])[:, None]  # (B, 1, H, W)
    mean = x.to(_work_dtype(x)).mean(dim=(2, 3), keepdim=True)
    return torch.where(hole, _as(mean, x), x)


def _work_dtype(x: Tensor) -> torch.dtype:
    """Floating point to compute in: float32 for bytes and half precision."""
    return x.dtype if x.dtype in {torch.float32, torch.float64} else torch.float32


def _as(y: Tensor, x: Tensor) -> Tensor:
    """`y` in the type of `x`; bytes are rounded and clipped."""
    return y.round_().clamp_(0, 255).to(torch.uint8) if x.dtype == torch.uint8 else y.to(x.dtype)
