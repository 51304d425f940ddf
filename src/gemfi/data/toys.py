"""Toy tasks whose truth is known: two moons in the plane, and a line.

Every split is drawn on its own stream of the seed: `train` has n samples, every other split n // 2.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gemfi.data.sampling import generator
from gemfi.data.splits import Role, Split
from gemfi.data.task import Task
from gemfi.errors import InputError

Floats = npt.NDArray[np.float64]
Draw = Callable[[int, np.random.Generator], tuple[Floats, npt.NDArray[np.int64]]]
DrawOOD = Callable[[int, np.random.Generator], Floats]

MOONS_CENTRE = (0.5, 0.25)
RING_RADII = (2.0, 2.4)
CLUSTER_CENTRE = (3.0, -1.25)
CLUSTER_SD = 0.125
MAX_NOISE = 0.2

LINE_GAP = (-1.0, 1.0)
LINE_SUPPORT = (-4.0, 4.0)


def two_moons(n: int = 1000, noise: float = 0.1, seed: int = 0) -> Task:
    """Two moons with an OOD cluster, as in the paper's Fig. 1.

    With t uniform on [0, π], and Gaussian noise of standard deviation `noise` on both coordinates:

    - class 0, the upper moon: (cos t, sin t);
    - class 1, the lower moon: (1 − cos t, 1/2 − sin t). Classes are balanced to within one sample.
    - `ood_test["cluster"]`: a Gaussian of standard deviation 0.125 around (3, −1.25), on the far
      side of class 1: 1.66 from the nearest point of a moon, 0.7 nearer to class 1 than to class 0.
    - `ood_validation["ring"]`: uniform on the ring of radii 2 to 2.4 around (0.5, 0.25), where the
      moons have their centre; 0.48 from the nearest point of a moon, and 4 standard deviations
      of the cluster from its centre.

    Args:
        n: training samples.
        noise: the ring is 4.8 standard deviations from the moons at 0.1, and 2.4 at 0.2, which is
            the most that is accepted.
        seed: of the data, not of the run.
    """
    if not 0 <= noise <= MAX_NOISE:
        raise InputError(
            f"noise must be between 0 and {MAX_NOISE}, beyond which the moons run into the OOD "
            f"ring; got {noise}"
        )

    def moons(size: int, rng: np.random.Generator) -> tuple[Floats, npt.NDArray[np.int64]]:
        y = np.arange(size) % 2
        t = rng.uniform(0, np.pi, size)
        upper = np.stack([np.cos(t), np.sin(t)], axis=1)
        lower = np.stack([1 - np.cos(t), 0.5 - np.sin(t)], axis=1)
        x = np.where(y[:, None] == 0, upper, lower)  # (N, 2)
        return x + noise * rng.standard_normal(x.shape), y

    def ring(size: int, rng: np.random.Generator) -> Floats:
        inner, outer = RING_RADII
        radius = np.sqrt(rng.uniform(inner**2, outer**2, size))  # uniform in area
        angle = rng.uniform(0, 2 * np.pi, size)
        offset = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return np.asarray(offset + np.array(MOONS_CENTRE), np.float64)

    def cluster(size: int, rng: np.random.Generator) -> Floats:
        return np.array(CLUSTER_CENTRE) + CLUSTER_SD * rng.standard_normal((size, 2))

    names = ("upper moon", "lower moon")
    return _task("two-moons", names, n, seed, moons, {"ring": ring}, {"cluster": cluster})


def line(n: int = 1000, seed: int = 0) -> Task:
    """The one-dimensional toy with non-convex decision regions, as in the paper's Fig. 2.

    Inputs are uniform on [−4, −1] ∪ [1, 4]; labels follow `line_probability`:

    | x | label |
    |---|---|
    | [−4, −3), [−2, −1], (3, 4] | 0 |
    | [−3, −2), [1, 2) | 1 |
    | [2, 3] | 0 or 1, even odds: the ambiguous region |
    | (−1, 1) | no data: the gap |
    | beyond ±4 | no data: the tails |

    So class 0 lives on three intervals and class 1 on two, and no classifier can be right on more
    than 11/12 of the inputs. OOD sets are uniform, at a margin from the data:

    - `ood_test["gap"]` on [−0.75, 0.75] and `ood_test["right-tail"]` on [4.5, 6];
    - `ood_validation["left-tail"]` on [−6, −4.5].

    Args:
        n: training samples.
        seed: of the data, not of the run.
    """

    def pieces(size: int, rng: np.random.Generator) -> tuple[Floats, npt.NDArray[np.int64]]:
        u = rng.uniform(0, 6, (size, 1))
        x = np.where(u < 3, u - 4, u - 2)  # [-4, -1) and [1, 4)
        # The label belongs to the float32 input that the model sees, not to the number before.
        p = line_probability(torch.from_numpy(x).float())[:, 0].numpy()
        return x, (rng.uniform(0, 1, size) < p).astype(np.int64)

    def uniform(low: float, high: float) -> DrawOOD:
        return lambda size, rng: rng.uniform(low, high, (size, 1))

    outside = {"gap": uniform(-0.75, 0.75), "right-tail": uniform(4.5, 6.0)}
    return _task("line", ("0", "1"), n, seed, pieces, {"left-tail": uniform(-6.0, -4.5)}, outside)


def line_probability(x: Tensor) -> Tensor:
    """The true P(y = 1 | x) of `line`; NaN in the gap and the tails, where there is no truth."""
    p = torch.zeros_like(x)
    p[(x >= -3) & (x < -2) | (x >= 1) & (x < 2)] = 1.0
    p[(x >= 2) & (x <= 3)] = 0.5
    gap = (x > LINE_GAP[0]) & (x < LINE_GAP[1])
    p[gap | (x < LINE_SUPPORT[0]) | (x > LINE_SUPPORT[1])] = torch.nan
    return p


def _task(
    name: str,
    class_names: tuple[str, ...],
    n: int,
    seed: int,
    draw: Draw,
    ood_validation: dict[str, DrawOOD],
    ood_test: dict[str, DrawOOD],
) -> Task:
    if n < 20:
        raise InputError(f"n must be at least 20, got {n}")
    streams = count()  # one for each split, in the order they are made

    def labelled(role: Role) -> Split:
        x, y = draw(n if role is Role.TRAIN else n // 2, generator(seed, next(streams)))
        tensors = torch.from_numpy(x).float(), torch.from_numpy(y)
        return Split(*tensors, role, name, len(class_names), class_names)

    def outside(draws: dict[str, DrawOOD], role: Role) -> dict[str, Split]:
        arrays = {key: draw(n // 2, generator(seed, next(streams))) for key, draw in draws.items()}
        return {
            key: Split(torch.from_numpy(x).float(), None, role, key) for key, x in arrays.items()
        }

    return Task(
        name,
        class_names,
        train=labelled(Role.TRAIN),
        validation=labelled(Role.VALIDATION),
        calibration=labelled(Role.CALIBRATION),
        test=labelled(Role.TEST),
        ood_validation=outside(ood_validation, Role.OOD_VALIDATION),
        ood_test=outside(ood_test, Role.OOD_TEST),
    )
