"""Several processes that train one model: torchrun's, or a process group of the user's.

Each takes its share of every batch, and DistributedDataParallel averages the gradients. Whatever
couples the samples of a batch sees the whole of it: batch norms (`synchronised.py`) and outliers.
Each embeds its share of the data for statistics, whose sums are added up (`total`), and what is
measured on validation data is put in order (`in_turn`). The first process writes.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import platform
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from gemfi.data.splits import ALONE, Share
from gemfi.devices import find_device
from gemfi.errors import GemfiError

T = TypeVar("T")
_QUICK: Final = 1 << 16  # bytes that any socket takes without a reader
_TOGETHER: Final = ContextVar("together", default=False)
_LONGEST_PATH: Final = 100  # of a Unix socket


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

    An exception that one of them meets is raised in all.

    Args:
        mine: of p processes, every p-th item, from that of its rank on.
    """
    count = own_share().count
    if count == 1:
        yield from mine
        return
    while True:
        parts: list[Any] = [None] * count
        distributed.all_gather_object(parts, _next(mine))
        there = [part for part in parts if part is not None]
        for item, error in there:
            if error is not None:
                raise error
            yield item
        if len(there) < count:
            return


def _next(items: Iterator[T]) -> tuple[T | None, Exception | None] | None:
    """The next item, made alone, or the exception in its place; None at the end."""
    token = _TOGETHER.set(False)
    try:
        return next(items), None
    except StopIteration:
        return None
    except Exception as error:  # noqa: BLE001 - raised in every process
        return None, error
    finally:
        _TOGETHER.reset(token)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Share what a model is asked among the processes of the group, which all must ask.

    Inside, `predict`, `beliefs`, `observe`, `evaluate` and `Detector.score` ask about every p-th
    batch in each of p processes, and return in each what one process returns: every input once, in
    order. Outside, each process asks for itself alone.
    """
    token = _TOGETHER.set(True)
    try:
        yield
    finally:
        _TOGETHER.reset(token)


def shared_out(work: Callable[[Share], Iterator[T]]) -> Iterator[T]:
    """All items of some work, in order; inside `together` each process does its share of it."""
    if _TOGETHER.get() and own_share().count > 1:
        yield from in_turn(work(own_share()))
    else:
        yield from work(ALONE)


def table(mine: Tensor) -> Tensor:
    """A row (P, ...) for each process; over gloo that is faster than a sum of small tensors."""
    parts = [torch.empty_like(mine) for _ in range(own_share().count)]
    distributed.all_gather(parts, mine)
    return torch.stack(parts)


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
    options: Any = {"find_unused_parameters": True, "gradient_as_bucket_view": True, name: False}
    return DistributedDataParallel(module, **options)


# -- small tensors between processes of one machine --------------------------------------------


@contextlib.contextmanager
def quick_table() -> Iterator[Callable[[Tensor], Tensor]]:
    """`table`, through Unix sockets where all processes are on one machine and its processors.

    A batch norm of several processes waits for a few hundred bytes, twice in each step. gloo hands
    them to a thread of its own, which takes turns with the network on the same cores.
    """
    with contextlib.ExitStack() as stack:
        has_unix = distributed.get_backend() == "gloo" and hasattr(socket, "AF_UNIX")
        peers = _connected(stack) if has_unix else None
        yield table if peers is None else partial(_exchange, peers)


def _connected(stack: contextlib.ExitStack) -> list[socket.socket | None] | None:
    """A socket for each process, None for itself; None where they are not on one machine."""
    share = own_share()
    address = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "socket")
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    if len(address) < _LONGEST_PATH:
        listener.bind(address)
        listener.listen(share.count)
    addresses: list[Any] = [None] * share.count
    distributed.all_gather_object(addresses, (platform.node(), address))
    apart = [node != platform.node() or not Path(path).is_socket() for node, path in addresses]
    if any_process(any(apart)):
        return None
    peers: list[socket.socket | None] = [None] * share.count
    for rank in range(share.rank):
        peer = stack.enter_context(socket.socket(socket.AF_UNIX))
        peer.connect(addresses[rank][1])
        peer.sendall(share.rank.to_bytes(4, "big"))
        peers[rank] = peer
    for _ in range(share.rank + 1, share.count):
        peer = stack.enter_context(listener.accept()[0])
        number = bytearray(4)
        _fill(memoryview(number), peer)
        peers[int.from_bytes(number, "big")] = peer
    return peers


def _exchange(peers: list[socket.socket | None], mine: Tensor) -> Tensor:
    """What `table` returns. Large tensors would fill the sockets before anyone reads them."""
    if mine.device.type != "cpu" or mine.nbytes > _QUICK:
        return table(mine)
    rows = mine.detach().expand(len(peers), *mine.shape).contiguous()
    sent = [memoryview(row.numpy()).cast("B") for row in rows]
    others = [(peer, row) for peer, row in zip(peers, sent, strict=True) if peer is not None]
    for peer, row in others:
        peer.sendall(row)
    for peer, row in others:
        _fill(row, peer)
    return rows


def _fill(room: memoryview, peer: socket.socket) -> None:
    while room:
        count = peer.recv_into(room)
        if not count:
            raise GemfiError("another process of this run has ended; its own message says why")
        room = room[count:]
