"""Special functions from the operators that every runtime has: sums, products, exp and log.

ONNX has neither digamma nor lgamma, and its converter writes log σ, log(1 + x) and eˣ − 1 as they
stand on paper, which lose their digits where x is small and become infinite where it is large. What
is here keeps the digits of float32 and of float64. `REWRITTEN` puts these in the place of torch's
in an exported program, so that the methods and the scores are written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

SHIFT: Final = 10  # steps of the recurrence: from there on eight terms of a series leave 0.44/10¹⁶

_DIGAMMA: Final = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_LGAMMA: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def digamma(x: Tensor) -> Tensor:
    """ψ(x) of x > 0: ψ(x + 10) − Σ 1/(x + i), and ψ(y) = ln y − 1/(2y) − Σ B_2k/(2k·y²ᵏ)."""
    y = x + SHIFT
    r = y.reciprocal()
    series = torch.log(y) - r * (0.5 + r * _powers(r * r, _DIGAMMA))
    return series - _steps(x).reciprocal().sum(dim=-1)


def lgamma(x: Tensor) -> Tensor:
    """Log Γ(x) of x > 0: ln Γ(x + 10) − Σ ln(x + i), and Stirling's series for the first."""
    y = x + SHIFT
    r = y.reciprocal()
    series = (y - 0.5) * torch.log(y) - y + 0.5 * math.log(2 * math.pi)
    return series + r * _powers(r * r, _LGAMMA) - torch.log(_steps(x)).sum(dim=-1)


def log1p(x: Tensor) -> Tensor:
    """Log(1 + x): what rounding adds to 1 + x is taken back by x/((1 + x) − 1)."""
    y = 1 + x
    changed = y - 1
    exact = torch.log(y) * (x / torch.where(changed == 0, 1.0, changed))
    return torch.where(changed == 0, x, torch.where(torch.isinf(y), y, exact))


def expm1(x: Tensor) -> Tensor:
    """eˣ − 1, likewise: near 0 it is (y − 1)·x/ln y with y = eˣ."""
    y = torch.exp(x)
    near = (x.abs() < 1) & (y != 1)
    exact = (y - 1) * (x / torch.where(near, torch.log(y), 1.0))
    return torch.where(near, exact, torch.where(y == 1, x, y - 1))


def log_sigmoid(x: Tensor) -> Tensor:
    """Log σ(x) = min(x, 0) − ln(1 + e^−|x|), finite for every finite x."""
    return x.clamp_max(0) - log1p(torch.exp(-x.abs()))


def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    """Log(eᵃ + eᵇ) = max + ln(1 + e^−|a − b|)."""
    apart = torch.where(a == b, 0.0, a - b)
    return torch.maximum(a, b) + log1p(torch.exp(-apart.abs()))


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Log(1 + e^βx)/β, and x itself where βx passes the threshold, as torch has it."""
    scaled = x * beta
    small = log1p(torch.exp(scaled.clamp_max(threshold))) / beta
    return torch.where(scaled > threshold, x, small)


def _steps(x: Tensor) -> Tensor:
    """(..., 10): x, x + 1, ..., x + 9."""
    return x.unsqueeze(-1) + torch.arange(SHIFT, dtype=x.dtype, device=x.device)


def _powers(square: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Σ c_k·square^k by Horner's scheme."""
    total = square * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total = total * square + coefficient
    return total


REWRITTEN: Final[Mapping[Any, Callable[..., Tensor]]] = {
    torch.ops.aten.digamma.default: digamma,
    torch.ops.aten.special_digamma.default: digamma,
    torch.ops.aten.lgamma.default: lgamma,
    torch.ops.aten.log1p.default: log1p,
    torch.ops.aten.expm1.default: expm1,
    torch.ops.aten.log_sigmoid.default: log_sigmoid,
    torch.ops.aten.logaddexp.default: logaddexp,
    torch.ops.aten.softplus.default: softplus,
}
"""Operator of an exported program -> what stands for it in ONNX."""
