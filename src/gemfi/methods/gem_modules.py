"""The parts of the GEM head: perceptrons, their sizes, and the energy that is reported."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi import dirichlet
from gemfi.density import Fitted, membership
from gemfi.methods.gem_config import EnergySource
from gemfi.spectral import Linear, Spectral

_SOURCES = ("learned", "gmm", "logits")
_TIGHT = 1e-3  # a 1-99 % span below this is no signal


def unit(z: Tensor) -> Tensor:
    """Features on the unit sphere."""
    return functional.normalize(z, dim=-1)


@dataclass(frozen=True)
class Sizes:
    """Hidden layers of each module."""

    heads: tuple[int, ...]
    energy: tuple[int, ...]
    gate: tuple[int, ...]
    router: tuple[int, ...]
    energy_options: dict[str, Any] = field(default_factory=dict)


_SIZES = {
    "linear": Sizes(heads=(), energy=(64,), gate=(64,), router=(64,)),
    "paper": Sizes(heads=(128,), energy=(64,), gate=(64,), router=(64,)),
    "released": Sizes(
        heads=(512, 256),
        energy=(1024, 512, 256, 512),
        gate=(512, 512, 256),
        router=(256, 128),
        energy_options={"batch_norm": True, "dropout": 0.1},
    ),
}


def sizes_of(name: Literal["linear", "paper", "released"]) -> Sizes:
    """The module sizes by name."""
    return _SIZES[name]


class Parts(NamedTuple):
    """What the modules say of a batch of features, before they are put together.

    `energy` (B,) and `log_gate`, (B, C) or for the energy's gate (B, 1), are None where the
    switches leave them out; `logits` and `log_alpha` are (B, K, C), `log_weight` (B, K). α already
    carries any gate but that on probabilities.
    """

    energy: Tensor | None
    log_gate: Tensor | None
    log_weight: Tensor
    logits: Tensor
    log_alpha: Tensor

    def log_evidence(self) -> Tensor:
        """Log Σ_k π_k Σ_c exp u_kc (B,), the evidence before gate and clip."""
        return -dirichlet.logit_energy(self.logits, self.log_weight)

    def rows(self, rows: slice) -> Parts:
        """Some of the batch."""
        return Parts(*(None if each is None else each[rows] for each in self))  # type: ignore[arg-type]


class Perceptron(nn.Module):
    """Linear layers with leaky ReLU (slope 0.1) and dropout between them.

    Args:
        sizes: widths from input to output.
        spectral: how the norms are held.
        dropout: rate after each hidden layer.
        stack: K perceptrons side by side, or None for one.
        batch_norm: normalise each hidden layer (not for a stack).
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        *,
        spectral: Spectral,
        dropout: float,
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
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index < last:
                if self.norms:
                    x = self.norms[index](x)
                x = self.dropout(functional.leaky_relu(x, 0.1))
        return x


class Familiarity(Fitted):
    """How well an input fits what the model knows: a product of three memberships.

    Log evidence, −energy and log density each become a membership σ((x − a)/b), which is 1/2 at the
    lowest twentieth of ID data and 0.9 at their median. So each counts in units of its own spread
    on ID data: one that is within its usual range says nothing, and any of them far out is enough.
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
        found = self._log_membership(0, log_evidence)
        if energy is not None:
            found = found + self.of_energy(energy)
        if log_density is not None:
            found = found + self._log_membership(2, log_density)
        return found

    def of_energy(self, energy: Tensor) -> Tensor:
        """Log membership (B,) by the energy; log σ(−E) before it is fitted."""
        return self._log_membership(1, -energy)

    def _log_membership(self, index: int, values: Tensor) -> Tensor:
        return functional.logsigmoid((values - self.location[index]) / self.scale[index])


class EnergyReport(nn.Module):
    """Chooses the energy that the belief reports, and the paper's clipped confidence of it.

    confidence = clip(1 − (E − E_min)/(E_max − E_min), 0, 1) with the 1 % and 99 % quantiles on ID
    data. `auto` takes, of the learned and the density energy, the one with the wider 1-99 % span,
    and the energy of the logits where both spans are tight.
    """

    choice: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, source: EnergySource) -> None:
        super().__init__()
        self.source = source
        first = 0 if source == "auto" else _SOURCES.index(source)
        self.register_buffer("choice", torch.tensor([first]))
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))

    def forward(
        self,
        learned: Tensor | None,
        log_density: Tensor | None,
        logits: Tensor,
        log_weight: Tensor,
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """The energy (B,), or None where the source is absent, and the confidence scalar."""

        def source(name: str) -> Tensor | None:
            return _energy(name, learned, log_density, logits, log_weight)

        if self.source == "auto":
            absent = torch.zeros_like(logits[:, 0, 0])  # never chosen
            each = [source(name) for name in _SOURCES]
            filled = torch.stack([absent if value is None else value for value in each])
            energy: Tensor | None = filled.index_select(0, self.choice).squeeze(0)
        else:
            energy = source(self.source)
        if energy is None:
            return None, {}
        span = self.high - self.low
        position = torch.where(span > 0, (energy - self.low) / span, torch.zeros_like(energy))
        return energy, {"energy_confidence": 1 - position.clamp(0, 1)}

    def energies(
        self,
        learned: Tensor | None,
        log_density: Tensor | None,
        logits: Tensor,
        log_weight: Tensor,
    ) -> dict[str, Tensor]:
        """The energies that `fit` looks at, by source (B,)."""
        found = {
            name: _energy(name, learned, log_density, logits, log_weight)
            for name in (_SOURCES if self.source == "auto" else (self.source,))
        }
        return {name: energy for name, energy in found.items() if energy is not None}

    def fit(self, energies: dict[str, Tensor]) -> None:
        """Set the range, and with `auto` the source, from energies on ID data."""
        ranges = {name: _robust_range(energy) for name, energy in energies.items()}
        name: str = self.source
        if self.source == "auto":
            wide = {each: span[1] - span[0] for each, span in ranges.items() if each != "logits"}
            name = max(wide, key=lambda each: wide[each], default="logits")
            if wide.get(name, 0.0) < _TIGHT:
                name = "logits"
            self.choice.fill_(_SOURCES.index(name))
        low, high = ranges.get(name, (0.0, 0.0))
        self.low.fill_(low)
        self.high.fill_(high)


def _energy(
    name: str,
    learned: Tensor | None,
    log_density: Tensor | None,
    logits: Tensor,
    log_weight: Tensor,
) -> Tensor | None:
    if name == "learned":
        return learned
    if name == "gmm":
        return None if log_density is None else -log_density
    return dirichlet.logit_energy(logits, log_weight)


def _robust_range(energy: Tensor) -> tuple[float, float]:
    levels = torch.tensor([0.01, 0.99], dtype=torch.float64)
    low, high = torch.quantile(energy.detach().to(torch.float64), levels).tolist()
    return low, high
