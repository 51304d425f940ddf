"""Canny's edges (J. Canny, 1986), for a stack of grey images at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from gemfi.data.corruptions.record import Floats

Mask = npt.NDArray[np.bool_]


def canny(x: Floats, low: float, high: float, *, norm: str, border: str) -> Mask:
    """(B, H, W) edges: thin ridges of the gradient above `low` that touch one above `high`.

    Args:
        x: (B, H, W) images, smoothed already where that is wanted.
        low: threshold of the Sobel gradient (weights 1, 2, 1, not normalised).
        high: threshold that at least one pixel of a connected edge passes.
        norm: of the gradient; `length` is √(r² + c²), `sum` is |r| + |c|.
        border: of the Sobel filters, a mode of `scipy.ndimage`.
    """
    down, right = _sobel(x, 1, border), _sobel(x, 2, border)
    size = np.hypot(down, right) if norm == "length" else np.abs(down) + np.abs(right)
    ridge = _is_ridge(size, down, right) & (size > low)
    return _connected(ridge, ridge & (size > high))


def _sobel(x: Floats, axis: int, border: str) -> Floats:
    slope: Floats = ndimage.correlate1d(x, [-1, 0, 1], axis=axis, mode=border)
    across: Floats = ndimage.correlate1d(slope, [1, 2, 1], axis=3 - axis, mode=border)
    return across


def _is_ridge(size: Floats, down: Floats, right: Floats) -> Mask:
    """Whether the gradient is at least as long as on both sides, along its own direction.

    Between the two neighbours that the direction passes, their lengths are interpolated.
    """
    padded = np.pad(size, ((0, 0), (1, 1), (1, 1)))
    height, width = size.shape[1:]

    def at(r: int, c: int) -> Floats:
        return padded[:, 1 + r : 1 + r + height, 1 + c : 1 + c + width]

    steep = np.abs(down) >= np.abs(right)
    longer = np.maximum(np.abs(down), np.abs(right))
    share = np.minimum(np.abs(down), np.abs(right)) / np.where(longer > 0, longer, 1)
    same = down * right >= 0  # the direction runs from top left to bottom right
    ahead = np.where(steep, at(1, 0), at(0, 1))
    behind = np.where(steep, at(-1, 0), at(0, -1))
    ahead_aside = np.where(same, at(1, 1), np.where(steep, at(1, -1), at(-1, 1)))
    behind_aside = np.where(same, at(-1, -1), np.where(steep, at(-1, 1), at(1, -1)))
    before = behind * (1 - share) + behind_aside * share
    after = ahead * (1 - share) + ahead_aside * share
    return (longer > 0) & (size >= before) & (size >= after)


def _connected(weak: Mask, strong: Mask) -> Mask:
    """The 8-connected groups of `weak`, within an image, that hold a pixel of `strong`."""
    structure = np.zeros((3, 3, 3), dtype=np.bool_)
    structure[1] = True
    groups, count = ndimage.label(weak, structure)
    kept = np.zeros(count + 1, dtype=np.bool_)
    kept[np.unique(groups[strong])] = True
    kept[0] = False
    result: Mask = kept[groups]
    return result
