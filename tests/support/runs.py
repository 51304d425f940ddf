"""Runs that die, and models that are compared with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

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


def assert_same(one: nn.Module, other: nn.Module) -> None:
    """All weights and buffers are equal to the bit."""
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    different = [name for name in mine if not torch.equal(mine[name], theirs[name])]
    assert not different


def timeless(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of a log without what differs from run to run."""
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]
