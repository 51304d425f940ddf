"""Spectral normalisation, soft and hard, for linear layers, stacks of them, and convolutions.

Soft: W / max(1, σ/c), which leaves a layer alone until its norm passes c (DDU). Hard: W·c/σ. σ is
the largest singular value of the *operator*: for a convolution that on its own input size, which is
why the size is given. Each training forward does one power iteration; in evaluation the stored σ is
used, and `refresh` brings it up to date after the last optimiser step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi._config import check_choices, check_int, check_number

_FIRST_ITERATIONS = 15


@dataclass(frozen=True)
class Spectral:
    """How a layer's norm is held: `soft` (at most `bound`), `hard` (exactly `bound`) or `off`."""

    kind: Literal["soft", "hard", "off"] = "soft"
    bound: float = 1.0

    def __post_init__(self) -> None:
        check_choices(self)
        check_number("bound", self.bound, above=0)


SOFT = Spectral(bound=3.0)
"""DDU's, for convolutions and residual blocks."""
OFF = replace(SOFT, kind="off")
"""None; with another `kind` it has DDU's bound."""


class SpectralLayer(nn.Module):
    """A layer whose weight is divided by a power-iteration estimate of its norm.

    Subclasses apply the linear operator and its transpose. `left` and `right` are the current
    singular vectors, with a leading dimension N for the operators that are iterated together.
    """

    weight: nn.Parameter
    left: Tensor
    right: Tensor
    sigma: Tensor

    def __init__(self, spectral: Spectral) -> None:
        super().__init__()
        self.spectral = spectral

    def apply_operator(self, right: Tensor, weight: Tensor) -> Tensor:
        """A·v for every operator, (N, ...)."""
        raise NotImplementedError

    def apply_transpose(self, left: Tensor, weight: Tensor) -> Tensor:
        """Aᵀ·u for every operator, (N, ...)."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Shape of the weight and how its norm is held; part of what identifies a run."""
        return f"{tuple(self.weight.shape)}, {self.spectral.kind} {self.spectral.bound:g}"

    def register_state(self, left: tuple[int, ...], right: tuple[int, ...]) -> None:
        """Create and settle the singular vectors of these shapes; call once the weight exists."""
        self.right_shape = right
        vectors = {"left": torch.randn(left), "right": torch.randn(right)}  # drawn for `off` too
        if self.spectral.kind == "off":
            return
        for name, vector in vectors.items():
            self.register_buffer(name, vector if vector.is_meta else _unit(vector))
        self.register_buffer("sigma", torch.ones(left[0]))
        if not self.left.is_meta:
            self.refresh(_FIRST_ITERATIONS)

    @torch.no_grad()
    def refresh(self, iterations: int) -> None:
        """Run power iterations on the present weight and store σ."""
        if self.spectral.kind == "off":
            return
        left, right = self._iterate(self.left, self.weight, iterations)
        self._store(left, right, self._norm(left, right, self.weight))

    def normalised_weight(self) -> Tensor:
        """The weight as the layer uses it; in training, after one power iteration."""
        if self.spectral.kind == "off":
            return self.weight
        if not self.training:
            return self._scale(self.sigma)
        left, right = self._iterate(self.left, self.weight, 1)
        sigma = self._norm(left, right, self.weight)
        self._store(left, right, sigma)
        return self._scale(sigma)

    @torch.no_grad()
    def norms(self, iterations: int = 200) -> Tensor:
        """Norms of the operators as used in evaluation, from a long power iteration (N,)."""
        weight = self.weight if self.spectral.kind == "off" else self._scale(self.sigma)
        # a fixed vector in general position, so that reports never touch a random generator
        count, *shape = self.right_shape
        start = torch.sin(torch.arange(1, math.prod(shape) + 1, dtype=torch.float32) * 1.7)
        start = start.view(shape).expand(count, *shape).to(weight)
        left = _unit(self.apply_operator(_unit(start), weight))
        left, right = self._iterate(left, weight, iterations)
        return self._norm(left, right, weight)

    @torch.no_grad()
    def _iterate(self, left: Tensor, weight: Tensor, count: int) -> tuple[Tensor, Tensor]:
        for _ in range(count):
            right = _unit(self.apply_transpose(left, weight))
            left = _unit(self.apply_operator(right, weight))
        return left, right

    def _norm(self, left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
        return (left * self.apply_operator(right, weight)).flatten(1).sum(dim=1)

    @torch.no_grad()
    def _store(self, left: Tensor, right: Tensor, sigma: Tensor) -> None:
        self.left.copy_(left)
        self.right.copy_(right)
        self.sigma.copy_(sigma)

    def _scale(self, sigma: Tensor) -> Tensor:
        factor = self.spectral.bound / sigma
        if self.spectral.kind == "soft":
            factor = torch.clamp_min(sigma / self.spectral.bound, 1.0).reciprocal()
        if factor.shape[0] > 1:
            factor = factor.view(-1, *[1] * (self.weight.ndim - 1))
        return self.weight * factor


class Linear(SpectralLayer):
    """A linear layer (B, in) to (B, out), or `stack` of them side by side in one matrix product.

    With `stack=K` it maps (B, in), shared by all, or (B, K, in) to (B, K, out).
    """

    def __init__(
        self, inputs: int, outputs: int, *, spectral: Spectral = OFF, stack: int | None = None
    ) -> None:
        super().__init__(spectral)
        self.inputs, self.outputs, self.stack = inputs, outputs, stack
        leading = () if stack is None else (stack,)
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(*leading, outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(*leading, outputs).uniform_(-bound, bound))
        self.register_state((stack or 1, outputs), (stack or 1, inputs))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer or the stack."""
        weight = self.normalised_weight()
        if self.stack is None:
            return functional.linear(x, weight, self.bias)
        if x.ndim == 2:  # one input for every layer of the stack: one matrix product
            flat = functional.linear(x, weight.flatten(0, 1), self.bias.flatten())
            return flat.view(-1, self.stack, self.outputs)
        product = torch.matmul(x.transpose(0, 1), weight.transpose(1, 2))  # (K, B, out)
        return product.transpose(0, 1) + self.bias

    def _matrices(self, weight: Tensor) -> Tensor:
        return weight if self.stack is not None else weight.unsqueeze(0)

    def apply_operator(self, right: Tensor, weight: Tensor) -> Tensor:
        """W·v for every matrix of the stack."""
        return torch.bmm(self._matrices(weight), right.unsqueeze(-1)).squeeze(-1)

    def apply_transpose(self, left: Tensor, weight: Tensor) -> Tensor:
        """Wᵀ·u for every matrix of the stack."""
        return torch.bmm(self._matrices(weight).transpose(1, 2), left.unsqueeze(-1)).squeeze(-1)


class Conv2d(SpectralLayer):
    """A square convolution without bias on inputs of `size` × `size`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        size: int,
        stride: int = 1,
        spectral: Spectral = OFF,
    ) -> None:
        super().__init__(spectral)
        check_int("size", size, 1)
        self.stride, self.padding = stride, kernel // 2
        out_size = (size + 2 * self.padding - kernel) // stride + 1
        self.in_shape, self.out_shape = (inputs, size, size), (outputs, out_size, out_size)
        self.lost = size - ((out_size - 1) * stride - 2 * self.padding + kernel)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")
        self.register_state((1, *self.out_shape), (1, *self.in_shape))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        return self.apply_operator(x, self.normalised_weight())

    def apply_operator(self, right: Tensor, weight: Tensor) -> Tensor:
        """The convolution."""
        return functional.conv2d(right, weight, stride=self.stride, padding=self.padding)

    def apply_transpose(self, left: Tensor, weight: Tensor) -> Tensor:
        """Its transpose, back to the input size."""
        return functional.conv_transpose2d(
            left, weight, stride=self.stride, padding=self.padding, output_padding=self.lost
        )


def refresh(module: nn.Module, iterations: int = 100) -> None:
    """Bring the stored norms of every layer in `module` up to date with its weights.

    The default leaves a convolution, whose largest singular values lie close together, within 1 %.
    """
    for layer in module.modules():
        if isinstance(layer, SpectralLayer):
            layer.refresh(iterations)


def _unit(x: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=tuple(range(1, x.ndim)), keepdim=True)
    unit: Tensor = x / norm.clamp_min(1e-12)
    return unit
