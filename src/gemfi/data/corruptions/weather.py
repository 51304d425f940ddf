"""Weather: snow, frost, fog and spatter."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from gemfi.data.corruptions.blur import smoothed
from gemfi.data.corruptions.edges import canny
from gemfi.data.corruptions.plasma import ice, plasma
from gemfi.data.corruptions.record import Constants, Floats, Rngs, quantised, stacked
from gemfi.data.corruptions.sampling import motion_blurred, zoomed

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
