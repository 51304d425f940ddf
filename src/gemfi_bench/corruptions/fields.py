"""What corruptions are made of: draws, samples between pixels, plasma, ice and edges.

A batch is (B, C, H, W) in [0, 1], with a generator for each image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Constants = tuple[float, ...]
Rngs = Sequence[np.random.Generator]  # one for each image
Mask = npt.NDArray[np.bool_]


def stacked(rngs: Rngs, draw: Callable[[np.random.Generator], npt.ArrayLike]) -> Floats:
    """One draw for each image, stacked: (B, ...)."""
    return np.stack([np.asarray(draw(rng), np.float64) for rng in rngs])


def quantised(x: Floats) -> npt.NDArray[np.uint8]:
    """[0, 1] to 0..255, rounded down as the published files are.

    The small addition keeps a pixel that nothing has touched: k/255·255 can fall just below k.
    """
    return np.floor(np.clip(x, 0, 1) * 255 + 1e-6).astype(np.uint8)


def bilinear(x: Floats, rows: Floats, columns: Floats, border: str) -> Floats:
    """Bilinear samples of (B, C, H, W) at (B, h, w) coordinates, for all channels alike.

    `border` is a mode of `scipy.ndimage`: `mirror` has the edge pixel once, `reflect` twice.
    """
    return np.stack(
        [
            [ndimage.map_coordinates(channel, at, order=1, mode=border) for channel in image]
            for image, at in zip(x, np.stack([rows, columns], axis=1), strict=True)
        ]
    )


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
    image's angle (`degrees`, (B,)); pixels outside repeat the edge.
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


SIZE = 32  # of the plasma, a power of two
CRYSTALS = 30  # on a pane


def plasma(rngs: Rngs, decay: float) -> Floats:
    """(B, 32, 32) fractal clouds in [0, 1]: diamond-square on a torus.

    The random part of a point is uniform on ±a with a = 100² at the first octave, and falls by
    decay² from one octave to the next.
    """
    draws = stacked(rngs, lambda rng: rng.uniform(-1, 1, SIZE * SIZE - 1))  # all but the first
    field = np.zeros((len(rngs), SIZE, SIZE))
    used, amplitude, step = 0, 100.0**2, SIZE

    def noise(count: int) -> Floats:
        nonlocal used
        used += count * count
        return amplitude * draws[:, used - count * count : used].reshape(-1, count, count)

    while step >= 2:
        half, count = step // 2, SIZE // step
        corners = field[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=2)  # with the right neighbour
        centres = (pairs + np.roll(pairs, -1, axis=1)) / 4 + noise(count)
        columns = corners + np.roll(corners, -1, axis=1)  # with the neighbour below
        beside = (columns + centres + np.roll(centres, 1, axis=2)) / 4 + noise(count)
        above = (pairs + centres + np.roll(centres, 1, axis=1)) / 4 + noise(count)
        field[:, half::step, half::step] = centres
        field[:, half::step, ::step] = beside
        field[:, ::step, half::step] = above
        step, amplitude = half, amplitude / decay**2
    field -= field.min(axis=(1, 2), keepdims=True)
    peak: Floats = field.max(axis=(1, 2), keepdims=True)
    return field / peak


def ice(rngs: Rngs) -> Floats:
    """(B, 3, 32, 32) frosted panes in [0, 1]: bluish crystals with bright rims, in drifts.

    Each pane is a Voronoi tessellation, a little brighter or darker in each cell, bright where two
    cells meet, rough by one plasma and thick or thin by another. It stands for photographs that
    are not ours.
    """
    seeds = stacked(rngs, lambda rng: rng.uniform(-4, SIZE + 4, (CRYSTALS, 2)))
    levels = stacked(rngs, lambda rng: rng.uniform(0.3, 0.5, CRYSTALS))
    rough, drift = plasma(rngs, 1.1), plasma(rngs, 2.0)
    grid = np.arange(SIZE)
    rows = grid[None, None, :, None] - seeds[:, :, 0, None, None]  # (B, n, 32, 1)
    columns = grid[None, None, None, :] - seeds[:, :, 1, None, None]  # (B, n, 1, 32)
    distance = np.hypot(rows, columns)  # (B, n, 32, 32)
    two = np.partition(distance, 1, axis=1)[:, :2]
    rim = np.exp(-(two[:, 1] - two[:, 0]) / 1.2)  # 1 where two cells meet
    cell: Floats = levels[np.arange(len(rngs))[:, None, None], distance.argmin(axis=1)]
    grey: Floats = (cell + 0.3 * rim + 0.5 * (rough - 0.5)) * (0.5 + 0.9 * drift)
    tint = np.array([0.82, 0.92, 1.0])[:, None, None]
    pane: Floats = np.clip(grey[:, None] * tint, 0, 1)
    return pane


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
    weak = _is_ridge(size, down, right) & (size > low)
    structure = np.zeros((3, 3, 3), dtype=np.bool_)
    structure[1] = True  # the eight neighbours, within an image
    groups, _ = ndimage.label(weak, structure)
    edges: Mask = weak & np.isin(groups, groups[weak & (size > high)])
    return edges


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

    def neighbour(sign: int) -> Floats:
        straight = np.where(steep, at(sign, 0), at(0, sign))
        other = np.where(steep, at(sign, -sign), at(-sign, sign))
        return straight * (1 - share) + np.where(same, at(sign, sign), other) * share

    return (longer > 0) & (size >= neighbour(-1)) & (size >= neighbour(1))
