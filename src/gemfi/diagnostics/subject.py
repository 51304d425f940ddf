"""What is diagnosed: a model with what it says of a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gemfi.belief import Belief
from gemfi.methods import GEM, Head
from gemfi.model import Model
from gemfi.modes import evaluating
from gemfi.spectral import SpectralLayer

_BATCH = 512
_ITERATIONS = 100  # of the power iteration, which leaves a convolution's norm within 1 %


@dataclass(frozen=True)
class Subject:
    """A model, and what it says of the inputs of a split.

    Attributes:
        model: in evaluation mode or not; its weights alone are looked at.
        belief: on the inputs, in float64.
        energy: (N,) the learned energy, whichever one the belief reports; None without one.
        labels: (N,) of the inputs.
        distance: (N,) to the training features; None without a reference.
        norms: layer -> the largest norm of its operators, and the bound where it is normalised.
        history: records of training, an epoch each; None where they are not at hand.
    """

    model: Model
    belief: Belief
    energy: Tensor | None
    labels: Tensor
    distance: Tensor | None
    norms: Mapping[str, tuple[float, float | None]]
    history: Sequence[Mapping[str, Any]] | None

    @property
    def components(self) -> int:
        """K."""
        return self.belief.log_p.shape[1]

    @property
    def log_gate(self) -> Tensor | None:
        """Log of the gate (N, 1) or (N, C), wherever it acts; None without one."""
        return self.belief.extra.get("log_gate", self.belief.log_gate)

    @property
    def gate(self) -> Tensor | None:
        """The gate itself."""
        return None if self.log_gate is None else self.log_gate.exp()

    def setting(self, name: str, default: Any = None) -> Any:
        """A field of the method's configuration, which not every method has, as the head uses it.

        A weight that the configuration leaves open follows from the number of classes.
        """
        chosen: dict[str, float] = getattr(self.model.head, "weights", {})
        return chosen.get(name, getattr(self.model.head.config, name, default))


@torch.no_grad()
def ask(head: Head, z: Tensor) -> tuple[Belief, Tensor | None]:
    """The belief on features (N, D) and the learned energy (N,), in evaluation mode."""
    head = evaluating(head)
    beliefs, energies = [], []
    for start in range(0, len(z), _BATCH):
        rows = z[start : start + _BATCH]
        belief: Belief = head(rows)
        learned = head.parts(rows).energy if isinstance(head, GEM) else belief.energy
        beliefs.append(belief)
        energies += [] if learned is None else [learned]
    energy = torch.cat(energies).to(torch.float64) if energies else None
    return Belief.cat(beliefs).to(torch.float64), energy


def layer_norms(model: Model) -> dict[str, tuple[float, float | None]]:
    """Layer -> the largest norm of its operators in evaluation, and its bound or None."""
    found = {}
    for name, layer in model.named_modules():
        if isinstance(layer, SpectralLayer):
            bound = None if layer.spectral.kind == "off" else layer.spectral.bound
            found[name] = float(layer.norms(_ITERATIONS).max()), bound
    return found
