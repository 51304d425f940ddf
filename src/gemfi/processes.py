"""Several processes that train one model: torchrun's, or a process group of the user's.

Each takes its share of every batch, and DistributedDataParallel averages the gradients. Whatever
couples the samples of a batch sees the whole of it: batch norms (`synchronised`) and outliers.
Statistics and validation are computed from what all processes embed, put in order (`in_turn`), so
that they are those of one process. The first process writes.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from gemfi.data.splits import ALONE, Share
from gemfi.devices import find_device

T = TypeVar("T")


def own_share() -> Share:
    """This process among those of the process group; alone where there is none."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return ALONE
    return Share(distributed.get_rank(), distributed.get_world_size())


@contextlib.contextmanager
def process_group(device: str) -> Iterator[bool]:
    """Join the processes that torchrun has started, where it has; whether this is the first.

    Args:
        device: of the training: GPUs talk by NCCL, processors by gloo.
    """
    joins = int(os.environ.get("WORLD_SIZE", "1")) > 1 and own_share().count == 1
    if joins:
        is_gpu = find_device(device).type == "cuda"
        store, rank, count = next(rendezvous("env://"))
        # restarted processes would find the addresses of those before in the launcher's store
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"gemfi {attempt}", store)
        backend = "nccl" if is_gpu else "gloo"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=count)
    try:
        yield own_share().rank == 0
    finally:
        if joins:
            distributed.destroy_process_group()


def agree(compute: Callable[[], T]) -> T:
    """What the first process computes, or the exception that it meets, in every process."""
    share = own_share()
    if share.count == 1:
        return compute()
    outcome: list[Any] = [None, None]
    if share.rank == 0:
        try:
            outcome[0] = compute()
        except Exception as error:  # noqa: BLE001 - raised in every process
            outcome[1] = error
    distributed.broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]  # type: ignore[no-any-return]


def any_process(flag: bool) -> bool:
    """Whether it is so in one of the processes."""
    if own_share().count == 1:
        return flag
    value = torch.tensor(int(flag), device=_device())
    distributed.all_reduce(value, distributed.ReduceOp.MAX)
    return bool(value)


def total(values: Tensor) -> Tensor:
    """The sum over the processes."""
    if own_share().count == 1:
        return values
    result = values.to(_device(), copy=True)
    distributed.all_reduce(result)
    return result.to(values.device)


def in_turn(mine: Iterator[T]) -> Iterator[T]:
    """The items of all processes, in every process: the first's first, the second's first, ...

    Args:
        mine: of p processes, every p-th item, from that of its rank on.
    """
    count = own_share().count
    if count == 1:
        yield from mine
        return
    while True:
        parts: list[Any] = [None] * count
        distributed.all_gather_object(parts, next(mine, None))
        there = [part for part in parts if part is not None]
        yield from there
        if len(there) < count:
            return


def gathered(x: Tensor) -> Tensor:
    """The whole batch (B, ...) from the shares of all processes, in their order; no gradient."""
    count = own_share().count
    if count == 1:
        return x.detach()
    sizes = [torch.zeros((), dtype=torch.int64, device=_device()) for _ in range(count)]
    distributed.all_gather(sizes, torch.tensor(len(x), device=_device()))
    lengths = [int(size) for size in sizes]
    padded = x.new_zeros(max(lengths), *x.shape[1:])
    padded[: len(x)] = x.detach()
    parts = [torch.empty_like(padded) for _ in range(count)]
    distributed.all_gather(parts, padded)
    return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])


def _device() -> torch.device:
    """Where the process group communicates small numbers."""
    is_gpu = distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu")


def shared_by_processes(module: nn.Module) -> DistributedDataParallel:
    """A module whose gradients are the means over all processes.

    Buffers stay: what couples a batch is computed from all of it in each process. Some terms of a
    loss come late in training, and their parameters have no gradient before.
    """
    known = inspect.signature(DistributedDataParallel).parameters  # the option has a new name
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: Any = {"find_unused_parameters": True, name: False}
    return DistributedDataParallel(module, **options)


# -- batch norms -----------------------------------------------------------------------------------


def _table(mine: Tensor) -> Tensor:
    """A row (P, ...) for each process; over gloo that is faster than a sum of small tensors."""
    parts = [torch.empty_like(mine) for _ in range(own_share().count)]
    distributed.all_gather(parts, mine)
    return torch.stack(parts)


class _Normalise(torch.autograd.Function):
    """x̂ = (x − mean)/√(variance + ε), with the mean and variance of the batch of all processes.

    One communication forward and one backward. With g the gradient of x̂, that of x is
    (g − mean(g) − x̂·mean(g·x̂))/√(variance + ε), with means over the whole batch: torch's own kernel
    with the means of this process, and what these lack.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        _, mean, scale = torch.native_batch_norm(x, None, None, None, None, True, 0.0, epsilon)
        count = torch.full((1,), x.numel() / x.shape[1], dtype=x.dtype, device=x.device)
        table = _table(torch.cat([count, mean, scale.pow(-2) - epsilon]))  # (P, 1 + 2C)
        counts, means, variances = table[:, :1], *table[:, 1:].chunk(2, dim=1)
        whole = counts.sum()
        mean = (counts * means).sum(dim=0) / whole
        variance = (counts * (variances + (means - mean).square())).sum(dim=0) / whole
        context.save_for_backward(x, mean, variance, count, whole)
        context.epsilon = epsilon
        context.mark_non_differentiable(mean, variance, whole)
        return functional.batch_norm(x, mean, variance, eps=epsilon), mean, variance, whole

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Tensor, None]:
        x, mean, variance, count, whole = context.saved_tensors
        scale = torch.rsqrt(variance + context.epsilon)
        found, with_x, alone = torch.ops.aten.native_batch_norm_backward(
            gradients[0], x, torch.ones_like(mean), None, None, mean, scale, True, context.epsilon,
            [True, True, True],
        )  # fmt: skip
        sums = torch.cat([alone, with_x])
        lacking = sums / count - _table(sums).sum(dim=0) / whole
        bias, weight = (part * scale for part in lacking.chunk(2))
        rest = functional.batch_norm(x, mean, variance, weight, bias, eps=context.epsilon)
        return found + rest, None


class _Synced(nn.modules.batchnorm._BatchNorm):
    """Batch norm by the mean and variance of the whole batch."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        normal, mean, variance, count = _Normalise.apply(  # type: ignore[no-untyped-call]
            x.float(), self.eps
        )
        if self.track_running_stats and self.running_mean is not None:
            self._follow(mean, variance * count / (count - 1))
        if self.affine:
            shape = (1, -1, *(1 for _ in x.shape[2:]))
            normal = torch.addcmul(self.bias.reshape(shape), normal, self.weight.reshape(shape))
        return torch.as_tensor(normal, dtype=x.dtype)

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
    norms = [part for part in module.modules() if type(part) in _SYNCED]
    if own_share().count == 1:
        norms = []
    for part in norms:
        part.__class__ = _SYNCED[type(part)]
    try:
        yield
    finally:
        plain = {synced: usual for usual, synced in _SYNCED.items()}
        for part in norms:
            part.__class__ = plain[type(part)]
