"""Batch norms of several processes, by the mean and variance of the whole batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi.processes import own_share, quick_table

Table = Callable[[Tensor], Tensor]
"""A row of each process, (P, ...), from that of this process."""


class _Normalise(torch.autograd.Function):
    """y = w·x̂ + b with x̂ = (x − mean)/√(variance + ε), over the batch of all processes.

    One communication forward and one backward. With g the gradient of y, that of x is
    w·(g − mean(g) − x̂·mean(g·x̂))/√(variance + ε), with means over the whole batch; w and b have the
    sums over this process. Passes over x are what it costs: on CPUs torch's own statistics take
    longer than all that is here.
    """

    @staticmethod
    def forward(
        context: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        epsilon: float,
        table: Table,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        across = [0, *range(2, x.ndim)]
        count = torch.full((1,), x.numel() / x.shape[1], dtype=x.dtype, device=x.device)
        mean = x.mean(across)
        variance = (x - _beside(mean, x)).square_().mean(across)
        rows = table(torch.cat([count, mean, variance]))  # (P, 1 + 2C)
        counts, means, variances = rows[:, :1], *rows[:, 1:].chunk(2, dim=1)
        whole = counts.sum()
        mean = (counts * means).sum(dim=0) / whole
        variance = (counts * (variances + (means - mean).square())).sum(dim=0) / whole
        context.save_for_backward(x, weight, mean, variance, whole)
        context.epsilon, context.table = epsilon, table
        context.mark_non_differentiable(mean, variance, whole)
        y = functional.batch_norm(x, mean, variance, weight, bias, eps=epsilon)
        return y, mean, variance, whole

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, whole = context.saved_tensors
        g, epsilon = gradients[0], context.epsilon
        scale = torch.rsqrt(variance + epsilon)
        _, with_x, alone = torch.ops.aten.native_batch_norm_backward(
            g, x, torch.ones_like(mean), None, None, mean, scale, True, epsilon, [False, True, True]
        )
        slope = scale if weight is None else scale * weight
        lacking = context.table(torch.cat([alone, with_x])).sum(dim=0) / -whole
        of_one, of_x = (slope * part for part in lacking.chunk(2))
        found = functional.batch_norm(x, mean, variance, of_x, of_one, eps=epsilon)
        of_affine = (None, None) if weight is None else (with_x, alone)
        return found.addcmul_(g, _beside(slope, x)), *of_affine, None, None


def _beside(values: Tensor, x: Tensor) -> Tensor:
    """Values (C,) in a shape to compute with x (B, C, ...)."""
    return values.reshape(-1, *(1 for _ in x.shape[2:]))


class _Synced(nn.modules.batchnorm._BatchNorm):
    """Batch norm by the mean and variance of the whole batch."""

    table: Table

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        y, mean, variance, count = _Normalise.apply(  # type: ignore[no-untyped-call]
            x.float(), self.weight, self.bias, self.eps, self.table
        )
        if self.track_running_stats and self.running_mean is not None:
            self._follow(mean, variance * count / (count - 1))
        return torch.as_tensor(y, dtype=x.dtype)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        assert self.num_batches_tracked is not None  # noqa: S101 - it follows running statistics
        self.num_batches_tracked += 1
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, value in ((self.running_mean, mean), (self.running_var, variance)):
            running.lerp_(value.to(running.dtype), share)  # type: ignore[union-attr]


class _Synced1d(_Synced, nn.BatchNorm1d):
    pass


class _Synced2d(_Synced, nn.BatchNorm2d):
    pass


class _Synced3d(_Synced, nn.BatchNorm3d):
    pass


_SYNCED: Final[dict[type[nn.Module], type[nn.Module]]] = {
    nn.BatchNorm1d: _Synced1d,
    nn.BatchNorm2d: _Synced2d,
    nn.BatchNorm3d: _Synced3d,
}


@contextlib.contextmanager
def synchronised(module: nn.Module) -> Iterator[None]:
    """Let the batch norms of a module see the whole batch, where there are several processes."""
    norms: list[Any] = [part for part in module.modules() if type(part) in _SYNCED]
    if own_share().count == 1 or not norms:
        yield
        return
    plain = {synced: usual for usual, synced in _SYNCED.items()}
    with quick_table() as table:
        for part in norms:
            part.__class__, part.table = _SYNCED[type(part)], table
        try:
            yield
        finally:
            for part in norms:
                part.__class__ = plain[type(part)]
                del part.table
