"""Decision: what to do with one input, and Decisions, the same for many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from gemfi.errors import InputError

Floats = npt.NDArray[np.float64]


class Verdict(IntEnum):
    """What to do with an input."""

    ACCEPT = 0
    """Familiar, and clear if the policy has a goal for clarity: use the label."""
    ABSTAIN = 1
    """Familiar, but ambiguous between known classes."""
    UNFAMILIAR = 2
    """Unlike the data that the model was calibrated on; its label means nothing."""

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Decision:
    """What to do with one input.

    Attributes:
        verdict: accept, abstain or unfamiliar.
        label: the most probable class, whatever the verdict.
        confidence: its probability.
        p_value: of "this input is like the calibration data". A twentieth of such inputs have
            0.05 or less.
    """

    verdict: Verdict
    label: Any
    confidence: float
    p_value: float

    def __str__(self) -> str:
        return (
            f"{self.verdict}: label {self.label}, confidence {self.confidence:.3f}, "
            f"p = {self.p_value:.3g}"
        )


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions on N inputs; `decisions[i]` is one, `decisions[:3]` and `decisions[mask]` are some.

    Attributes:
        verdict: (N,) int8, values of `Verdict`.
        label: (N,) the most probable classes.
        confidence: (N,) their probabilities.
        p_value: (N,) conformal p-values.
    """

    verdict: npt.NDArray[np.int8]
    label: npt.NDArray[Any]
    confidence: Floats
    p_value: Floats

    def __post_init__(self) -> None:
        lengths = {len(self.verdict), len(self.label), len(self.confidence), len(self.p_value)}
        if len(lengths) > 1:
            raise InputError(f"decisions need four arrays of one length, got {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.verdict)

    @overload
    def __getitem__(self, index: int) -> Decision: ...

    @overload
    def __getitem__(self, index: slice | npt.NDArray[Any]) -> Decisions: ...

    def __getitem__(self, index: int | slice | npt.NDArray[Any]) -> Decision | Decisions:
        if isinstance(index, slice) or np.ndim(index):
            return Decisions(
                self.verdict[index], self.label[index], self.confidence[index], self.p_value[index]
            )
        return Decision(
            Verdict(int(self.verdict[index])),
            self.label[index].item() if hasattr(self.label[index], "item") else self.label[index],
            float(self.confidence[index]),
            float(self.p_value[index]),
        )

    def __iter__(self) -> Iterator[Decision]:
        return (self[index] for index in range(len(self)))

    @property
    def accepted(self) -> npt.NDArray[np.bool_]:
        """(N,) whether the label is to be used."""
        return np.equal(self.verdict, Verdict.ACCEPT)

    def counts(self) -> dict[str, int]:
        """How many inputs have each verdict."""
        return {str(each): int((self.verdict == each).sum()) for each in Verdict}

    def names(self) -> list[str]:
        """The verdicts as words."""
        return [str(Verdict(int(each))) for each in self.verdict]

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts().items())
        return f"Decisions({counts})"
