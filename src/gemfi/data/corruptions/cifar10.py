"""The 19 types of CIFAR-10-C with the constants of its five severities."""

from __future__ import annotations

from gemfi.data.corruptions import blur, digital, noise, weather
from gemfi.data.corruptions.record import HENDRYCKS, Constants, Corruption, Function

_TABLE = f"{HENDRYCKS}; constants equal to the CIFAR table published with it"
_IMAGEMAGICK = (
    "the published images went through ImageMagick's motion blur; its kernel is rebuilt here from "
    "what we know of it, and was not compared with its output"
)


def _entry(
    function: Function,
    meaning: str,
    *constants: float | Constants,
    random: bool = True,
    approximation: str | None = None,
) -> Corruption:
    return Corruption(
        name=function.__name__,
        function=function,
        constants=tuple(c if isinstance(c, tuple) else (c,) for c in constants),
        meaning=meaning,
        provenance=_TABLE,
        random=random,
        approximation=approximation,
    )


_SIDE = 32
_ELASTIC = (
    (0, 0, 0.08),
    (0.05, 0.2, 0.07),
    (0.08, 0.06, 0.06),
    (0.1, 0.04, 0.05),
    (0.1, 0.03, 0.03),
)

_ENTRIES = (
    _entry(noise.gaussian_noise, "standard deviation", 0.04, 0.06, 0.08, 0.09, 0.10),
    _entry(noise.shot_noise, "photons at full brightness", 500, 250, 100, 75, 50),
    _entry(noise.impulse_noise, "share of values replaced", 0.01, 0.02, 0.03, 0.05, 0.07),
    _entry(
        blur.defocus_blur,
        "radius, softening",
        *((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        random=False,
    ),
    _entry(
        blur.glass_blur,
        "standard deviation, reach, rounds",
        *((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ),
    _entry(
        blur.motion_blur,
        "radius, standard deviation",
        *((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        approximation=_IMAGEMAGICK,
    ),
    _entry(blur.zoom_blur, "largest factor", 1.06, 1.11, 1.15, 1.20, 1.25, random=False),
    _entry(
        weather.snow,
        "mean, standard deviation, zoom, threshold, radius, tail, share kept",
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        approximation=_IMAGEMAGICK,
    ),
    _entry(
        weather.frost,
        "share of the image, share of the ice",
        *((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        approximation="the published images use crops of five photographs of frost, which are not "
        "ours to ship; the ice here is procedural, and only the shares are the published ones",
    ),
    _entry(
        weather.fog,
        "thickness, decay of the octaves",
        *((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    ),
    _entry(digital.brightness, "added to V", 0.05, 0.1, 0.15, 0.2, 0.3, random=False),
    _entry(digital.contrast, "factor", 0.75, 0.5, 0.4, 0.3, 0.15, random=False),
    _entry(
        digital.elastic_transform,
        "strength, standard deviation, jolt; in pixels",
        *(tuple(_SIDE * share for share in shares) for shares in _ELASTIC),
        approximation="OpenCV's affine warp reads at multiples of 1/32 pixel; here it is exact",
    ),
    _entry(digital.pixelate, "share of the side", 0.95, 0.9, 0.85, 0.75, 0.65, random=False),
    _entry(
        digital.jpeg_compression,
        "quality",
        *(80, 65, 58, 50, 40),
        random=False,
        approximation="the encoder is the libjpeg of the installed Pillow",
    ),
    _entry(noise.speckle_noise, "standard deviation", 0.06, 0.1, 0.12, 0.16, 0.2),
    _entry(blur.gaussian_blur, "standard deviation", 0.4, 0.6, 0.7, 0.8, 1, random=False),
    _entry(
        weather.spatter,
        "mean, standard deviation, smoothing, threshold, strength or mask smoothing, mud",
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        approximation="the light on drops of water (severities 1 to 3) follows OpenCV's steps with "
        "an exact distance transform and interpolated edges; mud is the published procedure",
    ),
    _entry(
        digital.saturate,
        "factor of S, added to S",
        *((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        random=False,
    ),
)

CORRUPTIONS_CIFAR: dict[str, Corruption] = {entry.name: entry for entry in _ENTRIES}
"""Name of a type -> its record, in the order of the paper: the 15 of the benchmark, then 4 more."""
