"""A run that dies."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gemfi.model import Model


class Killed(BaseException):
    """As a kill: nobody catches it."""


def kill_at(model: Model, step: int | None) -> None:
    """Make the objective die at a step, as a kill would, with nothing saved on the way out."""
    original = model.head.objective

    def dying(batch: Any, at: Any) -> dict[str, Tensor]:
        if at.step == step:
            raise Killed
        return original(batch, at)

    model.head.objective = dying  # type: ignore[method-assign]
