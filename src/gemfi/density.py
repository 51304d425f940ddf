"""Class-conditional Gaussians on features, and the density scaler ρ.

`Statistics` holds the sufficient statistics (n, Σz, Σzzᵀ), which add up across batches and
processes, so that memory is O(C·D²) whatever the number of samples. `ClassGaussians` turns them
into log p(z) = log Σ_c π_c N(z; μ_c, Σ_c), with Σ_c shrunk towards the tied covariance.
`DensityScaler` turns log p(z) into log ρ. Fits are in float64; evaluation is one matrix product.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi.errors import InputError

LARGEST = 50_000_000  # entries of C·D² beyond which the covariance is tied (400 MB in float64)
_SMALLEST_SCALE = 1e-6  # of a membership, where the values hardly differ
Covariance = Literal["class", "tied"]
RhoKind = Literal["standardised", "minmax", "raw", "none"]


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


class Statistics(nn.Module):
    """Sufficient statistics of labelled features: counts, sums and second moments, in float64.

    Features are taken relative to a fixed `origin` (the mean of the first batch), so that the
    second moments do not lose the spread under a large mean.

    Args:
        num_classes: C.
        num_features: D.
        tied: keep one second moment for all classes and not one each.
    """

    count: Tensor
    origin: Tensor
    total: Tensor
    outer: Tensor

    def __init__(self, num_classes: int, num_features: int, *, tied: bool = False) -> None:
        super().__init__()
        self.tied = tied
        moments = 1 if tied else num_classes
        self.register_buffer("count", torch.zeros(num_classes, dtype=torch.float64))
        self.register_buffer("origin", torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("total", torch.zeros(num_classes, num_features, dtype=torch.float64))
        self.register_buffer(
            "outer", torch.zeros(moments, num_features, num_features, dtype=torch.float64)
        )

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
        member = functional.one_hot(y, len(self.count)).to(torch.float64)  # (B, C)
        self.count += member.sum(dim=0)
        self.total += member.T @ z
        if self.tied:
            self.outer += z.T @ z
        else:
            for label in torch.bincount(y).nonzero().squeeze(1).tolist():
                rows = z[y == label]
                self.outer[label] += rows.T @ rows

    @torch.no_grad()
    def merge(self, other: Statistics) -> None:
        """Add what another process or batch has gathered."""
        if self.outer.shape != other.outer.shape or self.total.shape != other.total.shape:
            raise InputError(
                f"cannot merge statistics of different shape: {tuple(self.outer.shape)} and "
                f"{tuple(other.outer.shape)}"
            )
        if self.count.sum() == 0:
            self.origin.copy_(other.origin)
        move = other.origin - self.origin  # re-centre the other's sums on this origin
        total = other.total + other.count[:, None] * move
        moved, n = (
            (other.total.sum(0, keepdim=True), other.count.sum(0, keepdim=True))
            if self.tied
            else (other.total, other.count)
        )
        cross = moved[:, :, None] * move
        shift = n[:, None, None] * torch.outer(move, move)
        self.outer += other.outer + cross + cross.transpose(1, 2) + shift
        self.total += total
        self.count += other.count

    def reset(self) -> None:
        """Forget everything."""
        for buffer in self.buffers():
            buffer.zero_()

    def means(self) -> Tensor:
        """Class means (C, D) relative to `origin`; zero for a class without samples."""
        return self.total / self.count.clamp_min(1)[:, None]

    def tied_covariance(self) -> Tensor:
        """Pooled within-class covariance (D, D)."""
        mean = self.means()
        scatter = self.outer.sum(dim=0) - (self.total.T @ mean)
        return scatter / self.count.sum().clamp_min(1)

    def covariance(self, label: int) -> Tensor:
        """Covariance of one class (D, D), not available when tied."""
        mean = self.means()[label]
        return self.outer[label] / self.count[label].clamp_min(1) - torch.outer(mean, mean)


class ClassGaussians(Fitted):
    """log p(z) under one Gaussian a class, fitted from `Statistics`.

    Σ_c = (1 − s)·S_c + s·S_tied + r·I with shrinkage s and a small ridge r relative to the mean
    variance. A class with too few samples for its own covariance takes the tied one, and a class
    without samples takes no part; `notes` says so.

    Args:
        num_classes: C.
        num_features: D.
        covariance: `class`, or `tied` for one shared matrix. `class` becomes `tied` where C·D²
            passes `LARGEST` entries.
        shrinkage: weight s of the tied covariance.
        ridge: r in units of the mean variance.
    """

    center: Tensor
    means: Tensor
    whiten: Tensor
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
        if covariance not in ("class", "tied"):
            raise InputError(f"covariance must be class or tied, got {covariance!r}")
        if not 0 <= shrinkage <= 1:
            raise InputError(f"shrinkage must lie in [0, 1], got {shrinkage}")
        too_large = num_classes * num_features**2 > LARGEST
        self.tied = covariance == "tied" or too_large
        self.shrinkage, self.ridge = shrinkage, ridge
        self.notes: list[str] = []
        if too_large and covariance == "class":
            self.notes.append(
                f"one covariance for all classes: {num_classes} × {num_features}² entries pass the "
                f"limit of {LARGEST}"
            )
        moments = 1 if self.tied else num_classes
        self.register_buffer("center", torch.zeros(num_features))
        self.register_buffer("means", torch.zeros(num_classes, num_features))  # whitened, (C, D)
        self.register_buffer("whiten", torch.zeros(num_features, moments * num_features))
        self.register_buffer("log_norm", torch.zeros(num_classes))

    def statistics(self) -> Statistics:
        """Empty statistics of the right shape, on this module's device."""
        classes, features = self.means.shape
        return Statistics(classes, features, tied=self.tied).to(self.means.device)

    @torch.no_grad()
    def fit(self, statistics: Statistics) -> None:
        """Compute means, whitening and normalisers in float64; stored in the module's dtype."""
        if statistics.count.sum() == 0:
            raise InputError("cannot fit a density: no features were given")
        tied = statistics.tied_covariance()
        features = tied.shape[0]
        if not torch.isfinite(tied).all():
            raise InputError("cannot fit a density: some of the features are NaN or infinite")
        ridge = self.ridge * self._mean_variance(statistics, tied)
        eye = torch.eye(features, dtype=torch.float64, device=tied.device)
        self.notes = [note for note in self.notes if note.startswith("one covariance")]
        labels = [0] if self.tied else range(len(statistics.count))
        factors = [
            torch.linalg.cholesky(self._covariance(statistics, label, tied) + ridge * eye)
            for label in labels
        ]
        inverse = [torch.linalg.solve_triangular(each, eye, upper=False) for each in factors]
        half_logdet = torch.stack([each.diagonal().log().sum() for each in factors])
        mean = statistics.means()
        # whitened z is L⁻¹(z − center); `means` holds the whitened class means
        whitened = torch.stack(
            [inverse[0 if self.tied else label] @ mean[label] for label in range(len(mean))]
        )
        log_prior = torch.log(statistics.count / statistics.count.sum())
        log_norm = log_prior - half_logdet - 0.5 * features * math.log(2 * math.pi)
        self.center.copy_(statistics.origin)
        self.means.copy_(whitened)
        self.whiten.copy_(torch.cat([each.T for each in inverse], dim=1))
        self.log_norm.copy_(log_norm)
        self.mark_fitted()
        self._note_small_classes(statistics)

    def forward(self, z: Tensor) -> Tensor:
        """Log density (B,) of features (B, D)."""
        classes, features = self.means.shape
        white = (z - self.center) @ self.whiten  # (B, C·D), or (B, D) when tied
        if not self.tied:
            square = (white.view(-1, classes, features) - self.means).square().sum(dim=2)
            return torch.logsumexp(self.log_norm - 0.5 * square, dim=1)
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

    def _mean_variance(self, statistics: Statistics, tied: Tensor) -> float:
        """Of the tied covariance, held above the rounding of its sums where classes are points."""
        square = statistics.outer.sum(dim=0).diagonal().mean() / statistics.count.sum()
        return max(float(tied.diagonal().mean()), 1e-8 * float(square), 1e-12)

    def _covariance(self, statistics: Statistics, label: int, tied: Tensor) -> Tensor:
        if self.tied or statistics.count[label] < 2:
            return tied
        return (1 - self.shrinkage) * statistics.covariance(label) + self.shrinkage * tied

    def _note_small_classes(self, statistics: Statistics) -> None:
        features = statistics.origin.shape[0]
        counts = statistics.count.to(torch.int64).tolist()
        for label, count in enumerate(counts):
            if count == 0:
                self.notes.append(f"class {label} has no samples and takes no part in the density")
            elif count == 1 and not self.tied:
                self.notes.append(f"class {label} has one sample: tied covariance")
        few = [count for count in counts if 1 < count <= features]
        if few and not self.tied:
            span = str(few[0]) if min(few) == max(few) else f"{min(few)} to {max(few)}"
            self.notes.append(
                f"{len(few)} of {len(counts)} classes have no more samples ({span}) than "
                f"dimensions ({features}): their covariances have full rank only through shrinkage "
                f"{self.shrinkage} and the ridge"
            )


