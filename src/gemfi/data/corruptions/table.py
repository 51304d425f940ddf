"""The 19 types of CIFAR-10-C and the 15 of MNIST-C, with their published constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gemfi.data.corruptions import functions
from gemfi.data.corruptions.fields import Constants, Floats

Function = Callable[..., Floats]


@dataclass(frozen=True)
class Corruption:
    """One type of corruption.

    Args:
        name: as in the published files.
        function: (B, C, H, W) in [0, 1], B generators and the constants of one severity -> the
            corrupted images, not yet clipped.
        constants: of each severity, mildest first; one entry where there is one severity.
        meaning: what the numbers of an entry are, in order.
        provenance: the publication, and what the constants were compared with.
        random: whether the seed matters.
        approximation: how and why the result differs from the published procedure; None where
            only the random draws differ.
    """

    name: str
    function: Function
    constants: tuple[Constants, ...]
    meaning: str
    provenance: str
    random: bool = True
    approximation: str | None = None


def _type(
    provenance: str,
    function: Function,
    meaning: str,
    *constants: float | Constants,
    random: bool = True,
    approximation: str | None = None,
) -> Corruption:
    """A type with the constants of each of its severities."""
    severities = tuple(c if isinstance(c, tuple) else (c,) for c in constants)
    name = function.__name__.removesuffix("_grey")
    return Corruption(name, function, severities, meaning, provenance, random, approximation)


_cifar = partial(
    _type,
    "Hendrycks & Dietterich, ICLR 2019 (arXiv:1903.12261), CIFAR-10-C; constants equal to the "
    "CIFAR table published with it",
)
_mnist = partial(
    _type,
    "Mu & Gilmer, 2019 (arXiv:1906.02337), MNIST-C; constants equal to the defaults of the "
    "generator published with it",
)
_IMAGEMAGICK = (
    "the published images went through ImageMagick's motion blur; its kernel is rebuilt here from "
    "what we know of it, and was not compared with its output"
)
_SIDE = 32
_ELASTIC = (
    (0, 0, 0.08),
    (0.05, 0.2, 0.07),
    (0.08, 0.06, 0.06),
    (0.1, 0.04, 0.05),
    (0.1, 0.03, 0.03),
)

_CIFAR = (
    _cifar(functions.gaussian_noise, "standard deviation", 0.04, 0.06, 0.08, 0.09, 0.10),
    _cifar(functions.shot_noise, "photons at full brightness", 500, 250, 100, 75, 50),
    _cifar(functions.impulse_noise, "share of values replaced", 0.01, 0.02, 0.03, 0.05, 0.07),
    _cifar(
        functions.defocus_blur,
        "radius, softening",
        *((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        random=False,
    ),
    _cifar(
        functions.glass_blur,
        "standard deviation, reach, rounds",
        *((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ),
    _cifar(
        functions.motion_blur,
        "radius, standard deviation",
        *((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        approximation=_IMAGEMAGICK,
    ),
    _cifar(functions.zoom_blur, "largest factor", 1.06, 1.11, 1.15, 1.20, 1.25, random=False),
    _cifar(
        functions.snow,
        "mean, standard deviation, zoom, threshold, radius, tail, share kept",
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        approximation=_IMAGEMAGICK,
    ),
    _cifar(
        functions.frost,
        "share of the image, share of the ice",
        *((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        approximation="the published images use crops of five photographs of frost, which are not "
        "ours to ship; the ice here is procedural, and only the shares are the published ones",
    ),
    _cifar(
        functions.fog,
        "thickness, decay of the octaves",
        *((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    ),
    _cifar(functions.brightness, "added to V", 0.05, 0.1, 0.15, 0.2, 0.3, random=False),
    _cifar(functions.contrast, "factor", 0.75, 0.5, 0.4, 0.3, 0.15, random=False),
    _cifar(
        functions.elastic_transform,
        "strength, standard deviation, jolt; in pixels",
        *(tuple(_SIDE * share for share in shares) for shares in _ELASTIC),
        approximation="OpenCV's affine warp reads at multiples of 1/32 pixel; here it is exact",
    ),
    _cifar(functions.pixelate, "share of the side", 0.95, 0.9, 0.85, 0.75, 0.65, random=False),
    _cifar(
        functions.jpeg_compression,
        "quality",
        *(80, 65, 58, 50, 40),
        random=False,
        approximation="the encoder is the libjpeg of the installed Pillow",
    ),
    _cifar(functions.speckle_noise, "standard deviation", 0.06, 0.1, 0.12, 0.16, 0.2),
    _cifar(functions.gaussian_blur, "standard deviation", 0.4, 0.6, 0.7, 0.8, 1, random=False),
    _cifar(
        functions.spatter,
        "mean, standard deviation, smoothing, threshold, strength or mask smoothing, mud",
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        approximation="the light on drops of water (severities 1 to 3) follows OpenCV's steps with "
        "an exact distance transform and interpolated edges; mud is the published procedure",
    ),
    _cifar(
        functions.saturate,
        "factor of S, added to S",
        *((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        random=False,
    ),
)

CORRUPTIONS_CIFAR: dict[str, Corruption] = {entry.name: entry for entry in _CIFAR}
"""Name of a type -> its record, in the order of the paper: the 15 of the benchmark, then 4 more."""

_MNIST = (
    _mnist(functions.shot_noise, "photons at full brightness", 3),
    _mnist(functions.impulse_noise, "share of values replaced", 0.17),
    _mnist(
        functions.glass_blur_grey,
        "standard deviation, reach, rounds",
        (0.7, 1, 2),
        approximation="the filter along columns only is inferred from the published call, not seen "
        "in the published images",
    ),
    _mnist(
        functions.motion_blur,
        "radius, standard deviation",
        (10, 3),
        approximation=_IMAGEMAGICK,
    ),
    _mnist(
        functions.shear,
        "radians, either way",
        0.4,
        approximation="the matrix is that of scikit-image before 0.19 as we remember it; not "
        "compared with its output",
    ),
    _mnist(functions.scale, "step between the pixels read", 1 / 0.7, random=False),
    _mnist(functions.rotate, "radians, either way", 0.4),
    _mnist(functions.brightness_grey, "added", 0.5, random=False),
    _mnist(functions.translate, "pixels, either way, in rows and columns", 3),
    _mnist(functions.stripe, "columns that stay: first, end", (7, 21), random=False),
    _mnist(functions.fog, "thickness, decay of the octaves", (3, 1.4)),
    _mnist(
        functions.spatter,
        "mean, standard deviation, smoothing, threshold, mask smoothing, mud",
        (0.65, 0.3, 1, 0.65, 1.5, 1),
    ),
    _mnist(functions.dotted_line, "columns of a dot", 2),
    _mnist(functions.zigzag, "length and half-width of a tooth", (2, 2)),
    _mnist(
        functions.canny_edges,
        "standard deviation, low and high threshold",
        (1, 0.1, 0.2),
        random=False,
        approximation="an edge detector of our own with scikit-image's defaults; ties between "
        "neighbours may fall the other way",
    ),
)

CORRUPTIONS_MNIST: dict[str, Corruption] = {entry.name: entry for entry in _MNIST}
"""Name of a type -> its record; `identity`, the clean images, is not among them."""
