"""Class-conditional Gaussians on features, and the density scaler ρ.

Fits are in float64, of sums over batches, so that memory is that of the covariances whatever the
number of samples; evaluation is one matrix product. Where a matrix for each class would be too
large there is one for all, and where that would be too large it has low rank (docs/scale.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi._config import check_choice, check_number
from gemfi.errors import InputError

LARGEST = 50_000_000
"""Entries of the covariances: beyond it one serves all classes, and beyond it that has low rank."""
_SKETCH = 512  # columns from which a covariance of low rank is made
_WIDE = 1 << 16  # whitened numbers of an input that are held at a time
_SMALLEST_SCALE = 1e-6  # of a membership, where the values hardly differ
Covariance = Literal["class", "tied"]
RhoKind = Literal["standardised", "minmax", "raw", "none"]


class Fitted(nn.Module):
    """Knows whether it has been fitted, and remembers it through a state dict.

    `fitted` is a plain bool, so that a forward pass has no branch on a tensor; after loading it
    follows the buffer `filled`.
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


class Statistics:
    """Counts, sums and second moments of labelled features, in float64.

    Features are taken relative to a fixed `origin` (the mean of the first batch), so that the
    second moments do not lose the spread under a large mean. `tied` keeps one second moment for all
    classes, and `sketch` = ℓ of that no more than its product with ℓ random directions Ω (D, ℓ),
    which adds up like it.
    """

    def __init__(
        self,
        num_classes: int,
        num_features: int,
        *,
        tied: bool = False,
        sketch: int = 0,
        device: torch.device | None = None,
    ) -> None:
        self.tied = tied or sketch > 0
        moments = 1 if self.tied else num_classes
        zeros = torch.zeros((), dtype=torch.float64, device=device)
        self.count = zeros.new_zeros(num_classes)
        self.origin = zeros.new_zeros(num_features)
        self.total = zeros.new_zeros(num_classes, num_features)
        self.outer = zeros.new_zeros(moments, num_features, sketch or num_features)
        self.square = zeros.clone()  # the trace of the second moments
        self.probe: Tensor | None = None
        if sketch:
            generator = torch.Generator().manual_seed(0)
            draws = torch.randn(num_features, sketch, dtype=torch.float64, generator=generator)
            self.probe = torch.linalg.qr(draws).Q.to(zeros.device)

    @torch.no_grad()
    def update(self, z: Tensor, y: Tensor) -> None:
        """Add a batch of features (B, D) with labels (B,)."""
        if z.ndim != 2 or z.shape[1] != self.origin.shape[0] or len(z) != len(y):
            raise InputError(
                f"expected features (B, {self.origin.shape[0]}) with B labels, got "
                f"{tuple(z.shape)} and {tuple(y.shape)}"
            )
        if len(z) == 0:
            return
        z = z.to(torch.float64)
        if self.count.sum() == 0:
            self.origin.copy_(z.mean(dim=0))
        z = z - self.origin
        counts = torch.bincount(y, minlength=len(self.count))
        self.count += counts
        self.total.index_add_(0, y, z)
        self.square += z.square().sum()
        if self.tied:
            self.outer += z.T @ (z if self.probe is None else z @ self.probe)
        else:
            present = counts.nonzero().squeeze(1)
            parts = torch.split(z[torch.argsort(y, stable=True)], counts[present].tolist())
            for label, rows in zip(present.tolist(), parts, strict=True):
                self.outer[label] += rows.T @ rows

    def move(self, origin: Tensor) -> None:
        """Take the same features relative to another origin, as a sum with others needs them."""
        shift, count = self.origin - origin, self.count.sum()
        counts, totals = self.count, self.total
        if self.tied:
            counts, totals = count[None], self.total.sum(dim=0, keepdim=True)
        probe = (lambda vector: vector) if self.probe is None else self.probe.T.__matmul__
        for index, (number, total) in enumerate(zip(counts, totals, strict=True)):
            self.outer[index] += torch.outer(total + number * shift, probe(shift))
            self.outer[index] += torch.outer(shift, probe(total))
        self.square += shift @ (2 * self.total.sum(dim=0) + count * shift)
        self.total += self.count[:, None] * shift
        self.origin.copy_(origin)

    def sums(self) -> tuple[Tensor, ...]:
        """What adds up over batches with one origin."""
        return self.count, self.total, self.outer, self.square

    def means(self) -> Tensor:
        """Class means (C, D) relative to `origin`; zero for a class without samples."""
        return self.total / self.count.clamp_min(1)[:, None]

    def tied_covariance(self) -> Tensor:
        """Pooled within-class covariance (D, D)."""
        scatter = self.outer.sum(dim=0) - (self.total.T @ self.means())
        return scatter / self.count.sum().clamp_min(1)

    def covariance(self, label: int) -> Tensor:
        """Covariance of one class (D, D), not available when tied."""
        count = self.count[label].clamp_min(1)
        mean = self.total[label] / count
        return self.outer[label] / count - torch.outer(mean, mean)

    def spectrum(self, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """The largest eigenvalues (r,) of the pooled covariance S, vectors (D, r), and the trace.

        By Nyström's approximation S ≈ SΩ(ΩᵀSΩ)⁻¹ΩᵀS, with a shift ν that keeps the middle positive:
        Tropp et al., Fixed-Rank Approximation of a Positive-Semidefinite Matrix from Streaming
        Data, 2017, algorithm 3. The trace is exact.
        """
        assert self.probe is not None  # noqa: S101 - of a sketch
        means, count = self.means(), self.count.sum().clamp_min(1)
        shift = 1e-13 * (self.square / count).clamp_min(1e-12)
        sample = (self.outer[0] - self.total.T @ (means @ self.probe)) / count + shift * self.probe
        middle = self.probe.T @ sample
        factor = torch.linalg.cholesky((middle + middle.T) / 2)
        root = torch.linalg.solve_triangular(factor, sample.T, upper=False).T
        vectors, values, _ = torch.linalg.svd(root, full_matrices=False)
        trace = (self.square - (self.total * means).sum()) / count
        return vectors[:, :rank], (values[:rank].square() - shift).clamp_min(0), trace.clamp_min(0)


class ClassGaussians(Fitted):
    """log p(z) = log Σ_c π_c N(z; μ_c, Σ_c), fitted from `Statistics`.

    Σ_c = (1 − s)·S_c + s·S_tied + r·I with shrinkage s and a ridge r in units of the mean variance.
    `tied` is one matrix for all, which `class` becomes where C·D² passes `LARGEST` entries; where
    D² alone does, that matrix has the `rank` largest eigenvalues of S_tied and one variance, the
    mean of the others, in all directions beside them. A class with too few samples takes the tied
    covariance, and one without samples no part; `notes` says so.
    """

    center: Tensor
    means: Tensor
    whiten: Tensor
    stretch: Tensor
    log_norm: Tensor

    def __init__(
        self,
        num_classes: int,
        num_features: int,
        *,
        covariance: Covariance = "class",
        shrinkage: float = 0.3,
        ridge: float = 1e-4,
    ) -> None:
        super().__init__()
        check_choice("covariance", covariance, get_args(Covariance))
        check_number("shrinkage", shrinkage, 0, 1)
        low_rank = num_features**2 > LARGEST
        too_large = covariance == "class" and num_classes * num_features**2 > LARGEST
        self.tied = covariance == "tied" or too_large
        self.shrinkage, self.ridge = shrinkage, ridge
        self.sketch = min(_SKETCH, max(2, LARGEST // num_features)) if low_rank else 0
        self.rank = self.sketch // 2
        self.limits: list[str] = []
        if low_rank:
            self.limits.append(
                f"one covariance of rank {self.rank} and a variance for the rest: {num_features}² "
                f"entries pass the limit of {LARGEST}"
            )
        elif too_large:
            self.limits.append(
                f"one covariance for all classes: {num_classes} × {num_features}² entries pass the "
                f"limit of {LARGEST}"
            )
        self.notes = self.limits
        columns = self.rank or (1 if self.tied else num_classes) * num_features
        self.register_buffer("center", torch.zeros(num_features))
        self.register_buffer("means", torch.zeros(num_classes, num_features))  # whitened, (C, D)
        self.register_buffer("whiten", torch.zeros(num_features, columns))
        if low_rank:  # of each column of `whiten`, and of all that is beside them
            self.register_buffer("stretch", torch.zeros(self.rank + 1))
        self.register_buffer("log_norm", torch.zeros(num_classes))

    def statistics(self) -> Statistics:
        """Empty statistics of the right shape, on this module's device."""
        classes, features = self.means.shape
        device = self.means.device
        return Statistics(classes, features, tied=self.tied, sketch=self.sketch, device=device)

    @torch.no_grad()
    def fit(self, statistics: Statistics) -> None:
        """Compute means, whitening and normalisers in float64; stored in the module's dtype."""
        if statistics.count.sum() == 0:
            raise InputError("cannot fit a density: no features were given")
        if not torch.isfinite(statistics.square):
            raise InputError("cannot fit a density: some of the features are NaN or infinite")
        half_logdet = self._low_rank(statistics) if self.rank else self._full(statistics)
        log_prior = torch.log(statistics.count / statistics.count.sum())
        features = len(statistics.origin)
        self.center.copy_(statistics.origin)
        self.log_norm.copy_(log_prior - half_logdet - 0.5 * features * math.log(2 * math.pi))
        self.mark_fitted()
        self.notes = self.limits + self._small_classes(statistics)

    def _full(self, statistics: Statistics) -> Tensor:
        """Set `whiten` to L⁻ᵀ of each Σ = LLᵀ, and `means`; returns ½ log det Σ."""
        tied, means = statistics.tied_covariance(), statistics.means()
        eye = torch.eye(len(tied), dtype=torch.float64, device=tied.device)
        ridge = self.ridge * _variance(statistics, tied.diagonal().mean()) * eye
        half_logdet = []
        for index, matrix in enumerate(self._covariances(statistics, tied)):
            factor = torch.linalg.cholesky(matrix + ridge)
            inverse = torch.linalg.solve_triangular(factor, eye, upper=False)
            self.whiten[:, index * len(eye) : (index + 1) * len(eye)].copy_(inverse.T)
            half_logdet.append(factor.diagonal().log().sum())
            if self.tied:
                self.means.copy_(means @ inverse.T)
            else:
                self.means[index].copy_(inverse @ means[index])
        return torch.stack(half_logdet)

    def _low_rank(self, statistics: Statistics) -> Tensor:
        """As `_full`, for Σ = V diag(λ) Vᵀ + τ(I − VVᵀ), whose root has the same form."""
        vectors, values, trace = statistics.spectrum(self.rank)
        features = len(vectors)
        ridge = self.ridge * _variance(statistics, trace / features)
        others = features - self.rank
        rest = (trace - values.sum()).clamp_min(0) / others + ridge
        scale = (values + ridge).rsqrt()
        self.whiten.copy_(vectors)
        self.stretch.copy_(torch.cat([scale - rest.rsqrt(), rest.rsqrt()[None]]))
        means = statistics.means()
        beside = (means @ vectors) * (scale - rest.rsqrt())
        self.means.copy_(rest.rsqrt() * means + beside @ vectors.T)
        return 0.5 * ((values + ridge).log().sum() + others * rest.log())

    def whitened(self, z: Tensor) -> Tensor:
        """Features (B, D) relative to `center`, in the units of a tied covariance (B, D)."""
        z = z - self.center
        if not self.rank:
            return z @ self.whiten
        beside = (z @ self.whiten) * self.stretch[:-1]
        return self.stretch[-1] * z + beside @ self.whiten.T

    def forward(self, z: Tensor) -> Tensor:
        """Log density (B,) of features (B, D)."""
        if not self.tied:
            return torch.logsumexp(self.log_norm - 0.5 * self._squares(z - self.center), dim=1)
        white = self.whitened(z)
        square = (
            white.square().sum(dim=1, keepdim=True)
            - 2 * white @ self.means.T
            + self.means.square().sum(dim=1)
        )
        terms = self.log_norm - 0.5 * square
        # far means cost the expanded square its last digits, so the class that counts is redone
        best = terms.argmax(dim=1)
        exact = (white - self.means[best]).square().sum(dim=1)
        term = self.log_norm[best] - 0.5 * exact
        return torch.logsumexp(terms.scatter(1, best[:, None], term[:, None]), dim=1)

    def _squares(self, z: Tensor) -> Tensor:
        """Squared distances (B, C) by the covariance of each class, of some classes at a time."""
        features = z.shape[1]
        parts = torch.split(self.means, max(1, _WIDE // features))
        whiten = torch.split(self.whiten, [len(means) * features for means in parts], dim=1)
        squares = [
            ((z @ columns).view(-1, len(means), features) - means).square().sum(dim=2)
            for means, columns in zip(parts, whiten, strict=True)
        ]
        return squares[0] if len(squares) == 1 else torch.cat(squares, dim=1)

    def _covariances(self, statistics: Statistics, tied: Tensor) -> Iterator[Tensor]:
        """That of each class, or one for all."""
        if self.tied:
            yield tied
            return
        for label, count in enumerate(statistics.count.tolist()):
            if count < 2:
                yield tied
            else:
                own = statistics.covariance(label)
                yield (1 - self.shrinkage) * own + self.shrinkage * tied

    def _small_classes(self, statistics: Statistics) -> list[str]:
        """Notes on classes that have no Gaussian of their own, or hardly one."""
        notes, features = [], statistics.origin.shape[0]
        counts = statistics.count.to(torch.int64).tolist()
        for label, count in enumerate(counts):
            if count == 0:
                notes.append(f"class {label} has no samples and takes no part in the density")
            elif count == 1 and not self.tied:
                notes.append(f"class {label} has one sample: tied covariance")
        few = [count for count in counts if 1 < count <= features]
        if few and not self.tied:
            span = str(few[0]) if min(few) == max(few) else f"{min(few)} to {max(few)}"
            notes.append(
                f"{len(few)} of {len(counts)} classes have no more samples ({span}) than "
                f"dimensions ({features}): their covariances have full rank only through shrinkage "
                f"{self.shrinkage} and the ridge"
            )
        return notes


def _variance(statistics: Statistics, mean: Tensor) -> float:
    """The mean variance, held above the rounding of its sums where classes are points."""
    square = statistics.square / (len(statistics.origin) * statistics.count.sum())
    return max(float(mean), 1e-8 * float(square), 1e-12)


def membership(values: Tensor) -> tuple[Tensor, Tensor]:
    """Location a and scale b for which σ((x − a)/b) is 1/2 at the 5 % quantile, 0.9 at the median.

    `values` (N,) are of something on ID data that is higher on familiar inputs.
    """
    _check_values(values)
    ordered = values.to(torch.float64).sort().values  # torch.quantile takes no more than 2²⁴
    place = torch.tensor([0.05, 0.5], dtype=torch.float64, device=values.device)
    place = place * (len(values) - 1)
    low, middle = ordered[place.floor().long()].lerp(ordered[place.ceil().long()], place.frac())
    return low, ((middle - low) / math.log(9)).clamp_min(_SMALLEST_SCALE)


def _check_values(values: Tensor) -> None:
    if values.numel() == 0 or not torch.isfinite(values).all():
        raise InputError(
            "a membership needs log densities or energies of ID data, all of them finite"
        )


class DensityScaler(Fitted):
    """log ρ(z) from log p(z), never below `floor`.

    - `standardised`: ρ = σ((log p − a)/b)^γ, with a the 5 % quantile on ID data and b such that
      σ = 0.9 at the median. Literal σ(log p) is a 0/1 step in any real feature space.
    - `minmax`: ρ = clip((log p − min)/(max − min), 0, 1), as DAEDL.
    - `raw`: ρ = σ(log p)^γ, the paper to the letter.
    """

    location: Tensor
    scale: Tensor

    def __init__(
        self, kind: RhoKind = "standardised", *, power: float = 1.2, floor: float = 1e-3
    ) -> None:
        super().__init__(fitted=kind == "raw")
        check_choice("ρ", kind, ("standardised", "minmax", "raw"))
        check_number("the floor of ρ", floor, 0, below=1)
        if kind == "minmax" and floor == 0:
            raise InputError("minmax ρ reaches zero, so it needs a positive floor")
        self.kind, self.power, self.floor = kind, power, floor
        self.register_buffer("location", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    @torch.no_grad()
    def fit(self, log_density: Tensor) -> None:
        """Set location and scale from log densities of ID data (validation, where there is one)."""
        values = log_density.to(torch.float64)
        _check_values(values)
        if self.kind == "standardised":
            low, spread = membership(values)
        else:
            low, spread = values.min(), (values.max() - values.min()).clamp_min(_SMALLEST_SCALE)
        self.location.copy_(low)
        self.scale.copy_(spread)
        self.mark_fitted()

    def forward(self, log_density: Tensor) -> Tensor:
        """Log ρ (B,)."""
        position = log_density
        if self.kind != "raw":
            position = (log_density - self.location) / self.scale
        if self.kind == "minmax":
            return position.clamp(self.floor, 1.0).log()
        log_rho = self.power * functional.logsigmoid(position)
        return log_rho if self.floor == 0 else log_rho.clamp_min(math.log(self.floor))
