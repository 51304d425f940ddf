"""Toy tasks whose truth is known: two moons in the plane, and a line.

Every split is drawn on its own stream of the seed: `train` has n samples, every other split n // 2.
"""

from __future__ import annotations

from collections.abc import Callable

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
LINE_AMBIGUOUS = (2.0, 3.0)
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

    def moons(count: int, rng: np.random.Generator) -> tuple[Floats, npt.NDArray[np.int64]]:
        y = np.arange(count) % 2
        t = rng.uniform(0, np.pi, count)
        upper = np.stack([np.cos(t), np.sin(t)], axis=1)
        lower = np.stack([1 - np.cos(t), 0.5 - np.sin(t)], axis=1)
        x = np.where(y[:, None] == 0, upper, lower)  # (N, 2)
        return x + noise * rng.standard_normal(x.shape), y

    return _task(
        "two-moons",
        ("upper moon", "lower moon"),
        n=n,
        seed=seed,
        draw=moons,
        ood_validation={"ring": _ring},
        ood_test={"cluster": _cluster},
    )


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
    return _task(
        "line",
        ("0", "1"),
        n=n,
        seed=seed,
        draw=_line,
        ood_validation={"left-tail": _uniform(-6.0, -4.5)},
        ood_test={"gap": _uniform(-0.75, 0.75), "right-tail": _uniform(4.5, 6.0)},
    )


def line_probability(x: Tensor) -> Tensor:
    """The true P(y = 1 | x) of `line`; NaN in the gap and the tails, where there is no truth."""
    p = torch.zeros_like(x)
    p[(x >= -3) & (x < -2) | (x >= 1) & (x < 2)] = 1.0
    p[(x >= LINE_AMBIGUOUS[0]) & (x <= LINE_AMBIGUOUS[1])] = 0.5
    gap = (x > LINE_GAP[0]) & (x < LINE_GAP[1])
    p[gap | (x < LINE_SUPPORT[0]) | (x > LINE_SUPPORT[1])] = torch.nan
    return p


def _line(count: int, rng: np.random.Generator) -> tuple[Floats, npt.NDArray[np.int64]]:
    u = rng.uniform(0, 6, (count, 1))
    x = np.where(u < 3, u - 4, u - 2)  # [-4, -1) and [1, 4)
    # The label belongs to the float32 input that the model sees, not to the number before rounding.
    p = line_probability(torch.from_numpy(x).float())[:, 0].numpy()
    return x, (rng.uniform(0, 1, count) < p).astype(np.int64)


def _ring(count: int, rng: np.random.Generator) -> Floats:
    inner, outer = RING_RADII
    radius = np.sqrt(rng.uniform(inner**2, outer**2, count))  # uniform in area
    angle = rng.uniform(0, 2 * np.pi, count)
    offset = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return offset + np.asarray(MOONS_CENTRE, dtype=np.float64)


def _cluster(count: int, rng: np.random.Generator) -> Floats:
    return np.asarray(CLUSTER_CENTRE) + CLUSTER_SD * rng.standard_normal((count, 2))


def _uniform(low: float, high: float) -> DrawOOD:
    return lambda count, rng: rng.uniform(low, high, (count, 1))


def _task(
    name: str,
    class_names: tuple[str, ...],
    *,
    n: int,
    seed: int,
    draw: Draw,
    ood_validation: dict[str, DrawOOD],
    ood_test: dict[str, DrawOOD],
) -> Task:
    if n < 20:
        raise InputError(f"n must be at least 20, got {n}")
    stream = iter(range(100))  # one for each split, in the order they are made

    def labelled(role: Role, count: int) -> Split:
        x, y = draw(count, generator(seed, next(stream)))
        tensors = torch.from_numpy(x).float(), torch.from_numpy(y)
        return Split(*tensors, role, name, len(class_names), class_names)

    def outside(draws: dict[str, DrawOOD], role: Role) -> dict[str, Split]:
        made = {}
        for key, draw_ood in draws.items():
            x = draw_ood(n // 2, generator(seed, next(stream)))
            made[key] = Split(torch.from_numpy(x).float(), None, role, key)
        return made

    return Task(
        name=name,
        class_names=class_names,
        train=labelled(Role.TRAIN, n),
        validation=labelled(Role.VALIDATION, n // 2),
        calibration=labelled(Role.CALIBRATION, n // 2),
        test=labelled(Role.TEST, n // 2),
        ood_validation=outside(ood_validation, Role.OOD_VALIDATION),
        ood_test=outside(ood_test, Role.OOD_TEST),
    )
