"""Reading images between pixels: bilinear gathers, centred zooms, and ImageMagick's motion blur."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from gemfi.data.corruptions.record import Floats, Ints


def bilinear(x: Floats, rows: Floats, columns: Floats, border: str) -> Floats:
    """Bilinear samples of (B, C, H, W) at (B, h, w) coordinates, for all channels alike.

    Args:
        x: images.
        rows: row of each sample.
        columns: column of each sample.
        border: `zero` outside the image, `mirror` (…cb|abc|ba…, the edge pixel once) or `reflect`
            (…cba|abc|cba…, the edge pixel twice).
    """
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    down, right = (rows - top)[:, None], (columns - left)[:, None]  # (B, 1, h, w)

    def corner(r: Ints, c: Ints) -> Floats:
        inside_r, r = _folded(r, x.shape[2], border)
        inside_c, c = _folded(c, x.shape[3], border)
        values = x[np.arange(len(x))[:, None, None], :, r, c].transpose(0, 3, 1, 2)
        return values * (inside_r & inside_c)[:, None]

    above = corner(top, left) * (1 - right) + corner(top, left + 1) * right
    below = corner(top + 1, left) * (1 - right) + corner(top + 1, left + 1) * right
    return above * (1 - down) + below * down


def _folded(index: Ints, size: int, border: str) -> tuple[npt.NDArray[np.bool_], Ints]:
    inside = (index >= 0) & (index < size)
    if border == "zero":
        return inside, np.clip(index, 0, size - 1)
    period = 2 * size - 2 if border == "mirror" else 2 * size
    index = np.mod(index, period)
    back = period - index if border == "mirror" else period - 1 - index
    return np.ones_like(inside), np.where(index < size, index, back)


def zoomed(x: Floats, factor: float) -> Floats:
    """The centre of (B, C, S, S), enlarged by `factor` to S×S again, bilinearly."""
    matrix = _zoom_matrix(x.shape[-1], factor)
    result: Floats = matrix @ x @ matrix.T
    return result


@cache
def _zoom_matrix(size: int, factor: float) -> Floats:
    """(S, S) weights of one axis: a crop of ⌈S/f⌉ pixels, spread over round(f·crop), trimmed."""
    crop = math.ceil(size / factor)
    enlarged = round(crop * factor)
    start, trim = (size - crop) // 2, (enlarged - size) // 2
    position = np.arange(trim, trim + size) * (crop - 1) / (enlarged - 1)
    left = np.minimum(np.floor(position).astype(np.int64), crop - 2)
    matrix = np.zeros((size, size))
    matrix[np.arange(size), start + left] = 1 - (position - left)
    matrix[np.arange(size), start + left + 1] = position - left
    return matrix


def motion_blurred(x: Floats, radius: float, sd: float, degrees: Floats) -> Floats:
    """ImageMagick's motion blur: half a Gaussian along a line, like the tail of a comet.

    Σ_i w_i x(p + ⌈i·d − ½⌉) with i = 0..2⌈radius⌉, w_i ∝ exp(−i²/2σ²), d the unit vector of the
    image's angle; pixels outside repeat the edge.

    Args:
        x: (B, C, H, W).
        radius: of the kernel, in pixels.
        sd: σ.
        degrees: (B,) angles.
    """
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(steps**2) / (2 * sd**2))
    weights /= weights.sum()
    angle = np.deg2rad(degrees)
    height, width = x.shape[2:]
    batch = np.arange(len(x))[:, None, None]
    blurred = np.zeros_like(x)
    for step, weight in zip(steps, weights, strict=True):
        if weight < 1e-9:  # far below a grey level
            break
        down = np.ceil(step * np.sin(angle) - 0.5).astype(np.int64)
        right = np.ceil(step * np.cos(angle) - 0.5).astype(np.int64)
        r = np.clip(np.arange(height) + down[:, None], 0, height - 1)  # (B, H)
        c = np.clip(np.arange(width) + right[:, None], 0, width - 1)  # (B, W)
        values = x[batch, :, r[:, :, None], c[:, None, :]]  # (B, H, W, C)
        blurred += weight * values.transpose(0, 3, 1, 2)
    return blurred
