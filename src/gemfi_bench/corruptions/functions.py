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
from gemfi_bench.corruptions.fields import (
    Floats,
    Mask,
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


def gaussian_noise(x: Floats, rngs: Rngs, sd: float) -> Floats:
    """X + σε, ε standard normal for each channel of each pixel."""
    return x + sd * stacked(rngs, lambda rng: rng.standard_normal(x.shape[1:]))


def shot_noise(x: Floats, rngs: Rngs, photons: float) -> Floats:
    """Poisson(λx) / λ: the noise of counting λ photons at full brightness."""
    counts = [rng.poisson(image * photons) for image, rng in zip(x, rngs, strict=True)]
    return np.stack(counts) / photons


def impulse_noise(x: Floats, rngs: Rngs, amount: float) -> Floats:
    """Salt and pepper: each channel of each pixel becomes 0 or 1, each with probability a/2."""
    u = stacked(rngs, lambda rng: rng.random(x.shape[1:]))
    return np.where(u < amount / 2, 0.0, np.where(u < amount, 1.0, x))


def speckle_noise(x: Floats, rngs: Rngs, sd: float) -> Floats:
    """X + xσε: noise in proportion to the brightness."""
    return x + x * sd * stacked(rngs, lambda rng: rng.standard_normal(x.shape[1:]))


# Blur: Gaussian, defocus, frosted glass, motion and zoom.


def smoothed(x: Floats, sd: float) -> Floats:
    """Gaussian filter over the last two axes, edge pixels repeated, cut at 4σ."""
    sigma = (0.0,) * (x.ndim - 2) + (sd, sd)
    result: Floats = ndimage.gaussian_filter(x, sigma, mode="nearest", truncate=4.0)
    return result


def gaussian_blur(x: Floats, _rngs: Rngs, sd: float) -> Floats:
    """A Gaussian filter of standard deviation σ."""
    return smoothed(x, sd)


def defocus_blur(x: Floats, _rngs: Rngs, radius: float, softening: float) -> Floats:
    """Convolution with a disk of radius r, its rim softened by a 3×3 Gaussian of deviation a."""
    kernel = disk(radius, softening)
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


def glass_blur(x: Floats, rngs: Rngs, sd: float, reach: int, rounds: int) -> Floats:
    """Gaussian filter, each pixel replaced by a neighbour at random, Gaussian filter.

    The paper means an exchange of two pixels. In the published colour images it is a replacement,
    because the assignment that was to exchange them works on views of one array; so it is here.
    """
    x = quantised(smoothed(x, sd)) / 255
    return smoothed(_shattered(x, rngs, reach, rounds, exchange=False), sd)


def glass_blur_grey(x: Floats, rngs: Rngs, sd: float, reach: int, rounds: int) -> Floats:
    """`glass_blur` of MNIST-C: exchanges, each with probability ½, and a filter along columns only.

    The published call filters a (28, 28) array as if its last axis held channels.
    """

    def smoothed_rows(x: Floats) -> Floats:
        result: Floats = ndimage.gaussian_filter1d(x, sd, axis=2, mode="nearest", truncate=4.0)
        return result

    x = quantised(smoothed_rows(x)) / 255
    return smoothed_rows(_shattered(x, rngs, reach, rounds, exchange=True))


def _shattered(x: Floats, rngs: Rngs, reach: int, rounds: int, *, exchange: bool) -> Floats:
    """`x` with its pixels moved in place, one position of all images at a time.

    Each moves −reach..reach−1 pixels each way; where pixels are exchanged, only every second one.
    """
    turns = range(x.shape[-1] - reach, reach, -1)  # from the bottom right
    shape = (rounds, len(turns), len(turns))
    moves = np.stack([rng.integers(-reach, reach, (*shape, 2)) for rng in rngs])
    if exchange:
        moves *= np.stack([rng.random(shape) < 0.5 for rng in rngs])[..., None]
    batch = np.arange(len(x))
    for turn, i, j in np.ndindex(*shape):
        row, column = turns[i], turns[j]
        other_row, other_column = row + moves[:, turn, i, j, 0], column + moves[:, turn, i, j, 1]
        before = x[:, :, row, column].copy()
        x[:, :, row, column] = x[batch, :, other_row, other_column]
        if exchange:
            x[batch, :, other_row, other_column] = before
    return x


def motion_blur(x: Floats, rngs: Rngs, radius: float, sd: float) -> Floats:
    """A comet's tail (`motion_blurred`) at an angle uniform on ±45°."""
    return motion_blurred(x, radius, sd, stacked(rngs, lambda rng: rng.uniform(-45, 45)))


def zoom_blur(x: Floats, _rngs: Rngs, largest: float) -> Floats:
    """The mean of the image and its enlargements by 1, 1.01, … up to the constant."""
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


def fog(x: Floats, rngs: Rngs, thickness: float, decay: float) -> Floats:
    """(x + t·plasma) · m / (m + t), m the largest value of the image."""
    clouds = plasma(rngs, decay)[:, None, : x.shape[2], : x.shape[3]]
    peak: Floats = x.max(axis=(1, 2, 3), keepdims=True)
    return (x + thickness * clouds) * peak / (peak + thickness)


def frost(x: Floats, rngs: Rngs, keep: float, add: float) -> Floats:
    """a·x + b·ice, with procedural ice in the place of the photographs."""
    return keep * x + add * ice(rngs)


def snow(
    x: Floats,
    rngs: Rngs,
    mean: float,
    sd: float,
    zoom: float,
    threshold: float,
    radius: float,
    tail: float,
    keep: float,
) -> Floats:
    """A whitened image and flakes that fall, once as drawn and once turned by 180°.

    Flakes are normal noise, enlarged, cut below a threshold and blurred along an angle uniform on
    −135°..−45°.
    """
    flakes = stacked(rngs, lambda rng: rng.normal(mean, sd, (1, *x.shape[2:])))
    flakes = zoomed(flakes, zoom)
    flakes = quantised(np.where(flakes < threshold, 0, flakes)) / 255
    angles = stacked(rngs, lambda rng: rng.uniform(-135, -45))
    flakes = quantised(motion_blurred(flakes, radius, tail, angles)) / 255
    grey = np.tensordot(x, LUMA, axes=(1, 0))[:, None]
    whitened = keep * x + (1 - keep) * np.maximum(x, grey * 1.5 + 0.5)
    return whitened + flakes + flakes[:, :, ::-1, ::-1]


def spatter(
    x: Floats,
    rngs: Rngs,
    mean: float,
    sd: float,
    smoothing: float,
    threshold: float,
    strength: float,
    is_mud: int,
) -> Floats:
    """Drops of water (last constant 0) or of mud (1) where smoothed noise passes a threshold."""
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


def _muddied(x: Floats, wet: Mask, smoothing: float, colour: Floats) -> Floats:
    mask = smoothed(wet.astype(np.float64), smoothing)[:, None]
    mask[mask < 0.8] = 0
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
    levels = np.empty_like(x)
    for image, level in zip(x, levels, strict=True):
        histogram = np.bincount(image.ravel(), minlength=256)
        lowest = histogram[image.min()]
        if lowest == image.size:  # a flat image stays as it is
            level[:] = image
            continue
        table = np.round((histogram.cumsum() - lowest) * 255 / (image.size - lowest))
        level[:] = np.clip(table, 0, 255)[image]
    return levels


# Colour and encoding: brightness, saturation, contrast, elastic transform, pixelation, JPEG.


def brightness(x: Floats, _rngs: Rngs, add: float) -> Floats:
    """V + c in HSV, clipped. Hue and saturation stay, so RGB scales by V'/V; black becomes grey."""
    value: Floats = x.max(axis=1, keepdims=True)
    raised = np.clip(value + add, 0, 1)
    scaled = x * (raised / np.where(value > 0, value, 1))
    return np.where(value > 0, scaled, raised)


def saturate(x: Floats, _rngs: Rngs, factor: float, add: float) -> Floats:
    """a·S + b in HSV, clipped. Hue and value stay, so V − RGB scales by S'/S.

    A grey pixel has hue 0 and, where b > 0, turns towards red, as in the published images.
    """
    value: Floats = x.max(axis=1, keepdims=True)
    spread: Floats = value - x.min(axis=1, keepdims=True)  # S·V
    saturation = spread / np.where(value > 0, value, 1)
    new = np.clip(factor * saturation + add, 0, 1)
    scaled = value - (value - x) * (new / np.where(saturation > 0, saturation, 1))
    red = value * np.concatenate([np.ones_like(new), 1 - new, 1 - new], axis=1)
    return np.where(spread > 0, scaled, red)


def contrast(x: Floats, _rngs: Rngs, factor: float) -> Floats:
    """μ + c·(x − μ), μ the mean of each channel of the image."""
    mean: Floats = x.mean(axis=(2, 3), keepdims=True)
    return mean + factor * (x - mean)


def elastic_transform(x: Floats, rngs: Rngs, strength: float, sd: float, jolt: float) -> Floats:
    """A random affine map, then smooth random displacements; both bilinear, reflected outside.

    The affine map moves three points around the centre by up to `jolt` pixels each way; the
    displacements are uniform noise on ±1, smoothed by a Gaussian of deviation σ, times α.
    """
    size = x.shape[-1]
    x = bilinear(x, *_affine(rngs, size, jolt), border="mirror")
    if strength == 0:
        return x
    rows, columns = np.indices((size, size))
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
    rows, columns = np.indices((size, size))
    to = back[:, :, None, None, :]  # (B, 3, 1, 1, 2)
    source = columns[..., None] * to[:, 0] + rows[..., None] * to[:, 1] + to[:, 2]
    return source[..., 1], source[..., 0]


def pixelate(x: Floats, _rngs: Rngs, factor: float) -> Floats:
    """Resized to ⌊cS⌋ pixels a side and back, by box filters."""
    size = x.shape[-1]
    small = int(size * factor)

    def coarse(image: Any, pillow: Any) -> Any:
        box = pillow.Resampling.BOX
        return image.resize((small, small), box).resize((size, size), box)

    return _through_pillow(x, coarse)


def jpeg_compression(x: Floats, _rngs: Rngs, quality: int) -> Floats:
    """Encoded as JPEG of the given quality, and decoded."""

    def encoded(image: Any, pillow: Any) -> Any:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
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


def brightness_grey(x: Floats, _rngs: Rngs, add: float) -> Floats:
    """Add c: value in HSV is all that a grey image has."""
    return x + add


def shear(x: Floats, rngs: Rngs, size: float) -> Floats:
    """Shear by ±s radians about the centre, the rows drawn together to cos s."""
    angles = size * _signs(rngs)
    return _mapped(x, [[[np.cos(angle), 0], [-np.sin(angle), 1]] for angle in angles])


def rotate(x: Floats, rngs: Rngs, size: float) -> Floats:
    """Rotation by ±a radians about the centre."""
    cos, sin = np.cos(size), np.sin(size)
    return _mapped(x, [[[cos, sign * sin], [-sign * sin, cos]] for sign in _signs(rngs)])


def scale(x: Floats, rngs: Rngs, step: float) -> Floats:
    """Shrunk about the centre; the constant is the step between the pixels that are read."""
    return _mapped(x, [step * np.eye(2) for _ in rngs])


def translate(x: Floats, rngs: Rngs, distance: int) -> Floats:
    """Moved by ±c pixels in rows and by ±c in columns; what enters is black."""
    moves = [rng.choice([-distance, distance], 2) for rng in rngs]
    pairs = zip(x[:, 0], moves, strict=True)
    return np.stack([ndimage.shift(image, -move, order=0) for image, move in pairs])[:, None]


def _signs(rngs: Rngs) -> Floats:
    return stacked(rngs, lambda rng: rng.choice([-1.0, 1.0]))


def _mapped(x: Floats, matrices: npt.ArrayLike) -> Floats:
    """Read pixel (row, column) of each grey image at M·(row, column) about the centre."""
    centre = (np.array(x.shape[2:]) - 1) / 2
    mapped = [
        ndimage.affine_transform(
            image, matrix, centre - matrix @ centre, order=1, mode="grid-constant"
        )
        for image, matrix in zip(x[:, 0], np.asarray(matrices), strict=True)
    ]
    return np.stack(mapped)[:, None]


def stripe(x: Floats, _rngs: Rngs, first: int, last: int) -> Floats:
    """Inverted outside the columns first..last−1."""
    column = np.arange(x.shape[3])
    return np.where((column < first) | (column >= last), 1 - x, x)


def canny_edges(x: Floats, _rngs: Rngs, sd: float, low: float, high: float) -> Floats:
    """Canny's edges of the image smoothed by a Gaussian; outside the image there is nothing."""
    grey = x[:, 0]
    smooth = ndimage.gaussian_filter(grey, (0, sd, sd), mode="constant")
    share = ndimage.gaussian_filter(np.ones(grey.shape[1:]), sd, mode="constant")
    edges = canny(smooth / share, low, high, norm="length", border="reflect")
    edges[:, [0, -1]] = False
    edges[:, :, [0, -1]] = False
    return edges[:, None].astype(np.float64)


def dotted_line(x: Floats, rngs: Rngs, dot: int) -> Floats:
    """A dotted stroke from the left to the right edge, between two random rows."""
    width = x.shape[3]
    ends = stacked(rngs, lambda rng: rng.integers(0, width - 1, 2))
    left, right = np.zeros(len(x)), np.full(len(x), width - 1.0)
    line = _stroke(x.shape[2], left, ends[:, 0], right, ends[:, 1])
    line[:, :, np.arange(width) // dot % 2 == 0] = 0
    return x + line[:, None]


def zigzag(x: Floats, rngs: Rngs, length: float, half: float) -> Floats:
    """A zigzag of length a and half-width b about a line with a slight random slope."""
    first, last = ZIGZAG_COLUMNS
    height = x.shape[2]
    start = stacked(rngs, lambda rng: rng.integers(0, height - 1))
    rise = stacked(rngs, lambda rng: rng.integers(-5, 5))
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
