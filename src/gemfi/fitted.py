"""A module with statistics that are fitted after training."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fitted(nn.Module):
    """Knows whether it has been fitted, and remembers it through a state dict.

    `fitted` is a plain bool, so that a forward pass has no branch on a tensor; after loading it
    follows the buffer `filled`.

    Args:
        fitted: whether there is nothing to fit.
    """

    filled: Tensor

    def __init__(self, *, fitted: bool = False) -> None:
        super().__init__()
        self.fitted = fitted
        self.register_buffer("filled", torch.tensor(fitted))
        self.register_load_state_dict_post_hook(_restore)  # type: ignore[no-untyped-call]

    def mark_fitted(self, *, fitted: bool = True) -> None:
        """Say that the statistics are there, or not any more."""
        self.filled.fill_(fitted)
        self.fitted = fitted


def _restore(module: nn.Module, _incompatible: object) -> None:
    if isinstance(module, Fitted):
        module.fitted = bool(module.filled)
