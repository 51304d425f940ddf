"""Outliers in feature space: a `Synthesiser` watches the features of a run and makes them.

To add a kind, write a class and list it in `SYNTHESISERS`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi.outliers.config import OutlierConfig

_HALO_MEMORY = 50  # batches


class Synthesiser(nn.Module):
    """Makes outliers in feature space; its state is in buffers, so that a run resumes exactly.

    Args:
        config: what to make.
        num_classes: C.
        num_features: D.
    """

    def __init__(self, config: OutlierConfig, num_classes: int, num_features: int) -> None:
        super().__init__()
        self.config, self.num_classes, self.num_features = config, num_classes, num_features

    def observe(self, z: Tensor, y: Tensor) -> None:
        """See the features (B, D) and labels (B,) of a batch; the default keeps nothing."""

    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """About `ratio`·B outliers (M, D), or None where none can be made yet."""
        raise NotImplementedError

    def wanted(self, z: Tensor) -> int:
        """How many outliers go with a batch."""
        return max(1, round(self.config.ratio * len(z)))


class Halo(Synthesiser):
    """A feature, or a mixture of two, plus noise in every direction at the features' own scale.

    ID features vary in a few directions of their space and real outliers leave them, so noise that
    is the same in every direction goes where outliers are. For a feature on the unit sphere, it has
    a standard deviation of c times the root mean square deviation of a coordinate within classes on
    that sphere, with c log-uniform between `near` and `far`: the nearest touch the data, the
    farthest are well outside. For a feature of another length all is in proportion.
    """

    spread: Tensor
    batches: Tensor

    def __init__(self, config: OutlierConfig, num_classes: int, num_features: int) -> None:
        super().__init__(config, num_classes, num_features)
        self.register_buffer("spread", torch.zeros(()))  # mean variance within classes
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def observe(self, z: Tensor, y: Tensor) -> None:
        """Follow the variance within classes, over about fifty batches."""
        z = functional.normalize(z, dim=1)
        member = functional.one_hot(y, self.num_classes).to(z.dtype)  # (B, C)
        counts = member.sum(dim=0)
        mean = member.T @ z / counts.clamp_min(1)[:, None]
        free = len(z) - int((counts > 0).sum())  # degrees of freedom
        if free < 1:
            return
        variance = (z - mean[y]).square().sum() / (free * self.num_features)
        self.batches += 1
        self.spread += (variance - self.spread) / self.batches.clamp_max(_HALO_MEMORY)

    @torch.no_grad()
    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """Perturb features and mixtures of the batch; None before a spread is known."""
        if self.batches == 0:
            return None
        shape = (self.wanted(z), 1)

        def uniform() -> Tensor:
            return torch.rand(shape, generator=generator, dtype=z.dtype)

        def some() -> Tensor:
            return z[torch.randint(len(z), shape[:1], generator=generator)]

        first, second = some(), some()
        share = torch.where(uniform() < 0.5, 0.5 * uniform(), 0.0)
        near, far = math.log(self.config.near), math.log(self.config.far)
        length = torch.exp(near + (far - near) * uniform())
        noise = torch.randn(first.shape, generator=generator, dtype=z.dtype)
        base = torch.lerp(first, second, share)
        size: Tensor = torch.linalg.vector_norm(base, dim=1, keepdim=True)
        return torch.addcmul(base, size * length * self.spread.sqrt(), noise)


class Noise(Synthesiser):
    """A feature plus isotropic Gaussian noise of `scale` times the batch's mean spread."""

    @torch.no_grad()
    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """Perturb randomly chosen features of the batch."""
        chosen = z[torch.randint(len(z), (self.wanted(z),), generator=generator)]
        spread = z.std(dim=0, correction=0).mean()
        noise = torch.randn(chosen.shape, generator=generator, dtype=z.dtype)
        return chosen + self.config.scale * spread * noise


class Between(Synthesiser):
    """A mixture, with a share of 0.3 to 0.7, of two features of different classes."""

    @torch.no_grad()
    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """Mix random pairs of the batch; None where none differ, as in a batch of one class."""
        count = self.wanted(z)
        first = torch.randint(len(z), (4 * count,), generator=generator)
        second = torch.randint(len(z), (4 * count,), generator=generator)
        apart = (y[first] != y[second]).nonzero().squeeze(1)[:count]
        if len(apart) == 0:
            return None
        share = 0.3 + 0.4 * torch.rand(len(apart), 1, generator=generator, dtype=z.dtype)
        return share * z[first[apart]] + (1 - share) * z[second[apart]]


