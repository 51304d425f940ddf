"""Virtual outliers: what a model is shown so that it learns where its support ends.

A `Synthesiser` watches the features of a run and makes outliers in their space. `scramble` takes
training inputs apart, so that the backbone learns from them too. Real outliers come from a split of
role `auxiliary`. No test set is ever read. A new kind is a class in `SYNTHESISERS` and `Kind`, or a
function on images in `IMAGES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi._config import check_choices, check_int, check_number
from gemfi.devices import move, on_host
from gemfi.errors import InputError

Kind = Literal["none", "scrambled", "halo", "vos", "noise", "between", "auxiliary"]
_HALO_MEMORY = 50  # batches
_SMALLEST_IMAGE = 4  # pixels a side; smaller images are scrambled like vectors


@dataclass(frozen=True)
class OutlierConfig:
    """Which outliers, how many, and from when on.

    Outliers of two sources add up: those of `kind`, most of them in feature space, and `scrambled`
    inputs, which go through the backbone whatever the kind, unless it is `none`. For one source
    alone set `scrambled=0`; the paper's outliers are the constant `VOS`.

    Attributes:
        kind: `none`; `scrambled`, nothing but scrambled inputs; `halo`, a feature or a mixture of
            two, plus noise in every direction that is `near` to `far` times as large as the
            features' own spread; `vos`, the low-density tail of class-conditional Gaussians;
            `noise`, a feature plus Gaussian noise of one `scale`; `between`, a mixture of two
            features of different classes; `auxiliary`, real inputs from a split with that role.
        ratio: outliers of that kind for each ID sample of a batch.
        scrambled: outliers made by scrambling inputs for each ID sample of a batch; 0 for none.
        near: for `halo`, the shortest noise, in units of the spread within classes.
        far: for `halo`, the longest.
        covariance: for `vos`, `shared` by the classes or `per-class`.
        queue: for `vos`, features kept for each class.
        draws: for `vos`, samples drawn for each class, of which the least likely are kept.
        scale: for `noise`, the standard deviation in units of the features' own mean spread.
        start: fraction of training before the first outliers.
        ramp: fraction of training over which their loss weight rises from 0 to 1.
    """

    kind: Kind = "halo"
    ratio: float = 1.0
    scrambled: float = 0.3
    near: float = 0.5
    far: float = 3.0
    covariance: Literal["shared", "per-class"] = "shared"
    queue: int = 500
    draws: int = 500
    scale: float = 3.0
    start: float = 0.0
    ramp: float = 0.1

    def __post_init__(self) -> None:
        check_choices(self)
        check_int("queue", self.queue, 2)
        check_int("draws", self.draws, 1)
        check_number("ratio", self.ratio, above=0)
        check_number("scrambled", self.scrambled, 0)
        check_number("near", self.near, above=0)
        check_number("far", self.far, self.near)
        check_number("scale", self.scale, above=0)
        check_number("start", self.start, 0, below=1)
        check_number("ramp", self.ramp, 0, 1)

    @property
    def is_none(self) -> bool:
        """Whether there are no outliers at all."""
        return self.kind == "none" or (self.kind == "scrambled" and self.scrambled == 0)


def require_outliers(value: object) -> None:
    """Refuse what is no `OutlierConfig` in the configuration of a method."""
    if not isinstance(value, OutlierConfig):
        raise InputError(
            f"outliers must be an OutlierConfig, got {value!r}; write OutlierConfig(kind=...)"
        )


NONE = OutlierConfig(kind="none")
VOS = OutlierConfig(kind="vos", ratio=0.3, scrambled=0.0, start=0.1, ramp=0.1)
"""The paper's."""


# -- in feature space ---------------------------------------------------------------------------


class Synthesiser(nn.Module):
    """Makes outliers in feature space; its state is in buffers, so that a run resumes exactly.

    `observe` sees the features (B, D) and labels (B,) of a batch; `sample` makes about `ratio`·B
    outliers (M, D) from one, or returns None where none can be made yet.
    """

    def __init__(self, config: OutlierConfig, num_classes: int, num_features: int) -> None:
        super().__init__()
        self.config, self.num_classes, self.num_features = config, num_classes, num_features

    def observe(self, z: Tensor, y: Tensor) -> None:
        """Keep what is needed of a batch; nothing by default."""

    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """Outliers (M, D)."""
        raise NotImplementedError

    def wanted(self, z: Tensor) -> int:
        """How many go with a batch."""
        return max(1, round(self.config.ratio * len(z)))