def membership(values: Tensor) -> tuple[Tensor, Tensor]:
    """Location a and scale b for which σ((x − a)/b) is 1/2 at the 5 % quantile, 0.9 at the median.

    Args:
        values: (N,) on ID data, of something that is higher on familiar inputs.
    """
    _check_values(values)
    levels = torch.tensor([0.05, 0.5], dtype=torch.float64, device=values.device)
    low, middle = torch.quantile(values.to(torch.float64), levels)
    return low, ((middle - low) / math.log(9)).clamp_min(_SMALLEST_SCALE)


def _check_values(values: Tensor) -> None:
    if values.numel() == 0 or not torch.isfinite(values).all():
        raise InputError(
            "a membership needs log densities or energies of ID data, all of them finite"
        )


class DensityScaler(Fitted):
    """log ρ(z) from log p(z).

    - `standardised`: ρ = σ((log p − a)/b)^γ, with a the 5 % quantile on ID data and b such that
      σ = 0.9 at the median. Literal σ(log p) is a 0/1 step in any real feature space.
    - `minmax`: ρ = clip((log p − min)/(max − min), 0, 1), as DAEDL.
    - `raw`: ρ = σ(log p)^γ, the paper to the letter.

    ρ is kept as log ρ and never below `floor`.

    Args:
        kind: one of the above.
        power: γ.
        floor: the smallest ρ.
    """

    location: Tensor
    scale: Tensor

    def __init__(
        self, kind: RhoKind = "standardised", *, power: float = 1.2, floor: float = 1e-3
    ) -> None:
        super().__init__(fitted=kind == "raw")
        if kind not in ("standardised", "minmax", "raw"):
            raise InputError(f"ρ must be standardised, minmax or raw, got {kind!r}")
        if not 0 <= floor < 1:
            raise InputError(f"the floor of ρ must lie in [0, 1), got {floor}")
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
        if self.kind == "raw":
            log_rho = self.power * functional.logsigmoid(log_density)
        elif self.kind == "standardised":
            position = (log_density - self.location) / self.scale
            log_rho = self.power * functional.logsigmoid(position)
        else:
            position = (log_density - self.location) / self.scale
            log_rho = position.clamp(self.floor, 1.0).log()
        return log_rho if self.floor == 0 else log_rho.clamp_min(math.log(self.floor))


def _restore(module: nn.Module, _incompatible: object) -> None:
    if isinstance(module, Fitted):
        module.fitted = bool(module.filled)
