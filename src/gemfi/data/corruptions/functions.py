"""The types of corruption: functions of a batch, its generators and the constants of a severity.

Each gives (B, C, H, W) that is not clipped yet.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from gemfi._files import require_module
from gemfi.data.corruptions.fields import (
    Constants,
    Floats,
    Ints,
    Rngs,
    bilinear,
    canny,
    ice,
    motion_blurred,
    plasma,
    quantised,
    stacked,
    zoomed,
)

# Noise: Gaussian, shot, impulse and speckle.


def gaussian_noise(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """X + σε, ε standard normal for each channel of each pixel."""
    (sd,) = constants
    return x + sd * stacked(rngs, lambda rng: rng.standard_normal(x.shape[1:]))


def shot_noise(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Poisson(λx) / λ: the noise of counting λ photons at full brightness."""
    (photons,) = constants
    counts = [rng.poisson(image * photons) for image, rng in zip(x, rngs, strict=True)]
    return np.stack(counts) / photons


def impulse_noise(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Salt and pepper: each channel of each pixel becomes 0 or 1, each with probability a/2."""
    (amount,) = constants
    u = stacked(rngs, lambda rng: rng.random(x.shape[1:]))
    return np.where(u < amount / 2, 0.0, np.where(u < amount, 1.0, x))


def speckle_noise(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """X + xσε: noise in proportion to the brightness."""
    (sd,) = constants
    return x + x * sd * stacked(rngs, lambda rng: rng.standard_normal(x.shape[1:]))


# Blur: Gaussian, defocus, frosted glass, motion and zoom.


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
    for turn in range(moves.shape[1]):
        for i, row in enumerate(turns):
            for j, column in enumerate(turns):
                step = moves[:, turn, i, j] * taken[:, turn, i, j, None]  # (B, 2)
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


# Weather: snow, frost, fog and spatter.


WATER = np.array([175, 238, 238]) / 255  # pale turquoise
MUD = np.array([63, 42, 20]) / 255  # brown
MUD_GREY = np.array([63]) / 255
LUMA = np.array([0.299, 0.587, 0.114])
EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])  # lights a drop from one side

Bytes = npt.NDArray[np.uint8]


def fog(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """(x + t·plasma) · m / (m + t), m the largest value of the image."""
    thickness, decay = constants
    clouds = plasma(rngs, decay)[:, None, : x.shape[2], : x.shape[3]]
    peak: Floats = x.max(axis=(1, 2, 3), keepdims=True)
    return (x + thickness * clouds) * peak / (peak + thickness)


def frost(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """a·x + b·ice, with procedural ice in the place of the photographs."""
    keep, add = constants
    return keep * x + add * ice(rngs)


def snow(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """A whitened image and flakes that fall, once as drawn and once turned by 180°.

    Flakes are normal noise, enlarged, cut below a threshold and blurred along an angle uniform on
    −135°..−45°.
    """
    mean, sd, zoom, threshold, radius, tail, keep = constants
    flakes = stacked(rngs, lambda rng: rng.normal(mean, sd, (1, *x.shape[2:])))
    flakes = zoomed(flakes, zoom)
    flakes = quantised(np.where(flakes < threshold, 0, flakes)) / 255
    angles = stacked(rngs, lambda rng: np.asarray(rng.uniform(-135, -45)))
    flakes = quantised(motion_blurred(flakes, radius, tail, angles)) / 255
    grey = np.tensordot(x, LUMA, axes=(1, 0))[:, None]
    whitened = keep * x + (1 - keep) * np.maximum(x, grey * 1.5 + 0.5)
    return whitened + flakes + flakes[:, :, ::-1, ::-1]


def spatter(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """Drops of water (last constant 0) or of mud (1) where smoothed noise passes a threshold."""
    mean, sd, smoothing, threshold, strength, is_mud = constants
    liquid = stacked(rngs, lambda rng: rng.normal(mean, sd, x.shape[2:]))
    liquid = smoothed(liquid, smoothing)
    liquid[liquid < threshold] = 0
    if is_mud:
        return _muddied(x, liquid > threshold, strength, MUD if x.shape[1] == 3 else MUD_GREY)
    drops = quantised(liquid)
    light = drops * _relief(drops)
    peak = light.max(axis=(1, 2), keepdims=True)
    light = strength * light / np.where(peak > 0, peak, 1)  # no drops, no light
    return x + light[:, None] * WATER[:, None, None]


def _muddied(x: Floats, wet: npt.NDArray[np.bool_], smoothing: float, colour: Floats) -> Floats:
    mask = smoothed(wet.astype(np.float64), smoothing)
    mask[mask < 0.8] = 0
    mask = mask[:, None]
    return x * (1 - mask) + colour[:, None, None] * mask


def _relief(liquid: Bytes) -> Floats:
    """(B, H, W) light on the drops: distance from their outlines, equalised and embossed."""
    outline = canny(liquid.astype(np.float64), 50, 150, norm="sum", border="nearest")
    # One transform for all images: another image is too far away to be the nearest.
    distance = ndimage.distance_transform_edt(~outline, sampling=(1e6, 1, 1))
    depth = _box(np.minimum(distance, 20)).astype(np.uint8)  # rounded down
    embossed = ndimage.correlate(_equalised(depth).astype(np.int64), EMBOSS[None], mode="mirror")
    return np.round(_box(np.clip(embossed, 0, 255).astype(np.float64)))


def _box(x: Floats) -> Floats:
    result: Floats = ndimage.uniform_filter(x, (0, 3, 3), mode="mirror")
    return result


def _equalised(x: Bytes) -> Bytes:
    """Histogram equalisation of each image: the lowest level to 0, the highest to 255."""
    count, pixels = len(x), x[0].size
    cells = x.reshape(count, -1) + 256 * np.arange(count)[:, None]
    histogram = np.bincount(cells.ravel(), minlength=256 * count).reshape(count, 256)
    below = histogram.cumsum(axis=1)  # (B, 256)
    lowest = np.take_along_axis(histogram, (histogram > 0).argmax(axis=1)[:, None], axis=1)
    spread = np.where(pixels > lowest, pixels - lowest, 1)
    table = np.clip(np.round((below - lowest) * 255 / spread), 0, 255)
    table = np.where(pixels > lowest, table, np.arange(256))  # a flat image stays as it is
    levels: Bytes = table.astype(np.uint8).ravel()[cells].reshape(x.shape)
    return levels


# Colour and encoding: brightness, saturation, contrast, elastic transform, pixelation, JPEG.


def brightness(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """V + c in HSV, clipped. Hue and saturation stay, so RGB scales by V'/V; black becomes grey."""
    (add,) = constants
    value: Floats = x.max(axis=1, keepdims=True)
    raised = np.clip(value + add, 0, 1)
    scaled = x * (raised / np.where(value > 0, value, 1))
    return np.where(value > 0, scaled, raised)


def saturate(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """a·S + b in HSV, clipped. Hue and value stay, so V − RGB scales by S'/S.

    A grey pixel has hue 0 and, where b > 0, turns towards red, as in the published images.
    """
    factor, add = constants
    value: Floats = x.max(axis=1, keepdims=True)
    spread: Floats = value - x.min(axis=1, keepdims=True)  # S·V
    saturation = spread / np.where(value > 0, value, 1)
    new = np.clip(factor * saturation + add, 0, 1)
    scaled = value - (value - x) * (new / np.where(saturation > 0, saturation, 1))
    red = value * np.concatenate([np.ones_like(new), 1 - new, 1 - new], axis=1)
    return np.where(spread > 0, scaled, red)


def contrast(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """μ + c·(x − μ), μ the mean of each channel of the image."""
    (factor,) = constants
    mean: Floats = x.mean(axis=(2, 3), keepdims=True)
    return mean + factor * (x - mean)


def elastic_transform(x: Floats, rngs: Rngs, constants: Constants) -> Floats:
    """A random affine map, then smooth random displacements; both bilinear, reflected outside.

    The affine map moves three points around the centre by up to `jolt` pixels each way; the
    displacements are uniform noise on ±1, smoothed by a Gaussian of deviation σ, times α.
    """
    strength, sd, jolt = constants
    size = x.shape[-1]
    rows, columns = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    x = bilinear(x, *_affine(rngs, size, jolt), border="mirror")
    if strength == 0:
        return x
    noise = stacked(rngs, lambda rng: rng.uniform(-1, 1, (2, size, size)))
    smooth = ndimage.gaussian_filter(noise, (0, 0, sd, sd), mode="reflect", truncate=3.0)
    shift = strength * smooth  # (B, 2, H, W)
    return bilinear(x, rows + shift[:, 0], columns + shift[:, 1], border="reflect")


def _affine(rngs: Rngs, size: int, jolt: float) -> tuple[Floats, Floats]:
    """(B, S, S) rows and columns from which each pixel of the mapped image is read."""
    centre, arm = size // 2, size // 3
    corners = np.array([[arm, arm], [arm, -arm], [-arm, -arm]]) + centre  # (column, row)
    moved = corners + stacked(rngs, lambda rng: rng.uniform(-jolt, jolt, (3, 2)))  # (B, 3, 2)
    ones = np.ones((len(moved), 3, 1))
    back: Floats = np.linalg.solve(np.concatenate([moved, ones], axis=2), corners[None] + 0.0)
    rows, columns = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    to = back[:, :, None, None, :]  # (B, 3, 1, 1, 2)
    source = columns[..., None] * to[:, 0] + rows[..., None] * to[:, 1] + to[:, 2]
    return source[..., 1], source[..., 0]


def pixelate(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """Resized to ⌊cS⌋ pixels a side and back, by box filters."""
    (factor,) = constants
    size = x.shape[-1]
    small = int(size * factor)

    def coarse(image: Any, pillow: Any) -> Any:
        box = pillow.Resampling.BOX
        return image.resize((small, small), box).resize((size, size), box)

    return _through_pillow(x, coarse)


def jpeg_compression(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
    """Encoded as JPEG of the given quality, and decoded."""
    (quality,) = constants

    def encoded(image: Any, pillow: Any) -> Any:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(quality))
        return pillow.open(file)

    return _through_pillow(x, encoded)


def _through_pillow(x: Floats, change: Callable[[Any, Any], Any]) -> Floats:
    """Apply `change(image, the module PIL.Image)` to each image as bytes."""
    pillow = require_module("PIL.Image", "this corruption")
    images = quantised(x).transpose(0, 2, 3, 1)
    changed = [np.asarray(change(pillow.fromarray(image), pillow)) for image in images]
    return np.stack(changed).transpose(0, 3, 1, 2) / 255


# What MNIST-C has and CIFAR-10-C has not: affine maps, strokes, a stripe, edges.


FADE = 2.3  # pixels over which a stroke fades
ZIGZAG_COLUMNS = (2, 25)


def brightness_grey(x: Floats, rngs: Rngs, constants: Constants) -> Floats:  # noqa: ARG001
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
