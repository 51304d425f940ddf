"""Colour and encoding: brightness, saturation, contrast, elastic transform, pixelation, JPEG."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import ndimage

from gemfi._files import require_module
from gemfi.data.corruptions.record import Constants, Floats, Rngs, quantised, stacked
from gemfi.data.corruptions.sampling import bilinear


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
