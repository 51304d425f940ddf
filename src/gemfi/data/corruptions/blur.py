"""Blur: Gaussian, defocus, frosted glass, motion and zoom."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from gemfi.data.corruptions.record import Constants, Floats, Ints, Rngs, quantised, stacked
from gemfi.data.corruptions.sampling import motion_blurred, zoomed


def smoothed(x: Floats, sd: float) -> Floats:
    """Gaussian filter over the last two axes, edge pixels repeated, cut at 4σ."""
    sigma = (0.0,) * (x.ndim - 2) + (sd, sd)
    result: Floats = ndimage.gaussian_filter(x, sigma, mode="nearest", truncate=4.0)
    return result


def gaussian_blur(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """A Gaussian filter of standard deviation σ."""
    return smoothed(x, *constants)


def defocus_blur(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """Convolution with a disk of radius r, its rim softened by a 3×3 Gaussian of deviation a."""
    kernel = disk(*constants)
    result: Floats = ndimage.correlate(x, kernel[None, None], mode="mirror")
    return result


def disk(radius: float, softening: float) -> Floats:
    """(7, 7) kernel of `defocus_blur`; sums to one."""
    reach = np.arange(-3, 4)
    hard = (reach[:, None] ** 2 + reach**2 <= radius**2).astype(np.float64)
    hard /= hard.sum()
    taps = np.exp(-(np.arange(-1, 2) ** 2) / (2 * softening**2))
    taps /= taps.sum()
    soft: Floats = ndimage.correlate(hard, np.outer(taps, taps), mode="constant")
    total: float = soft.sum()
    return soft / total


def glass_blur(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Gaussian filter, each pixel replaced by a neighbour at random, Gaussian filter.

    The paper means an exchange of two pixels. In the published colour images it is a replacement,
    because the assignment that was to exchange them works on views of one array; so it is here.
    """
    sd, reach, rounds = constants[0], int(constants[1]), int(constants[2])
    x = quantised(smoothed(x, sd)) / 255
    moves = _moves(x, rngs, reach, rounds)
    _shatter(x, moves, reach, np.ones(moves.shape[:-1], dtype=np.bool_), exchange=False)
    return smoothed(x, sd)


def glass_blur_grey(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """`glass_blur` of MNIST-C: exchanges, each with probability ½, and a filter along columns only.

    The published call filters a (28, 28) array as if its last axis held channels.
    """
    sd, reach, rounds = constants[0], int(constants[1]), int(constants[2])

    def smoothed_rows(x: Floats) -> Floats:
        result: Floats = ndimage.gaussian_filter1d(x, sd, axis=2, mode="nearest", truncate=4.0)
        return result

    x = quantised(smoothed_rows(x)) / 255
    moves = _moves(x, rngs, reach, rounds)
    taken = np.stack([rng.random(moves.shape[1:-1]) < 0.5 for rng in rngs])
    _shatter(x, moves, reach, taken, exchange=True)
    return smoothed_rows(x)


def _moves(x: Floats, rngs: Rngs, reach: int, rounds: int) -> Ints:
    """(B, rounds, turns, turns, 2): steps to the neighbours, −reach..reach−1 each way."""
    turns = len(_turns(x, reach))
    shape = (rounds, turns, turns, 2)
    return np.stack([rng.integers(-reach, reach, shape) for rng in rngs])


def _turns(x: Floats, reach: int) -> range:
    return range(x.shape[-1] - reach, reach, -1)  # pixels take their turn from the bottom right


def _shatter(
    x: Floats, moves: Ints, reach: int, taken: npt.NDArray[np.bool_], *, exchange: bool
) -> None:
    """Move the pixels of `x` in place, one position of all images at a time."""
    batch = np.arange(len(x))
    turns = _turns(x, reach)
    for each in range(moves.shape[1]):
        for i, row in enumerate(turns):
            for j, column in enumerate(turns):
                step = moves[:, each, i, j] * taken[:, each, i, j, None]  # (B, 2)
                other_row, other_column = row + step[:, 0], column + step[:, 1]
                before = x[:, :, row, column].copy()
                x[:, :, row, column] = x[batch, :, other_row, other_column]
                if exchange:
                    x[batch, :, other_row, other_column] = before


def motion_blur(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """A comet's tail (`motion_blurred`) at an angle uniform on ±45°."""
    radius, sd = constants
    angles = stacked(rngs, lambda rng: np.asarray(rng.uniform(-45, 45)))
    return motion_blurred(x, radius, sd, angles)


def zoom_blur(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """The mean of the image and its enlargements by 1, 1.01, … up to the constant."""
    (largest,) = constants
    factors = [1 + step / 100 for step in range(round((largest - 1) * 100) + 1)]
    total = x.copy()
    for factor in factors:
        total += zoomed(x, factor)
    return total / (len(factors) + 1)
