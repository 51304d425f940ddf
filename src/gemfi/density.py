"""Class-conditional Gaussians on features, and the density scaler ρ.

Fits are in float64, of sums over batches, so that memory is O(C·D²) whatever the number of samples;
evaluation is one matrix product.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi._config import check_choice, check_number
from gemfi.errors import InputError

LARGEST = 50_000_000  # entries of C·D² beyond which the covariance is tied (400 MB in float64)
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
    classes.
    """

    def __init__(
        self,
        num_classes: int,
        num_features: int,
        *,
        tied: bool = False,
        device: torch.device | None = None,
    ) -> None:
        self.tied = tied
        moments = 1 if tied else num_classes
        zeros = torch.zeros((), dtype=torch.float64, device=device)
        self.count = zeros.new_zeros(num_classes)
        self.origin = zeros.new_zeros(num_features)
        self.total = zeros.new_zeros(num_classes, num_features)
        self.outer = zeros.new_zeros(moments, num_features, num_features)

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

    def means(self) -> Tensor:
        """Class means (C, D) relative to `origin`; zero for a class without samples."""
        return self.total / self.count.clamp_min(1)[:, None]

    def tied_covariance(self) -> Tensor:
        """Pooled within-class covariance (D, D)."""
        scatter = self.outer.sum(dim=0) - (self.total.T @ self.means())
        return scatter / self.count.sum().clamp_min(1)

    def covariance(self, label: int) -> Tensor:
        """Covariance of one class (D, D), not available when tied."""
        mean = self.means()[label]
        return self.outer[label] / self.count[label].clamp_min(1) - torch.outer(mean, mean)


class ClassGaussians(Fitted):
    """log p(z) = log Σ_c π_c N(z; μ_c, Σ_c), fitted from `Statistics`.

    Σ_c = (1 − s)·S_c + s·S_tied + r·I with shrinkage s and a ridge r in units of the mean variance.
    `tied` is one matrix for all, which `class` becomes where C·D² passes `LARGEST` entries. A class
    with too few samples takes the tied covariance, and one without samples no part; `notes` says
    so.
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
        check_choice("covariance", covariance, get_args(Covariance))
        check_number("shrinkage", shrinkage, 0, 1)
        too_large = covariance == "class" and num_classes * num_features**2 > LARGEST
        self.tied = covariance == "tied" or too_large
        self.shrinkage, self.ridge = shrinkage, ridge
        self.limits: list[str] = []
        if too_large:
            self.limits.append(
                f"one covariance for all classes: {num_classes} × {num_features}² entries pass the "
                f"limit of {LARGEST}"
            )
        self.notes = self.limits
        moments = 1 if self.tied else num_classes
        self.register_buffer("center", torch.zeros(num_features))
        self.register_buffer("means", torch.zeros(num_classes, num_features))  # whitened, (C, D)
        self.register_buffer("whiten", torch.zeros(num_features, moments * num_features))
        self.register_buffer("log_norm", torch.zeros(num_classes))

    def statistics(self) -> Statistics:
        """Empty statistics of the right shape, on this module's device."""
        classes, features = self.means.shape
        return Statistics(classes, features, tied=self.tied, device=self.means.device)

    @torch.no_grad()
    def fit(self, statistics: Statistics) -> None:
        """Compute means, whitening and normalisers in float64; stored in the module's dtype."""
        if statistics.count.sum() == 0:
            raise InputError("cannot fit a density: no features were given")
        tied = statistics.tied_covariance()
        features = tied.shape[0]
        if not torch.isfinite(tied).all():
            raise InputError("cannot fit a density: some of the features are NaN or infinite")
        # held above the rounding of its sums where classes are points
        square = statistics.outer.sum(dim=0).diagonal().mean() / statistics.count.sum()
        variance = max(float(tied.diagonal().mean()), 1e-8 * float(square), 1e-12)
        eye = torch.eye(features, dtype=torch.float64, device=tied.device)
        factors = [
            torch.linalg.cholesky(matrix + self.ridge * variance * eye)
            for matrix in self._covariances(statistics, tied)
        ]
        inverse = [torch.linalg.solve_triangular(factor, eye, upper=False) for factor in factors]
        half_logdet = torch.stack([factor.diagonal().log().sum() for factor in factors])
        # whitened z is L⁻¹(z − center); `means` holds the whitened class means
        whitened = torch.stack(
            [
                inverse[0 if self.tied else label] @ mean
                for label, mean in enumerate(statistics.means())
            ]
        )
        log_prior = torch.log(statistics.count / statistics.count.sum())
        self.center.copy_(statistics.origin)
        self.means.copy_(whitened)
        self.whiten.copy_(torch.cat([matrix.T for matrix in inverse], dim=1))
        self.log_norm.copy_(log_prior - half_logdet - 0.5 * features * math.log(2 * math.pi))
        self.mark_fitted()
        self.notes = self.limits + self._small_classes(statistics)

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

    def _covariances(self, statistics: Statistics, tied: Tensor) -> list[Tensor]:
        """That of each class, or one for all."""
        if self.tied:
            return [tied]
        return [
            (1 - self.shrinkage) * statistics.covariance(label) + self.shrinkage * tied
            if count >= 2
            else tied
            for label, count in enumerate(statistics.count.tolist())
        ]

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


def membership(values: Tensor) -> tuple[Tensor, Tensor]:
    """Location a and scale b for which σ((x − a)/b) is 1/2 at the 5 % quantile, 0.9 at the median.

    `values` (N,) are of something on ID data that is higher on familiar inputs.
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
