"""What MNIST-C has and CIFAR-10-C has not: affine maps, strokes, a stripe, edges."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from gemfi.data.corruptions.edges import canny
from gemfi.data.corruptions.record import Constants, Floats, Rngs, stacked
from gemfi.data.corruptions.sampling import bilinear

FADE = 2.3  # pixels over which a stroke fades
ZIGZAG_COLUMNS = (2, 25)


def brightness(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """Add c: value in HSV is all that a grey image has."""
    (add,) = constants
    return x + add


def shear(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Shear by ±s radians about the centre, the rows drawn together to cos s."""
    (size,) = constants
    angle = size * _signs(rngs)
    zero = np.zeros_like(angle)
    return _mapped(x, np.array([[zero + 1, -np.sin(angle)], [zero, np.cos(angle)]]))


def rotate(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Rotation by ±a radians about the centre."""
    (size,) = constants
    angle = size * _signs(rngs)
    cos, sin = np.cos(angle), np.sin(angle)
    return _mapped(x, np.array([[cos, -sin], [sin, cos]]))


def scale(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Shrunk about the centre; the constant is the step between the pixels that are read."""
    (step,) = constants
    steps = np.full(len(rngs), step)
    zero = np.zeros_like(steps)
    return _mapped(x, np.array([[steps, zero], [zero, steps]]))


def translate(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Moved by ±c pixels in rows and by ±c in columns; what enters is black."""
    distance = int(constants[0])
    moves = stacked(rngs, lambda rng: rng.choice([-distance, distance], 2))  # (B, 2)
    rows, columns = _grid(x)
    return bilinear(
        x, rows + moves[:, 0, None, None], columns + moves[:, 1, None, None], border="zero"
    )


def _signs(rngs: Rngs) -> Floats:
    return stacked(rngs, lambda rng: np.asarray(rng.choice([-1.0, 1.0])))


def _grid(x: Floats) -> tuple[Floats, Floats]:
    axes = np.arange(x.shape[2], dtype=np.float64), np.arange(x.shape[3], dtype=np.float64)
    rows, columns = np.meshgrid(*axes, indexing="ij")
    return rows, columns


def _mapped(x: Floats, matrix: Floats) -> Floats:
    """Read pixel (column, row) at M·(column, row) about the centre; M is (2, 2, B)."""
    rows, columns = _grid(x)
    middle_row, middle_column = (x.shape[2] - 1) / 2, (x.shape[3] - 1) / 2
    rows, columns = rows - middle_row, columns - middle_column
    m = matrix[..., None, None]  # (2, 2, B, 1, 1)
    return bilinear(
        x,
        m[1, 0] * columns + m[1, 1] * rows + middle_row,
        m[0, 0] * columns + m[0, 1] * rows + middle_column,
        border="zero",
    )


def stripe(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """Inverted outside the columns first..last−1."""
    first, last = (int(column) for column in constants)
    column = np.arange(x.shape[3])
    return np.where((column < first) | (column >= last), 1 - x, x)


def canny_edges(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """Canny's edges of the image smoothed by a Gaussian; outside the image there is nothing."""
    sd, low, high = constants
    grey = x[:, 0]
    smooth = ndimage.gaussian_filter(grey, (0, sd, sd), mode="constant")
    share = ndimage.gaussian_filter(np.ones(grey.shape[1:]), sd, mode="constant")
    edges = canny(smooth / share, low, high, norm="length", border="reflect")
    edges[:, [0, -1]] = False
    edges[:, :, [0, -1]] = False
    return edges[:, None].astype(np.float64)


def dotted_line(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """A dotted stroke from the left to the right edge, between two random rows."""
    dot = int(constants[0])
    width = x.shape[3]
    ends = stacked(rngs, lambda rng: rng.integers(0, width - 1, 2).astype(np.float64))
    left, right = np.zeros(len(x)), np.full(len(x), width - 1.0)
    line = _stroke(x.shape[2], left, ends[:, 0], right, ends[:, 1])
    line[:, :, np.arange(width) // dot % 2 == 0] = 0
    return x + line[:, None]


def zigzag(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """A zigzag of length a and half-width b about a line with a slight random slope."""
    length, half = constants
    first, last = ZIGZAG_COLUMNS
    height = x.shape[2]
    start = stacked(rngs, lambda rng: np.asarray(rng.integers(0, height - 1), np.float64))
    rise = stacked(rngs, lambda rng: np.asarray(rng.integers(-5, 5), np.float64))
    run = last - first
    total = np.hypot(run, rise)  # (B,) length of the line
    cos, sin = run / total, rise / total
    teeth = np.arange((run - length) // (2 * length) + 1)
    along = np.zeros((len(teeth) + 2, len(x)))  # of each bend, from the start of the line
    along[1:-1], along[-1] = (2 * teeth[:, None] + 1) * length, total
    aside = np.zeros_like(along)
    aside[1:-1] = half * (-1.0) ** teeth[:, None]
    aside[-1] = aside[-2] / (2 * (total % (2 * length)))  # the last tooth is cut short
    columns = first + cos * along - sin * aside
    rows = start + sin * along + cos * aside
    drawn = np.zeros((len(x), height, x.shape[3]))
    for i in range(len(along) - 1):
        drawn += _stroke(height, columns[i], rows[i], columns[i + 1], rows[i + 1])
    return x + drawn[:, None]


def _stroke(size: int, c0: Floats, r0: Floats, c1: Floats, r1: Floats) -> Floats:
    """(B, S, S) line from (c0, r0) to (c1, r1), c1 > c0: 1 + ln(1 − d/2.3), cut at 0.

    d is the distance in rows; only the columns ⌊c0⌋..⌈c1⌉−1 are drawn.
    """
    grid = np.arange(size)
    slope = (r1 - r0) / (c1 - c0)
    centre = r0[:, None] + slope[:, None] * (grid - c0[:, None])  # (B, S): row in each column
    distance = np.abs(grid[:, None] - centre[:, None, :])
    level = 1 + np.log1p(-np.minimum(distance / FADE, 1 - 1e-10))
    within = (grid >= np.floor(c0)[:, None]) & (grid < np.ceil(c1)[:, None])
    drawn: Floats = np.maximum(level, 0) * within[:, None, :]
    return drawn
