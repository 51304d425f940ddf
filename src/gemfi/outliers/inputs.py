"""Outliers made of inputs: training samples taken apart and put together wrongly.

They go through the backbone like any input, so that it learns to tell them from the data, which no
outlier in feature space can teach it. Everything is drawn from one generator, and nothing but the
batch itself is read. To add a way of scrambling images, write a function and list it in `IMAGES`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Scramble = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""(B, C, H, W) images and as many of other classes to (B, C, H, W) outliers of the same type."""

_SMALLEST = 4  # images of fewer pixels a side are scrambled like vectors


def scramble(x: Tensor, y: Tensor, count: int, generator: torch.Generator) -> Tensor | None:
    """`count` outliers (count, ...) from a batch; None where it has one class only, or for 0.

    Images are shuffled, mixed, joined, tiled or stripped of their phases, each with the same
    probability; anything else has a part of its coordinates from a sample of another class.

    Args:
        x: (B, ...) inputs of any type, as the model takes them.
        y: (B,) labels.
        count: how many.
        generator: of all draws.
    """
    if count == 0:
        return None
    chosen = torch.randint(len(x), (count,), generator=generator).to(x.device)
    partner = _of_another_class(y, chosen, generator)
    if partner is None:
        return None
    if x.ndim != 4 or min(x.shape[2:]) < _SMALLEST:
        return exchange(x[chosen], x[partner], generator)
    kind = torch.randint(len(IMAGES), (count,), generator=generator).to(x.device)
    result = torch.empty_like(x[chosen])
    for number, make in enumerate(IMAGES):
        rows = (kind == number).nonzero().squeeze(1)
        if len(rows):
            result[rows] = make(x[chosen[rows]], x[partner[rows]], generator)
    return result


def _of_another_class(y: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor | None:
    """For each chosen row a random one with another label."""
    differs = (y[chosen][:, None] != y[None, :]).to(torch.float64).cpu()  # (M, B)
    if not bool((differs.sum(dim=1) > 0).all()):
        return None
    return torch.multinomial(differs, 1, generator=generator).squeeze(1).to(y.device)


# -- images -------------------------------------------------------------------------------------


def shuffle_patches(x: Tensor, _other: Tensor, generator: torch.Generator) -> Tensor:
    """Cut each image into 2×2, 3×3 or 4×4 patches and put them back in another order."""
    result = x.clone()
    sides = torch.randint(2, 5, (len(x),), generator=generator)
    for side in range(2, 5):
        rows = (sides == side).nonzero().squeeze(1).to(x.device)
        patches = _patches(x[rows], side)  # (B, side², C, h, w)
        order = torch.rand(patches.shape[:2], generator=generator).argsort(dim=1).to(x.device)
        same = (order == torch.arange(side**2, device=x.device)).all(dim=1)
        order[same] = order[same].roll(1, dims=1)  # the old order is no outlier
        patches = patches.gather(1, order[:, :, None, None, None].expand_as(patches))
        height, width = side * patches.shape[3], side * patches.shape[4]
        whole = patches.reshape(len(rows), side, side, *patches.shape[2:]).permute(0, 3, 1, 4, 2, 5)
        result[rows, :, :height, :width] = whole.reshape(len(rows), x.shape[1], height, width)
    return result


def _patches(x: Tensor, side: int) -> Tensor:
    count, channels, height, width = x.shape
    h, w = height // side, width // side
    cut = x[:, :, : side * h, : side * w].reshape(count, channels, side, h, side, w)
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)


def mix(x: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    """Lay two images over each other, each with a share of 0.35 to 0.65."""
    share = 0.35 + 0.3 * torch.rand(len(x), 1, 1, 1, generator=generator).to(x.device)
    return _like(share * x + (1 - share) * other, x)


def join(x: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    """Take one half of the image, upper, lower, left or right, from the other."""
    height, width = x.shape[2:]
    rows, columns = torch.arange(height), torch.arange(width)
    upper = (rows < height // 2)[:, None].expand(height, width)
    left = (columns < width // 2)[None, :].expand(height, width)
    halves = torch.stack([upper, ~upper, left, ~left])
    chosen = torch.randint(4, (len(x),), generator=generator)
    return torch.where(halves[chosen].unsqueeze(1).to(x.device), x, other)


def tile(x: Tensor, _other: Tensor, generator: torch.Generator) -> Tensor:
    """Repeat a random window, a quarter to a half of the image's side, over the image."""
    height, width = x.shape[2:]
    smaller = min(height, width)
    first, last = max(2, smaller // 4), max(2, smaller // 2)
    size = torch.randint(first, last + 1, (len(x), 1), generator=generator)
    top = (torch.rand(len(x), 1, generator=generator) * (height - size + 1)).long()
    left = (torch.rand(len(x), 1, generator=generator) * (width - size + 1)).long()
    rows = (top + torch.arange(height) % size).to(x.device)  # (B, H)
    columns = (left + torch.arange(width) % size).to(x.device)
    batch = torch.arange(len(x), device=x.device)[:, None, None]
    return x.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def scatter_phases(x: Tensor, _other: Tensor, generator: torch.Generator) -> Tensor:
    """Keep the spectrum of each image and replace its phases by those of noise."""
    noise = torch.randn(len(x), 1, *x.shape[2:], generator=generator).to(x.device)
    spectrum, other = torch.fft.rfft2(x.float()), torch.fft.rfft2(noise)
    turned = spectrum * other / other.abs().clamp_min(1e-12)
    mean = x.float().mean(dim=(2, 3), keepdim=True)
    image = torch.fft.irfft2(turned, s=x.shape[2:])
    image = image - image.mean(dim=(2, 3), keepdim=True) + mean
    low, high = x.float().amin(dim=(1, 2, 3), keepdim=True), x.float().amax((1, 2, 3), True)
    return _like(image.clamp(low, high), x)


IMAGES: tuple[Scramble, ...] = (shuffle_patches, mix, join, tile, scatter_phases)

# -- anything else ------------------------------------------------------------------------------


def exchange(x: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    """Take 20 to 80 % of the coordinates from the other: at least one, and not all.

    With one coordinate there is nothing to exchange, and the middle of the two is taken.
    """
    size = x[0].numel()
    if size == 1:
        return _like((x + other) / 2, x)
    share = 0.2 + 0.6 * torch.rand(len(x), 1, generator=generator)
    taken = (share * size).round().clamp(1, size - 1)
    order = torch.rand(len(x), size, generator=generator).argsort(dim=1)
    return torch.where((order < taken).reshape(x.shape).to(x.device), other, x)


def _like(image: Tensor, x: Tensor) -> Tensor:
    """As the type of x; bytes are rounded."""
    return image.to(x.dtype) if x.is_floating_point() else image.round().to(x.dtype)
