"""OutlierConfig: which outliers, how many, how far out, and from when on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gemfi._config import check_choice, check_int, check_number
from gemfi.errors import InputError

Kind = Literal["none", "scrambled", "halo", "vos", "noise", "between", "auxiliary"]


@dataclass(frozen=True)
class OutlierConfig:
    """Which outliers, how many, and from when on.

    Outliers of two sources add up: those of `kind`, most of them in feature space, and `scrambled`
    inputs, which go through the backbone whatever the kind, unless it is `none`. For one source
    alone set `scrambled=0`; the paper's outliers are the constant `VOS`.

    Attributes:
        kind: `none`; `scrambled`, nothing but scrambled inputs; `halo`, a feature or a mixture of
            two, plus noise in every direction that is `near` to `far` times as large as the
            features' own spread; `vos`, the low-density tail of class-conditional Gaussians;
            `noise`, a feature plus Gaussian noise of one `scale`; `between`, a mixture of two
            features of different classes; `auxiliary`, real inputs from a split with that role.
        ratio: outliers of that kind for each ID sample of a batch.
        scrambled: outliers made by scrambling inputs for each ID sample of a batch; 0 for none.
        near: for `halo`, the shortest noise, in units of the spread within classes.
        far: for `halo`, the longest.
        covariance: for `vos`, `shared` by the classes or `per-class`.
        queue: for `vos`, features kept for each class.
        draws: for `vos`, samples drawn for each class, of which the least likely are kept.
        scale: for `noise`, the standard deviation in units of the features' own mean spread.
        start: fraction of training before the first outliers.
        ramp: fraction of training over which their loss weight rises from 0 to 1.
    """

    kind: Kind = "halo"
    ratio: float = 1.0
    scrambled: float = 0.3
    near: float = 0.5
    far: float = 3.0
    covariance: Literal["shared", "per-class"] = "shared"
    queue: int = 500
    draws: int = 500
    scale: float = 3.0
    start: float = 0.0
    ramp: float = 0.1

    def __post_init__(self) -> None:
        check_choice("outliers", self.kind, get_args(Kind))
        check_choice("covariance", self.covariance, ("shared", "per-class"))
        check_int("queue", self.queue, 2)
        check_int("draws", self.draws, 1)
        check_number("ratio", self.ratio, above=0)
        check_number("scrambled", self.scrambled, 0)
        check_number("near", self.near, above=0)
        check_number("far", self.far, self.near)
        check_number("scale", self.scale, above=0)
        check_number("start", self.start, 0, below=1)
        check_number("ramp", self.ramp, 0, 1)

    @property
    def is_none(self) -> bool:
        """Whether there are no outliers at all."""
        return self.kind == "none" or (self.kind == "scrambled" and self.scrambled == 0)


def require_outliers(value: object) -> None:
    """Refuse what is no `OutlierConfig` in the configuration of a method."""
    if not isinstance(value, OutlierConfig):
        raise InputError(
            f"outliers must be an OutlierConfig, got {value!r}; write OutlierConfig(kind=...)"
        )


NONE = OutlierConfig(kind="none")
VOS = OutlierConfig(kind="vos", ratio=0.3, scrambled=0.0, start=0.1, ramp=0.1)
"""The paper's."""
