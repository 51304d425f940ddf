"""The 15 types of MNIST-C with their published constants, one severity each."""

from __future__ import annotations

from gemfi.data.corruptions import blur, mnist, noise, weather
from gemfi.data.corruptions.record import MU, Corruption, Function

_TABLE = f"{MU}; constants equal to the defaults of the generator published with it"


def _entry(
    name: str,
    function: Function,
    meaning: str,
    *constants: float,
    random: bool = True,
    approximation: str | None = None,
) -> Corruption:
    return Corruption(name, function, (constants,), meaning, _TABLE, random, approximation)


_ENTRIES = (
    _entry("shot_noise", noise.shot_noise, "photons at full brightness", 3),
    _entry("impulse_noise", noise.impulse_noise, "share of values replaced", 0.17),
    _entry(
        "glass_blur",
        blur.glass_blur_grey,
        "standard deviation, reach, rounds",
        *(0.7, 1, 2),
        approximation="the filter along columns only is inferred from the published call, not seen "
        "in the published images",
    ),
    _entry(
        "motion_blur",
        blur.motion_blur,
        "radius, standard deviation",
        *(10, 3),
        approximation="the published images went through ImageMagick's motion blur; its kernel is "
        "rebuilt here from what we know of it, and was not compared with its output",
    ),
    _entry(
        "shear",
        mnist.shear,
        "radians, either way",
        0.4,
        approximation="the matrix is that of scikit-image before 0.19 as we remember it; not "
        "compared with its output",
    ),
    _entry("scale", mnist.scale, "step between the pixels read", 1 / 0.7, random=False),
    _entry("rotate", mnist.rotate, "radians, either way", 0.4),
    _entry("brightness", mnist.brightness, "added", 0.5, random=False),
    _entry("translate", mnist.translate, "pixels, either way, in rows and columns", 3),
    _entry("stripe", mnist.stripe, "columns that stay: first, end", 7, 21, random=False),
    _entry("fog", weather.fog, "thickness, decay of the octaves", 3, 1.4),
    _entry(
        "spatter",
        weather.spatter,
        "mean, standard deviation, smoothing, threshold, mask smoothing, mud",
        *(0.65, 0.3, 1, 0.65, 1.5, 1),
    ),
    _entry("dotted_line", mnist.dotted_line, "columns of a dot", 2),
    _entry("zigzag", mnist.zigzag, "length and half-width of a tooth", 2, 2),
    _entry(
        "canny_edges",
        mnist.canny_edges,
        "standard deviation, low and high threshold",
        *(1, 0.1, 0.2),
        random=False,
        approximation="an edge detector of our own with scikit-image's defaults; ties between "
        "neighbours may fall the other way",
    ),
)

CORRUPTIONS_MNIST: dict[str, Corruption] = {entry.name: entry for entry in _ENTRIES}
"""Name of a type -> its record; `identity`, the clean images, is not among them."""