class Halo(Synthesiser):
    """A feature, or a mixture of two, plus noise in every direction at the features' own scale.

    ID features vary in a few directions of their space and real outliers leave them, so noise that
    is the same in every direction goes where outliers are. On the unit sphere its standard
    deviation is c times that of a coordinate within classes, with c log-uniform between `near` and
    `far`: the nearest touch the data, the farthest are well outside. Other lengths are in
    proportion.
    """

    spread: Tensor
    batches: Tensor

    def __init__(self, config: OutlierConfig, num_classes: int, num_features: int) -> None:
        super().__init__(config, num_classes, num_features)
        self.register_buffer("spread", torch.zeros(()))  # mean variance within classes
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.ready = False  # whether a spread is known; after loading, `batches` tells

    @torch.no_grad()
    def observe(self, z: Tensor, y: Tensor) -> None:
        """Follow the variance within classes, over about fifty batches."""
        with on_host():
            classes, own, sizes = torch.unique(y.cpu(), return_inverse=True, return_counts=True)
        free = len(y) - len(classes)  # degrees of freedom
        if free < 1:
            return
        z, own = functional.normalize(z, dim=1), move(own, z.device)
        member = functional.one_hot(own, len(classes)).to(z.dtype)  # (B, P) of those present
        mean = member.T @ z / move(sizes, z.device)[:, None]
        variance = (z - mean[own]).square().sum() / (free * self.num_features)
        self.batches += 1
        self.spread += (variance - self.spread) / self.batches.clamp_max(_HALO_MEMORY)
        self.ready = True

    @torch.no_grad()
    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """Perturb features and mixtures of the batch; None before a spread is known."""
        self.ready = self.ready or bool(self.batches > 0)
        if not self.ready:
            return None
        shape = (self.wanted(z), 1)

        def uniform() -> Tensor:
            return move(torch.rand(shape, generator=generator, dtype=z.dtype), z.device)

        first, second = (
            z[move(torch.randint(len(z), shape[:1], generator=generator), z.device)]
            for _ in range(2)
        )
        share = torch.where(uniform() < 0.5, 0.5 * uniform(), 0.0)
        near, far = math.log(self.config.near), math.log(self.config.far)
        length = torch.exp(near + (far - near) * uniform())
        noise = move(torch.randn(first.shape, generator=generator, dtype=z.dtype), z.device)
        base = torch.lerp(first, second, share)
        size: Tensor = torch.linalg.vector_norm(base, dim=1, keepdim=True)
        return torch.addcmul(base, size * length * self.spread.sqrt(), noise)


class Noise(Synthesiser):
    """A feature plus isotropic Gaussian noise of `scale` times the batch's mean spread."""

    @torch.no_grad()
    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """Perturb randomly chosen features of the batch."""
        rows = torch.randint(len(z), (self.wanted(z),), generator=generator)
        chosen = z[move(rows, z.device)]
        spread = z.std(dim=0, correction=0).mean()
        noise = move(torch.randn(chosen.shape, generator=generator, dtype=z.dtype), z.device)
        return chosen + self.config.scale * spread * noise


class Between(Synthesiser):
    """A mixture, with a share of 0.3 to 0.7, of two features of different classes."""

    @torch.no_grad()
    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """Mix random pairs of the batch; None where none differ, as in a batch of one class."""
        count = self.wanted(z)
        with on_host():
            y = y.cpu()
            pairs = torch.randint(len(z), (2, 4 * count), generator=generator)
            apart = (y[pairs[0]] != y[pairs[1]]).nonzero().squeeze(1)[:count]
            first, second = pairs[:, apart]
            share = 0.3 + 0.4 * torch.rand(len(apart), 1, generator=generator, dtype=z.dtype)
        if len(apart) == 0:
            return None
        share = move(share, z.device)
        return share * z[move(first, z.device)] + (1 - share) * z[move(second, z.device)]


