"""What GEM is made of: perceptrons, what they say of a batch, and the familiarity of an input."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi import dirichlet
from gemfi.density import Fitted, membership
from gemfi.spectral import OFF, Linear, Spectral


def in_space(z: Tensor, space: str) -> Tensor:
    """Features as they are (`raw`), or their directions (`unit`)."""
    return functional.normalize(z, dim=-1) if space == "unit" else z


class Parts(NamedTuple):
    """What the modules say of a batch of features, before they are put together.

    Attributes:
        energy: (B,) E, or None.
        log_gate: log s, or None: (B, 1) is a part of α already; the paper's (B, C) acts on p.
        log_weight: (B, K) log π.
        logits: (B, K, C) u.
        log_alpha: (B, K, C) log α.
    """

    energy: Any
    log_gate: Tensor | None
    log_weight: Tensor
    logits: Tensor
    log_alpha: Tensor

    def log_evidence(self) -> Tensor:
        """Log Σ_k π_k Σ_c exp u_kc (B,), the evidence before gate and clip."""
        return -dirichlet.logit_energy(self.logits, self.log_weight)

    def rows(self, rows: slice) -> Parts:
        """Some of the batch."""
        return Parts(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


class Perceptron(nn.Module):
    """Linear layers of these sizes with leaky ReLU (slope 0.1) and dropout between them.

    With `stack` they are K perceptrons side by side; `batch_norm` is of hidden layers, not for a
    stack.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        *,
        spectral: Spectral = OFF,
        dropout: float = 0.0,
        stack: int | None = None,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Linear(inputs, outputs, spectral=spectral, stack=stack)
            for inputs, outputs in itertools.pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(size) for size in sizes[1:-1] if batch_norm)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) to (B, out), or to (B, K, out) for a stack."""
        *hidden, last = self.layers
        for index, layer in enumerate(hidden):
            x = layer(x)
            if self.norms:
                x = self.norms[index](x)
            x = self.dropout(functional.leaky_relu(x, 0.1))
        return last(x)  # type: ignore[no-any-return]


class Familiarity(Fitted):
    """How well an input fits what the model knows: a product of three memberships.

    Log evidence, −energy and log density each become σ((x − a)/b), which is 1/2 at the lowest
    twentieth of ID data and 0.9 at their median: one that is within its usual range says nothing,
    and any of them far out is enough.
    """

    location: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("location", torch.zeros(3))  # of log α0, −E and log p(z)
        self.register_buffer("scale", torch.ones(3))

    @torch.no_grad()
    def fit(self, log_evidence: Tensor, energy: Tensor, log_density: Tensor) -> None:
        """Set locations and scales from values (N,) on ID data; what is empty takes no part."""
        for index, values in enumerate((log_evidence, -energy, log_density)):
            if len(values):
                self.location[index], self.scale[index] = membership(values)
        self.mark_fitted()

    def reset(self) -> None:
        """Forget the fit."""
        self.location.zero_()
        self.scale.fill_(1.0)
        self.mark_fitted(fitted=False)

    def forward(
        self, log_evidence: Tensor, energy: Tensor | None, log_density: Tensor | None
    ) -> Tensor | None:
        """Log familiarity (B,), at most 0; None before it is fitted."""
        if not self.fitted:
            return None
        total = self._log_membership(0, log_evidence)
        if energy is not None:
            total = total + self.of_energy(energy)
        if log_density is not None:
            total = total + self._log_membership(2, log_density)
        return total

    def of_energy(self, energy: Tensor) -> Tensor:
        """Log membership (B,) by the energy; log σ(−E) before it is fitted."""
        return self._log_membership(1, -energy)

    def _log_membership(self, index: int, values: Tensor) -> Tensor:
        return functional.logsigmoid((values - self.location[index]) / self.scale[index])
