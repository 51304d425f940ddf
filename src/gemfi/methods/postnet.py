"""Posterior network: evidence is the number of training samples that lie around an input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi import dirichlet, losses
from gemfi._config import check_int
from gemfi.belief import Belief
from gemfi.errors import InputError
from gemfi.methods.base import Batch, DataFacts, MethodInfo, Progress
from gemfi.methods.evidential import Evidential, EvidentialConfig
from gemfi.spectral import Linear


@dataclass(frozen=True)
class PostNetConfig(EvidentialConfig):
    """Choices of the posterior network; the defaults are the paper's.

    Attributes:
        latent: H, dimensions of the space in which densities are estimated.
        flow_length: layers of each class's radial flow.
        entropy_weight: of −H(Dir(α)), which keeps evidence from growing without end.
    """

    latent: int = 6
    flow_length: int = 6
    entropy_weight: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("latent", self.latent, 1)
        check_int("flow_length", self.flow_length, 0)


class PostNet(Evidential):
    """α_c = 1 + N_c·q(x|c): class counts times the density of the class around the input.

    x = BatchNorm(W z + b) has a few dimensions, and q(x|c) is a radial flow a class, so evidence
    vanishes far from the training data. The loss is the Bayes risk of −log p under Dir(α), ψ(α0) −
    ψ(α_y), less a little of the entropy of Dir(α).
    """

    info = MethodInfo(
        name="postnet",
        label="PostNet",
        summary="class counts times a normalising flow a class as evidence, Bayes risk of −log p",
        paper="Posterior Network: Uncertainty Estimation without OOD Samples via Density-Based "
        "Pseudo-Counts",
        venue="NeurIPS",
        year=2020,
    )
    default = PostNetConfig()
    class_counts: Tensor

    def __init__(self, num_features: int, num_classes: int, config: Any = None) -> None:
        super().__init__(num_features, num_classes, config)
        latent = self.config.latent
        self.linear = Linear(num_features, latent)  # to the latent space, not to the classes
        self.norm = nn.BatchNorm1d(latent)
        self.flows = RadialFlows(num_classes, latent, self.config.flow_length)
        self.register_buffer("class_counts", torch.ones(num_classes))

    def prepare(self, facts: DataFacts) -> None:
        """Take N_c; a class without training samples never has evidence."""
        counts = torch.zeros_like(self.class_counts)
        counts[: len(facts.class_counts)] = facts.class_counts.to(counts)
        self.class_counts.copy_(counts)

    def log_alpha(self, logits: Tensor) -> Tensor:
        """Log(1 + N_c·q(x|c)) from the logarithms of the pseudo-counts."""
        return functional.softplus(logits)

    def pseudo_counts(self, latent: Tensor) -> Tensor:
        """Log N_c + log q(x|c) (B, C) of latent points (B, H)."""
        return self.flows(latent) + self.class_counts.log()  # type: ignore[no-any-return]

    def logits(self, z: Tensor) -> Tensor:
        """Log pseudo-counts (B, C) of features (B, D)."""
        return self.pseudo_counts(self.norm(self.linear(z)))

    def forward(self, z: Tensor) -> Belief:
        """One Dirichlet, and the density of the latent point under all classes together."""
        logits = self.logits(z)
        log_density = torch.logsumexp(logits, dim=-1) - self.class_counts.sum().log()
        return self.belief(logits, log_density=log_density)

    def terms(self, log_alpha: Tensor, y: Tensor, at: Progress) -> dict[str, Tensor]:
        """Risk, and the entropy of the Dirichlet."""
        log_p, log_total = dirichlet.log_mean(log_alpha)
        entropy = dirichlet.differential_entropy(log_p, log_total).mean()
        return {
            "risk": losses.evidential_risk(log_p, log_total, y, "digamma"),
            "entropy": -self.config.entropy_weight * entropy,
        }

    def objective(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """The terms on ID features and, where there are outliers, the one on them."""
        if self.training and len(batch.z) < 2:
            raise InputError(
                "postnet has a batch normalisation, which needs at least two samples a batch to "
                "train, got 1: raise batch_size"
            )
        return super().objective(batch, at)

    def outlier_term(self, z: Tensor) -> Tensor:
        """`outlier_weight`·KL(Dir(α) ‖ Dir(1)) on features of outliers."""
        norm = self.norm
        # on the scale of ID features: statistics of their own would bring outliers to the middle
        scale = norm.weight, norm.bias
        latent = functional.batch_norm(
            self.linear(z), norm.running_mean, norm.running_var, *scale, eps=norm.eps
        )
        alpha = self.log_alpha(self.pseudo_counts(latent)).exp()
        return self.config.outlier_weight * dirichlet.kl_to_uniform(alpha).mean()  # type: ignore[no-any-return]


class RadialFlows(nn.Module):
    """One normalising flow a class from z (B, H) to a standard normal: a density q(z|c).

    Each of `length` layers pulls the space towards a centre z0 or pushes it away,

        f(z) = z + β̂·h·(z − z0) with h = 1/(α̂ + r) and r = ‖z − z0‖,

    invertible with α̂ = softplus(a) and β̂ = softplus(b) − α̂. Then log q(z|c) = log N(f_L(…
    f_1(z)); 0, I) + Σ_l log|det ∂f_l|.
    """

    def __init__(self, num_classes: int, dimensions: int, length: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(dimensions)

        def start(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(length, num_classes, *shape).uniform_(-bound, bound))

        self.center = start(dimensions)  # (L, C, H), z0
        self.radius = start()  # (L, C), the a of α̂
        self.slope = start()  # (L, C), the b of β̂

    def forward(self, z: Tensor) -> Tensor:
        """Log q(z|c) (B, C) of points (B, H)."""
        moved, log_det = self.transform(z)
        square = moved.square().sum(dim=-1)
        return log_det - 0.5 * square - 0.5 * z.shape[-1] * math.log(2 * math.pi)

    def transform(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Points (B, H) through the flow of every class (B, C, H), and log|det| of it (B, C)."""
        length, classes, dimensions = self.center.shape
        moved = z.unsqueeze(1).expand(-1, classes, -1)
        log_det = z.new_zeros(()).expand(z.shape[0], classes)
        for layer in range(length):
            inner = functional.softplus(self.radius[layer])  # α̂
            outer = functional.softplus(self.slope[layer])  # α̂ + β̂
            away = moved - self.center[layer]
            r = torch.linalg.vector_norm(away, dim=-1)  # (B, C)
            # 1 + β̂h = (r + α̂ + β̂)/(r + α̂) stretches the sphere, and 1 + β̂h + β̂h'r the radius;
            # as quotients of sums of positive numbers neither loses a digit
            log_span = torch.log(r + inner)
            across = torch.log(r + outer) - log_span
            along = torch.log(r * (r + 2 * inner) + inner * outer) - 2 * log_span
            log_det = log_det + (dimensions - 1) * across + along
            moved = self.center[layer] + away * across.exp().unsqueeze(-1)
        return moved, log_det