class Tails(Synthesiser):
    """VOS: the least likely draws of class-conditional Gaussians on queues of recent features.

    They are refitted when a quarter of the queues was replaced, and when a class gets its second.
    The queues are where the features are; the counts, which decide what is done, on the CPU.
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

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.seen, self.fresh = self.seen.cpu(), self.fresh.cpu()
        return self

    @torch.no_grad()
    def observe(self, z: Tensor, y: Tensor) -> None:
        """Put the features into the queues of their classes, in place of the oldest."""
        with on_host():
            order = torch.argsort(y.cpu(), stable=True)
            labels = y.cpu()[order]
            counts = torch.bincount(labels, minlength=self.num_classes)
            first = counts.cumsum(0) - counts
            within = torch.arange(len(labels)) - first[labels]
            # only the last `queue` of a class can survive this batch
            keep = within >= (counts - self.config.queue)[labels]
            slot = (self.seen[labels] + within) % self.config.queue
            order, labels, slot = order[keep], labels[keep], slot[keep]
            joins = ((self.seen < 2) & (self.seen + counts >= 2)).any()  # no Gaussian yet
            self.seen += counts
            self.fresh += len(y) + joins * self.num_classes * self.config.queue
        where = self.bank.device
        rows = move(order, where)
        self.bank[move(labels, where), move(slot, where)] = z[rows].to(self.bank.dtype)

    @torch.no_grad()
    def sample(self, z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor | None:
        """The tails of the classes seen so far; None while fewer than two have two features."""
        with on_host():
            present = (self.seen > 1).nonzero().squeeze(1)
            due = bool(self.fresh * 4 >= self.num_classes * self.config.queue)
            held = self.seen.clamp_max(self.config.queue)
            self.fresh *= not due or len(present) < 2
        if len(present) < 2:
            return None
        if due:
            self._refit(move(held, z.device))
        return self._tail(present, self.wanted(z), generator)

    def _refit(self, held: Tensor) -> None:
        """Gaussians of the `held` (C,) features in the queues."""
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
        self.factor.copy_(torch.linalg.cholesky_ex(matrix).L)  # looks at no number of the device

    def _tail(self, present: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Log N(μ + Lε; μ, LLᵀ) = const − ‖ε‖²/2: the least likely draws have the longest ε.

        So only those that are kept are ever multiplied by L. Of more classes than are wanted some
        take part, at random.
        """
        if count < len(present):
            present = present[torch.randperm(len(present), generator=generator)[:count]]
        keep = min(self.config.draws, math.ceil(count / len(present)))
        shape = (len(present), self.config.draws, self.num_features)
        noise = torch.randn(shape, generator=generator, dtype=self.bank.dtype)
        longest = noise.square().sum(dim=2).topk(keep, dim=1).indices  # (P, keep)
        noise = noise.gather(1, longest[:, :, None].expand(-1, -1, self.num_features))
        noise, present = move(noise, self.mean.device), move(present, self.mean.device)
        factor = self.factor if len(self.factor) == 1 else self.factor[present]
        return (self.mean[present][:, None] + noise @ factor.transpose(1, 2)).flatten(0, 1)


SYNTHESISERS: dict[str, type[Synthesiser]] = {
    "halo": Halo,
    "vos": Tails,
    "noise": Noise,
    "between": Between,
}


def synthesiser(config: OutlierConfig, num_classes: int, num_features: int) -> Synthesiser | None:
    """The synthesiser for a configuration; None where nothing is made in feature space."""
    kind = SYNTHESISERS.get(config.kind)
    return None if kind is None else kind(config, num_classes, num_features)


# -- from inputs --------------------------------------------------------------------------------

