"""Procedural fields: the plasma of fog and the ice of frost."""

from __future__ import annotations

import numpy as np

from gemfi.data.corruptions.record import Floats, Rngs, stacked

SIZE = 32  # of the plasma, a power of two
CRYSTALS = 30  # on a pane
_DRAWS = SIZE * SIZE - 1  # every point but the first


def plasma(rngs: Rngs, decay: float) -> Floats:
    """(B, 32, 32) fractal clouds in [0, 1]: diamond-square on a torus.

    The random part of a point is uniform on ±a with a = 100² at the first octave, and falls by
    decay² from one octave to the next.
    """
    draws = stacked(rngs, lambda rng: rng.uniform(-1, 1, _DRAWS))
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
