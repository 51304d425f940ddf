"""Monte Carlo dropout: several thinned networks, whose disagreement is the uncertainty.

`MCDropout` is a head with dropout on the features. `monte_carlo` asks any model whose backbone or
head holds dropout layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi._config import check_int, check_number, check_seed
from gemfi.belief import Belief
from gemfi.errors import InputError
from gemfi.methods.base import Batch, Head, MethodInfo, Progress
from gemfi.modes import evaluating
from gemfi.randomness import forked_generator
from gemfi.spectral import Linear

if TYPE_CHECKING:
    from gemfi.model import Inputs, Model


@dataclass(frozen=True)
class MCDropoutConfig:
    """Choices of dropout on the features.

    Attributes:
        rate: share of the features that a mask leaves out. The default has the best NLL on digits'
            validation data of 0.1, 0.3 and 0.5.
        passes: S, masks at evaluation; one component of the belief each.
        seed: of those masks.
    """

    rate: float = 0.3
    passes: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("rate", self.rate, above=0, below=1)
        check_int("passes", self.passes, 1)
        check_seed("seed", self.seed)


class MCDropout(Head):
    """p = 1/S Σ_s softmax(W (m_s ∘ z) + b), trained by cross-entropy with a fresh mask a sample.

    The S masks of evaluation are drawn once and saved with the model, so that a belief depends on
    its input alone. The backbone runs once: the passes are through the last layer, as one matrix
    product. For dropout inside the backbone see `monte_carlo`, which runs it again for each pass.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        name="mc-dropout",
        label="MC dropout",
        summary="cross-entropy with dropout on the features; the mean of 20 fixed masks",
        paper="Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep "
        "Learning",
        venue="ICML",
        year=2016,
        epistemic="mutual_information",
        passes=20,
    )
    config_class = MCDropoutConfig
    config: MCDropoutConfig
    masks: Tensor

    def __init__(
        self, num_features: int, num_classes: int, config: MCDropoutConfig | None = None
    ) -> None:
        super().__init__(num_features, num_classes, config)
        self.linear = Linear(num_features, num_classes)
        generator = torch.Generator().manual_seed(self.config.seed)
        kept = torch.rand(self.config.passes, num_features, generator=generator) >= self.config.rate
        self.register_buffer("masks", kept / (1 - self.config.rate))  # (S, D)

    def forward(self, z: Tensor) -> Belief:
        """S equal components without evidence."""
        passes = self.masks.shape[0]
        weight = self.masks.unsqueeze(1) * self.linear.normalised_weight()  # (S, C, D)
        flat = functional.linear(z, weight.flatten(0, 1))
        logits = flat.view(-1, passes, self.num_classes) + self.linear.bias  # (B, S, C)
        return Belief(
            log_p=torch.log_softmax(logits, dim=-1),
            log_weight=logits.new_full((), -math.log(passes)).expand(logits.shape[:2]),
            logits=logits,
        )

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Cross-entropy, with fresh masks in training mode."""
        del at
        z = functional.dropout(batch.z, self.config.rate, training=self.training)
        return {"nll": functional.cross_entropy(self.linear(z), batch.y)}


def monte_carlo(
    model: Model, x: Inputs, passes: int = 20, seed: int = 0, *, batch_size: int = 512
) -> Belief:
    """The belief of several passes with dropout inside the network, as float64.

    Every dropout layer of the model draws anew in each pass; all else, batch normalisation
    included, is in evaluation mode. The components of all passes become components of one belief,
    with equal weights for the passes; a gate is moved into them. Densities are averaged over the
    passes, and so are energies. The model is left alone, and torch's global generators are as
    before afterwards; but dropout draws from them, so threads that draw at the same time change
    the masks. Dropout that is not a layer of its own, as in attention, is not seen.

    Args:
        model: with dropout layers of a rate above 0.
        x: (N, ...) inputs with N ≥ 1: a tensor, an array or a split.
        passes: how many; each costs a forward pass.
        seed: of the masks; with the same `batch_size` they are the same.
        batch_size: how many inputs at a time.
    """
    check_int("passes", passes, 1)
    check_seed("seed", seed)
    dropout = nn.modules.dropout._DropoutNd
    if not any(isinstance(part, dropout) and part.p > 0 for part in model.modules()):
        raise InputError(
            "monte_carlo needs dropout, and this model has no dropout layer of a rate above 0: "
            "build its backbone with some, or train the method mc-dropout"
        )
    model = evaluating(model, training=(dropout,))
    with torch.no_grad(), forked_generator(seed):
        return _joined([_one_pass(model, x, batch_size) for _ in range(passes)])


def _one_pass(model: Model, x: Inputs, batch_size: int) -> Belief:
    beliefs = [belief for _, belief in model.passes(x, batch_size)]
    return Belief.cat(beliefs).to(torch.float64)


def _joined(beliefs: Sequence[Belief]) -> Belief:
    """One belief whose components are those of all the passes."""
    parts = [belief.gated() for belief in beliefs]
    first, values = parts[0], dict[str, Any]()

    def each(name: str) -> list[Tensor] | None:
        return None if getattr(first, name) is None else [getattr(part, name) for part in parts]

    for name in ("log_p", "log_weight", "log_evidence", "logits"):
        if (found := each(name)) is not None:
            values[name] = torch.cat(found, dim=1)
    values["log_weight"] = values["log_weight"] - math.log(len(parts))
    for name in ("log_rho", "log_density", "log_familiarity"):
        if (found := each(name)) is not None:
            values[name] = torch.logsumexp(torch.stack(found), dim=0) - math.log(len(parts))
    for name in ("energy", "features"):
        if (found := each(name)) is not None:
            values[name] = torch.stack(found).mean(dim=0)
    extra = {
        name: torch.stack([part.extra[name] for part in parts]).mean(dim=0) for name in first.extra
    }
    return replace(first, **values, extra=extra)