Scramble = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""(B, C, H, W) images and as many of other classes to (B, C, H, W) outliers of the same type."""


def scramble(x: Tensor, y: Tensor, count: int, generator: torch.Generator) -> Tensor | None:
    """`count` outliers (count, ...) from a batch of inputs (B, ...) with labels (B,).

    Images go through one of `IMAGES` each; anything else has a part of its coordinates from a
    sample of another class. None where the batch has one class only, or for a `count` of 0.
    """
    if count == 0:
        return None
    with on_host():
        y = y.cpu()
        chosen = torch.randint(len(x), (count,), generator=generator)
        classes, own, sizes = torch.unique(y, return_inverse=True, return_counts=True)
        if len(classes) < 2:
            return None
        # sorted by class, all but those of the sample's own, which are one piece
        size, first = sizes[own[chosen]], (sizes.cumsum(0) - sizes)[own[chosen]]
        draw = torch.rand(count, generator=generator, dtype=torch.float64) * (len(x) - size)
        place = draw.long() + torch.where(draw >= first, size, 0)
        partner = torch.argsort(y, stable=True)[place]
        kinds = torch.randint(len(IMAGES), (count,), generator=generator)
        sizes = torch.bincount(kinds, minlength=len(IMAGES)).tolist()
    first, second = x[move(chosen, x.device)], x[move(partner, x.device)]
    if x.ndim != 4 or min(x.shape[2:]) < _SMALLEST_IMAGE:
        return exchange(first, second, generator)
    parts = zip(IMAGES, torch.split(first, sizes), torch.split(second, sizes), strict=True)
    return torch.cat([make(one, other, generator) for make, one, other in parts if len(one)])


def shuffle_patches(x: Tensor, _other: Tensor, generator: torch.Generator) -> Tensor:
    """Cut each image into 2×2, 3×3 or 4×4 patches and put them back in another order."""
    result = x.clone()
    with on_host():
        sides = torch.randint(2, 5, (len(x),), generator=generator)
        rows_of = {side: (sides == side).nonzero().squeeze(1) for side in range(2, 5)}
    for side, chosen in rows_of.items():
        rows = move(chosen, x.device)
        high, wide = x.shape[2] // side, x.shape[3] // side  # of a patch
        cut = x[rows, :, : side * high, : side * wide]
        grid = cut.reshape(len(rows), x.shape[1], side, high, side, wide).permute(0, 2, 4, 1, 3, 5)
        patches = grid.flatten(1, 2)  # (R, side², C, h, w)
        order = torch.rand(patches.shape[:2], generator=generator).argsort(dim=1)
        same = (order == torch.arange(side**2)).all(dim=1, keepdim=True)
        order = torch.where(same, order.roll(1, dims=1), order)  # the old is no outlier
        order = move(order, x.device)
        patches = patches.gather(1, order[:, :, None, None, None].expand_as(patches))
        result[rows, :, : side * high, : side * wide] = (
            patches.reshape(grid.shape).permute(0, 3, 1, 4, 2, 5).reshape(cut.shape)
        )
    return result


def mix(x: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    """Lay two images over each other, each with a share of 0.35 to 0.65."""
    share = 0.35 + 0.3 * move(torch.rand(len(x), 1, 1, 1, generator=generator), x.device)
    return _as_type(share * x + (1 - share) * other, x)


def join(x: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    """Take one half of the image, upper, lower, left or right, from the other."""
    height, width = x.shape[2:]
    upper = (torch.arange(height) < height // 2)[:, None].expand(height, width)
    left = (torch.arange(width) < width // 2)[None, :].expand(height, width)
    halves = torch.stack([upper, ~upper, left, ~left])
    chosen = torch.randint(4, (len(x),), generator=generator)
    return torch.where(move(halves[chosen].unsqueeze(1), x.device), x, other)


def tile(x: Tensor, _other: Tensor, generator: torch.Generator) -> Tensor:
    """Repeat a random window, a quarter to a half of the image's side, over the image."""
    height, width = x.shape[2:]
    first, last = max(2, min(height, width) // 4), max(2, min(height, width) // 2)
    size = torch.randint(first, last + 1, (len(x), 1), generator=generator)
    top = (torch.rand(len(x), 1, generator=generator) * (height - size + 1)).long()
    left = (torch.rand(len(x), 1, generator=generator) * (width - size + 1)).long()
    rows = move(top + torch.arange(height) % size, x.device)  # (B, H)
    columns = move(left + torch.arange(width) % size, x.device)
    batch = torch.arange(len(x), device=x.device)[:, None, None]
    return x.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def scatter_phases(x: Tensor, _other: Tensor, generator: torch.Generator) -> Tensor:
    """Keep the spectrum of each image and replace its phases by those of noise."""
    noise = move(torch.randn(len(x), 1, *x.shape[2:], generator=generator), x.device)
    spectrum, other = torch.fft.rfft2(x.float()), torch.fft.rfft2(noise)
    turned = spectrum * other / other.abs().clamp_min(1e-12)
    mean = x.float().mean(dim=(2, 3), keepdim=True)
    image = torch.fft.irfft2(turned, s=x.shape[2:])
    image = image - image.mean(dim=(2, 3), keepdim=True) + mean
    low, high = x.float().amin(dim=(1, 2, 3), keepdim=True), x.float().amax((1, 2, 3), True)
    return _as_type(image.clamp(low, high), x)


IMAGES: tuple[Scramble, ...] = (shuffle_patches, mix, join, tile, scatter_phases)


def exchange(x: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    """Take 20 to 80 % of the coordinates from the other: at least one, and not all.

    With one coordinate there is nothing to exchange, and the middle of the two is taken.
    """
    size = x[0].numel()
    if size == 1:
        return _as_type((x + other) / 2, x)
    share = 0.2 + 0.6 * torch.rand(len(x), 1, generator=generator)
    taken = (share * size).round().clamp(1, size - 1)
    order = torch.rand(len(x), size, generator=generator).argsort(dim=1)
    return torch.where(move((order < taken).reshape(x.shape), x.device), other, x)


def _as_type(image: Tensor, x: Tensor) -> Tensor:
    """In the type of x; bytes are rounded."""
    return image.to(x.dtype) if x.is_floating_point() else image.round().to(x.dtype)
