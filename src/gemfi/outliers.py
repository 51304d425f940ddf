"""Virtual outliers: feature vectors that teach a model where its support ends.

A `Synthesiser` watches the features of a run and makes outliers from them, in the space that the
heads see. Nothing here ever reads a test set; `auxiliary` outliers come from a split with the role
of that name. `METHODS`' heads receive them as `Batch.outliers`, whatever their kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from gemfi.errors import InputError

Kind = Literal["none", "vos", "noise", "between", "auxiliary"]


@dataclass(frozen=True)
class OutlierConfig:
    """Which outliers, how many, and from when on.

    Attributes:
        kind: `none`; `vos`, the low-density tail of class-conditional Gaussians; `noise`, a
            feature plus Gaussian noise; `between`, a mixture of two features of different
            classes; `auxiliary`, real inputs from a split with that role.
        covariance: for `vos`, `shared` by the classes or `per-class`.
        queue: features kept for each class.
        draws: for `vos`, samples drawn for each class, of which the least likely are kept.
        ratio: outliers for each ID sample of a batch.
        scale: for `noise`, the standard deviation in units of the features' own mean spread.
        start: fraction of training before the first outliers.
        ramp: fraction of training over which their loss weight rises from 0 to 1.
    """

    kind: Kind = "vos"
    covariance: Literal["shared", "per-class"] = "shared"
    queue: int = 500
    draws: int = 500
    ratio: float = 0.3
    scale: float = 3.0
    start: float = 0.1
    ramp: float = 0.1

    def __post_init__(self) -> None:
        kinds = ("none", "vos", "noise", "between", "auxiliary")
        if self.kind not in kinds:
            raise InputError(f"outliers must be one of {', '.join(kinds)}, got {self.kind!r}")
        if self.covariance not in ("shared", "per-class"):
            raise InputError(f"covariance must be shared or per-class, got {self.covariance!r}")
        if self.queue < 2 or self.draws < 1 or not (self.ratio > 0 and self.scale > 0):
            raise InputError(
                "outliers need queue >= 2, draws >= 1, ratio > 0 and scale > 0, got "
                f"{self.queue}, {self.draws}, {self.ratio} and {self.scale}"
            )
        if not (0 <= self.start < 1 and 0 <= self.ramp <= 1):
            raise InputError(
                "outlier start in [0, 1) and ramp in [0, 1] are fractions of training, got "
                f"{self.start} and {self.ramp}"
            )


NONE = OutlierConfig(kind="none")


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


SYNTHESISERS: dict[str, type[Synthesiser]] = {"vos": VOS, "noise": Noise, "between": Between}


def synthesiser(config: OutlierConfig, num_classes: int, num_features: int) -> Synthesiser | None:
    """The synthesiser for a configuration; None for `none` and `auxiliary`."""
    kind = SYNTHESISERS.get(config.kind)
    return None if kind is None else kind(config, num_classes, num_features)
