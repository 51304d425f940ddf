"""MonitorState: what is known of a stream so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["rise", "fall"]


@dataclass(frozen=True)
class MonitorState:
    """What is known of a stream so far; inputs are counted from 0.

    Attributes:
        count: how many inputs there were.
        log10_wealth: of the martingale now; it began at 0.
        log10_limit: at which it fires, −log10 of the false-alarm rate.
        log10_largest: the largest it has been.
        largest_at: the input at which it was; None if it was never above its beginning.
        fired_at: the input at which it first reached the limit; None if it has not.
        direction: whether scores rose or fell when it fired; None if it has not.
    """

    count: int
    log10_wealth: float
    log10_limit: float
    log10_largest: float
    largest_at: int | None
    fired_at: int | None
    direction: Direction | None

    @property
    def fired(self) -> bool:
        """Whether it has fired; it stays so until `reset`."""
        return self.fired_at is not None