class VOS(Synthesiser):
    """The least likely draws of class-conditional Gaussians fitted on queues of recent features.

    The Gaussians are refitted whenever a quarter of the queues has been replaced, and when a class
    joins in.
    """

    bank: Tensor
    seen: Tensor
    fresh: Tensor
    mean: Tensor
    factor: Tensor

    def __init__(self, config: OutlierConfig, num_classes: int, num_features: int) -> None:
        super().__init__(config, num_classes, num_features)
        matrices = 1 if config.covariance == "shared" else num_classes
        self.register_buffer("bank", torch.zeros(num_classes, config.queue, num_features))
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("fresh", torch.tensor(num_classes * config.queue))  # due for a fit
        self.register_buffer("mean", torch.zeros(num_classes, num_features))
        self.register_buffer("factor", torch.zeros(matrices, num_features, num_features))

    @torch.no_grad()
    def observe(self, z: Tensor, y: Tensor) -> None:
        """Put the features into the queues of their classes, the oldest making room."""
        order = torch.argsort(y, stable=True)
        labels = y[order]
        counts = torch.bincount(labels, minlength=self.num_classes)
        first = counts.cumsum(0) - counts
        within = torch.arange(len(labels), device=y.device) - first[labels]
        # only the last `queue` of a class can survive this batch
        keep = within >= (counts - self.config.queue)[labels]
        slot = (self.seen[labels] + within) % self.config.queue
        self.bank[labels[keep], slot[keep]] = z[order][keep].to(self.bank.dtype)
        joins = ((self.seen < 2) & (self.seen + counts >= 2)).any()  # no Gaussian of its own yet
        self.seen += counts
        self.fresh += len(y) + joins * self.num_classes * self.config.queue

    @torch.no_grad()
    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """The tails of the classes seen so far; None while fewer than two have two features."""
        present = (self.seen > 1).nonzero().squeeze(1)
        if len(present) < 2:
            return None
        if self.fresh * 4 >= self.num_classes * self.config.queue:
            self._refit()
        return self._tail(present, self.wanted(z), generator)

    def _refit(self) -> None:
        self.fresh.zero_()
        held = self.seen.clamp_max(self.config.queue)
        slots = torch.arange(self.config.queue, device=held.device)
        mask = (slots < held[:, None]).to(self.bank.dtype)[:, :, None]  # (C, Q, 1)
        self.mean.copy_((self.bank * mask).sum(dim=1) / held.clamp_min(1)[:, None])
        centred = (self.bank - self.mean[:, None]) * mask
        if self.config.covariance == "shared":
            flat = centred.flatten(0, 1)
            covariance = (flat.T @ flat / held.sum())[None]
        else:
            covariance = centred.transpose(1, 2) @ centred / held.clamp_min(1)[:, None, None]
        ridge = covariance.diagonal(dim1=1, dim2=2).mean(dim=1).clamp_min(1e-12) * 1e-3
        eye = torch.eye(self.num_features, dtype=covariance.dtype, device=covariance.device)
        matrix = (covariance + ridge[:, None, None] * eye).to(torch.float64)
        self.factor.copy_(torch.linalg.cholesky(matrix))

    def _tail(self, present: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Log N(μ + Lε; μ, LLᵀ) = const − ‖ε‖²/2: the least likely draws have the longest ε.

        So only those that are kept are ever multiplied by L.
        """
        keep = min(self.config.draws, math.ceil(count / len(present)))
        shape = (len(present), self.config.draws, self.num_features)
        noise = torch.randn(shape, generator=generator, dtype=self.bank.dtype)
        longest = noise.square().sum(dim=2).topk(keep, dim=1).indices  # (P, keep)
        noise = noise.gather(1, longest[:, :, None].expand(-1, -1, self.num_features))
        factor = self.factor if len(self.factor) == 1 else self.factor[present]
        return (self.mean[present][:, None] + noise @ factor.transpose(1, 2)).flatten(0, 1)


SYNTHESISERS: dict[str, type[Synthesiser]] = {
    "halo": Halo,
    "vos": VOS,
    "noise": Noise,
    "between": Between,
}


def synthesiser(config: OutlierConfig, num_classes: int, num_features: int) -> Synthesiser | None:
    """The synthesiser for a configuration; None where nothing is made in feature space."""
    kind = SYNTHESISERS.get(config.kind)
    return None if kind is None else kind(config, num_classes, num_features)
