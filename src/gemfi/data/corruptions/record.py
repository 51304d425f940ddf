"""What every corruption is: a function on a batch, its constants, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Constants = tuple[float, ...]
Rngs = Sequence[np.random.Generator]  # one for each image
Function = Callable[[Floats, Rngs, Constants], Floats]

HENDRYCKS = "Hendrycks & Dietterich, ICLR 2019 (arXiv:1903.12261), CIFAR-10-C"
MU = "Mu & Gilmer, 2019 (arXiv:1906.02337), MNIST-C"


@dataclass(frozen=True)
class Corruption:
    """One type of corruption.

    Args:
        name: as in the published files.
        function: (B, C, H, W) in [0, 1], B generators and the constants of one severity -> the
            corrupted images, not yet clipped.
        constants: the constants of each severity, mildest first; a single entry where the
            published set has a single severity.
        meaning: what the numbers of an entry are, in order.
        provenance: the publication, and what the constants were compared with.
        random: whether the seed matters.
        approximation: how and why the result differs from the published procedure; None where
            the procedure is the published one and only the random draws differ.
    """

    name: str
    function: Function
    constants: tuple[Constants, ...]
    meaning: str
    provenance: str
    random: bool = True
    approximation: str | None = None

    @property
    def is_approximate(self) -> bool:
        """Whether the procedure itself, not only the draws, differs from the published one."""
        return self.approximation is not None


def stacked(rngs: Rngs, draw: Callable[[np.random.Generator], Floats]) -> Floats:
    """One draw for each image, stacked: (B, ...)."""
    return np.stack([draw(rng) for rng in rngs])


def quantised(x: Floats) -> npt.NDArray[np.uint8]:
    """[0, 1] to 0..255, rounded down as the published files are.

    The small addition keeps a pixel that nothing has touched: k/255·255 can fall just below k.
    """
    return np.floor(np.clip(x, 0, 1) * 255 + 1e-6).astype(np.uint8)
